"""Option types of the named models, by which a type checker catches a misspelt option, and their help texts.

A model's options follow from its cell and its memory; `tests/models/test_keywords.py` compares the types with
the signatures, and the texts with both.
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
    """Options of every named model."""

    initialiser: str | None
    mix: Mix
    truncate: int | None
    backend: str


class ElmanOptions(CommonOptions, total=False):
    """Options of models with an Elman cell."""

    nonlinearity: str


class GatedOptions(CommonOptions, total=False):
    """Options of models with an LSTM or GRU cell."""

    forget_bias: float | None
    chrono: int | None


class RelevancyOptions(TypedDict, total=False):
    """Options of a relevancy memory."""

    window: int
    capacity: int
    relevance: str
    noise: float | None
    usage: float | None
    grad_limit: float | None


class UniformOptions(TypedDict, total=False):
    """Options of uniform writing."""

    window: int
    capacity: int
    every: int


class ElmanRelevancyOptions(ElmanOptions, RelevancyOptions, total=False):
    """Options of an Elman cell and a relevancy memory."""


class ElmanUniformOptions(ElmanOptions, UniformOptions, total=False):
    """Options of an Elman cell and uniform writing."""


class GatedRelevancyOptions(GatedOptions, RelevancyOptions, total=False):
    """Options of an LSTM or GRU cell and a relevancy memory."""


class GatedUniformOptions(GatedOptions, UniformOptions, total=False):
    """Options of an LSTM or GRU cell and uniform writing."""


class GatedTopKOptions(GatedOptions, total=False):
    """Options of an LSTM or GRU cell and a top-k memory."""

    top_k: int
    every: int


WORDS = {
    "input_size": "number of input features.",
    "hidden_size": "number of features of h_t, per direction.",
    "num_layers": "number of stacked layers, as in `torch.nn.LSTM`.",
    "bias": "whether the cells have biases.",
    "batch_first": "input and output are (B, T, feature) instead of (T, B, feature); a state never is.",
    "dropout": "applied to the output of every layer but the last, while training.",
    "bidirectional": "two directions, each with its own cells and memory, outputs concatenated: whole "
    "sequences only, no streaming.",
    "proj_size": "must be 0, `torch.nn.LSTM`'s default; project the output with `torch.nn.Linear`.",
    "device": "device of the weights.",
    "dtype": "dtype of the weights.",
    "initialiser": "initialiser of recurrent matrices: henaff, cayley, random, xavier, kaiming, identity; "
    "None for the cell's default.",
    "mix": "γ in s_t = γ (h_t + c_t), or a function of h_t and c_t; no effect without a memory.",
    "truncate": "cut the recurrent gradient every `truncate` steps; None for never.",
    "backend": '"auto", or one of reference, torch, cpu, triton, which never falls back to another.',
    "nonlinearity": "nonlinearity of the Elman cell: tanh, relu, modrelu, identity.",
    "forget_bias": "initial bias of the forget gate; 1 is common, None for torch's initialisation.",
    "chrono": "draw forget-gate biases for lifetimes of up to so many steps; not with forget_bias.",
    "window": "ν, number of latest states that can be read.",
    "capacity": "ρ, number of states kept beyond the window.",
    "relevance": 'criterion by which states are kept: "earned", the attention received (as published), or '
    '"learned", a score that reading trains.',
    "noise": "scale of the Gumbel noise on a learned relevance while training; None for 0.3.",
    "usage": "weight of training a learned relevance by how much reading matters to the loss; None for 1.",
    "grad_limit": "clip the elements of dL/ds_t to so many times the largest that arrives; None: no limit.",
    "every": "keep every n-th state.",
    "top_k": "number of states read, those of highest energy.",
}


def with_arguments(text: str, names: Iterable[str]) -> str:
    """Return a docstring with a description of each argument inserted before its examples.

    >>> print(with_arguments("An LSTM.", ["window"]))
    An LSTM.
    <BLANKLINE>
    Args:
        window: ν, number of latest states that can be read.
    """
    text = inspect.cleandoc(text)
    wrapped = [
        textwrap.fill(f"{name}: {WORDS[name]}", 100, initial_indent="    ", subsequent_indent=" " * 8)
        for name in names
    ]
    arguments = "\n".join(["Args:", *wrapped])
    before, examples, rest = text.partition(">>>")
    return f"{before.rstrip()}\n\n{arguments}" + (f"\n\n{examples}{rest}" if examples else "")
