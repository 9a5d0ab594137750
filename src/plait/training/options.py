"""The options of `plait train`: what was given and what was not are told apart, so that a task and a model
with published settings begin with them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from plait.errors import ConfigError
from plait.marks import documented, option
from plait.training.recipe import Recipe

if TYPE_CHECKING:
    from plait.tasks import Task

__all__ = ["ModelOptions", "RecipeOptions", "TaskOptions", "described", "given"]


@dataclass(frozen=True)
class ModelOptions:
    """What the model is made of; an option left out keeps the model's default."""

    model: str = "relrnn"
    """rnn, lstm, gru, orthrnn, exprnn, goru, memrnn, memlstm, relrnn, rellstm, relgru, unirnn, unilstm, sab,
    transformer."""
    hidden: int | None = None
    """Features of h_t: 128, or 100 on MNIST and 1024 on text as published."""
    layers: int = 1
    """Layers one above the other."""
    dropout: float = 0.0
    """Between layers."""
    window: int | None = None
    """Latest states that can be read."""
    capacity: int | None = None
    """Relevant (or, of uniform writing, latest written) states kept beyond them."""
    relevance: str | None = None
    """relrnn, rellstm, relgru: what decides which states are kept: earned (as published), or learned."""
    noise: float | None = None
    """With a learned relevance: noise on it while training, 0.1 unless said."""
    every: int | None = None
    """unirnn, unilstm, sab: keep every so-manyth state."""
    top_k: int | None = None
    """sab: states that are read."""
    heads: int | None = None
    """transformer: attention heads, a divisor of --hidden."""
    nonlinearity: str | None = None
    """Of an Elman cell: tanh, modrelu, relu, identity."""
    initialiser: str | None = None
    """Of the recurrent matrix: henaff, cayley, random, xavier, kaiming, identity."""
    forget_bias: float | None = None
    """LSTM and GRU cells: the gate that keeps begins with this bias; 1 is usual."""
    chrono: int | None = None
    """LSTM and GRU cells: gates begin open for up to so many steps, drawn by unit; not with --forget-bias."""
    mix: float | None = None
    """s_t = mix · (h_t + c_t)."""

    def values(self) -> dict[str, Any]:
        names = {"model": "name", "hidden": "hidden_size", "layers": "num_layers"}
        return {names.get(key, key): value for key, value in given(self).items()}


@dataclass(frozen=True)
class TaskOptions:
    """What the task is; an option left out keeps the task's default."""

    delay: int | None = None
    """T, the steps to remember over."""
    lead_in: int | None = None
    """copy, transfer: blanks before the symbols."""
    test_delays: tuple[int, ...] | None = None
    """transfer: the delays it is tested at."""
    length: int | None = None
    """recall, mqar: steps of a sequence."""
    at: int | None = None
    """recall: the step that shows the symbol; left out, it is drawn anew in every sequence."""
    pairs: int | None = None
    """mqar: keys and values to remember."""
    vocab: int | None = None
    """mqar: symbols there are, half of them keys."""
    group: int | None = None
    """smnist, pmnist: pixels a step."""
    subset: int | None = None
    """smnist, pmnist: train on the first so many images."""
    images: str | None = None
    """smnist, pmnist: a folder of IDX files with MNIST's names, instead of MNIST."""
    text: tuple[str, ...] | None = None
    """text: one file, or three: to train, validate, test."""
    span: int | None = None
    """ptb, text: characters a gradient goes back over."""
    embedding: int | None = None
    """ptb, text, mqar: features a character or symbol becomes."""
    memory_across_spans: bool = False
    """ptb, text: what is remembered goes on from span to span; without it the memory is emptied."""
    begin_with: str | None = None
    """ptb, text: what a span begins with when the memory was emptied: s (s_T), or h (h_T)."""


def given(options: Any) -> dict[str, Any]:
    """What was said, by name: neither None nor a switch that was left alone."""
    return {k: v for k, v in dataclasses.asdict(options).items() if v is not None and v is not False}


def _optional(kind: type) -> list[tuple[str, Any, Any]]:
    """The fields of a dataclass, each with None for "not given" and its default in its help."""
    words, hints = documented(kind), get_type_hints(kind)
    found = []
    for part in dataclasses.fields(kind):
        shown = option(
            help=words.get(part.name, ""), help_behavior_hint=f"(default: {part.default}, or published)"
        )
        kind_or_none = Annotated[hints[part.name] | None, shown]  # type: ignore[valid-type,name-defined]
        found.append((part.name, kind_or_none, dataclasses.field(default=None)))
    return found


if TYPE_CHECKING:
    RecipeOptions = Recipe
else:
    RecipeOptions = dataclasses.make_dataclass("RecipeOptions", _optional(Recipe), frozen=True)
    RecipeOptions.__doc__ = "How it is trained; what is left out is published, or has the default named."


def described(
    task: Task, model: dict[str, Any], recipe: dict[str, Any], epochs: int | None
) -> dict[str, Any]:
    """A run's description from what was said, published settings where nothing was, defaults elsewhere.

    On a data set a look comes after every epoch and takes in all that is held out, unless told otherwise.
    """
    from plait.models import MODELS
    from plait.training.description import model_defaults
    from plait.training.loop import updates_of
    from plait.training.published import published_for

    row = published_for(task.name, model["name"])
    names = frozenset(model_defaults(model["name"]) if model["name"] in MODELS else ())
    model = {"hidden_size": 128, **(row.model(names) if row else {}), **model}
    values = {**Recipe().values(), **(row.recipe() if row else {}), **recipe}
    if epochs is not None:
        if "updates" in recipe:
            raise ConfigError("expected --epochs or --updates, got both")
        values["updates"] = updates_of(task, values["batch_size"], epochs)
    per_epoch = task.batches_per_epoch(values["batch_size"])
    if per_epoch is not None:
        wanted = epochs or (row.epochs if row else 1)
        usual = {"updates": wanted * per_epoch, "evaluate_every": per_epoch, "evaluate_on": None}
        values |= {name: value for name, value in usual.items() if name not in recipe}
    return {"task": {"name": task.name, **task.options()}, "model": model, "recipe": values}
