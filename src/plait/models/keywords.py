"""The options of named models: their types, so that a type checker finds a misspelt one, and their words.

Which builder has which follows from its cell and its memory; `tests/models/test_keywords.py` holds the
types to the signatures, and the words to both.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable
from typing import TypedDict

from plait.models.self_attentive import Mix

__all__ = [
    "ElmanOptions", "ElmanRelevancyOptions", "ElmanUniformOptions", "GatedOptions", "GatedRelevancyOptions",
    "GatedTopKOptions", "GatedUniformOptions", "with_arguments",
]  # fmt: skip


class CommonOptions(TypedDict, total=False):
    """Of every named model."""

    initialiser: str | None
    mix: Mix
    truncate: int | None
    backend: str


class ElmanOptions(CommonOptions, total=False):
    """Of an Elman cell."""

    nonlinearity: str


class GatedOptions(CommonOptions, total=False):
    """Of an LSTM or GRU cell."""

    forget_bias: float | None
    chrono: int | None


class RelevancyOptions(TypedDict, total=False):
    """Of a relevancy memory."""

    window: int
    capacity: int
    relevance: str
    noise: float | None
    usage: float | None
    grad_limit: float | None


class UniformOptions(TypedDict, total=False):
    """Of uniform writing."""

    window: int
    capacity: int
    every: int


class ElmanRelevancyOptions(ElmanOptions, RelevancyOptions, total=False):
    """Of an Elman cell and a relevancy memory."""


class ElmanUniformOptions(ElmanOptions, UniformOptions, total=False):
    """Of an Elman cell and uniform writing."""


class GatedRelevancyOptions(GatedOptions, RelevancyOptions, total=False):
    """Of an LSTM or GRU cell and a relevancy memory."""


class GatedUniformOptions(GatedOptions, UniformOptions, total=False):
    """Of an LSTM or GRU cell and uniform writing."""


class GatedTopKOptions(GatedOptions, total=False):
    """Of an LSTM or GRU cell and a memory of which the best are read."""

    top_k: int
    every: int


WORDS = {
    "input_size": "features of the input.",
    "hidden_size": "features of h_t, of each direction.",
    "num_layers": "layers one above the other, as in `torch.nn.LSTM`.",
    "bias": "whether the cells have biases.",
    "batch_first": "input and output are (B, T, feature) instead of (T, B, feature); a state never is.",
    "dropout": "applied to the output of every layer but the last, while training.",
    "bidirectional": "two directions, each with its own cells and memory, outputs concatenated: whole "
    "sequences only, no streaming.",
    "proj_size": "0 alone, as `torch.nn.LSTM` has it by default; project the output with `torch.nn.Linear`.",
    "device": "of the weights.",
    "dtype": "of the weights.",
    "initialiser": "how recurrent matrices begin: henaff, cayley, random, xavier, kaiming, identity; None "
    "for what is usual for the cell.",
    "mix": "γ in s_t = γ (h_t + c_t), or a function of the two; of no effect without a memory.",
    "truncate": "cut the recurrent gradient every `truncate` steps; None for never.",
    "backend": '"auto", or one that is never replaced by another: reference, torch, cpu, triton.',
    "nonlinearity": "of the Elman cell: tanh, relu, modrelu, identity.",
    "forget_bias": "the gate that keeps begins with this bias; 1 is usual, None for torch's beginning.",
    "chrono": "the gate that keeps begins open for up to so many steps, drawn by unit; not with forget_bias.",
    "window": "ν, the latest states that can be read.",
    "capacity": "ρ, states kept beyond the window.",
    "relevance": 'what decides which are kept: "earned", the attention received (as published), or '
    '"learned", a score that reading trains.',
    "noise": "with a learned relevance, Gumbel noise on it while training; None for 0.3.",
    "usage": "with a learned relevance, how much it is drawn to what reading is felt of; None for 1.",
    "grad_limit": "no element of dL/ds_t gets larger than so many times the largest that arrives; None for "
    "no limit.",
    "every": "keep every n-th state.",
    "top_k": "states that are read, those of highest energy.",
}


def with_arguments(text: str, names: Iterable[str]) -> str:
    """A docstring with what each argument is, before its examples.

    >>> print(with_arguments("An LSTM.", ["window"]))
    An LSTM.
    <BLANKLINE>
    Args:
        window: ν, the latest states that can be read.
    """
    text = inspect.cleandoc(text)
    wrapped = [
        textwrap.fill(f"{name}: {WORDS[name]}", 100, initial_indent="    ", subsequent_indent=" " * 8)
        for name in names
    ]
    arguments = "\n".join(["Args:", *wrapped])
    before, examples, rest = text.partition(">>>")
    return f"{before.rstrip()}\n\n{arguments}" + (f"\n\n{examples}{rest}" if examples else "")
