"""The options of `plait train`: what was given and what was not are told apart, so that a task and a model
with published settings begin with them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro

from plait.errors import ConfigError
from plait.training.recipe import Recipe, Settings, updates_of

if TYPE_CHECKING:
    from plait.tasks import Task

__all__ = ["ModelOptions", "RecipeOptions", "SettingsOptions", "TaskOptions", "described", "given"]


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
    test_delays: tuple[int, ...] | None = None
    """transfer: the delays it is tested at."""
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
    """ptb, text: features a character becomes."""
    memory_across_spans: bool = False
    """ptb, text: what is remembered goes on from span to span; without it the memory is emptied."""
    begin_with: str | None = None
    """ptb, text: what a span begins with when the memory was emptied: s (s_T), or h (h_T)."""


def given(options: Any) -> dict[str, Any]:
    """What was said, by name: neither None nor a switch that was left alone."""
    return {k: v for k, v in dataclasses.asdict(options).items() if v is not None and v is not False}


def _documented(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:  # no source beside the program: help without words
        return {}
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        ast.unparse(field.target): str(text.value.value)
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _optional(kind: type, source: str = "") -> list[tuple[str, Any, Any]]:
    """The fields of a dataclass, each with None for "not given" and its default in its help."""
    words, hints = _documented(kind), get_type_hints(kind)
    found = []
    for part in dataclasses.fields(kind):
        shown = tyro.conf.arg(
            help=words.get(part.name, ""), help_behavior_hint=f"(default: {part.default}{source})"
        )
        kind_or_none = Annotated[hints[part.name] | None, shown]  # type: ignore[valid-type,name-defined]
        found.append((part.name, kind_or_none, dataclasses.field(default=None)))
    return found


if TYPE_CHECKING:
    RecipeOptions = Recipe
    SettingsOptions = Settings
else:
    SettingsOptions = dataclasses.make_dataclass("SettingsOptions", _optional(Settings), frozen=True)
    SettingsOptions.__doc__ = "How a policy is trained; what is left out has the default named."
    RecipeOptions = dataclasses.make_dataclass(
        "RecipeOptions", _optional(Recipe, ", or published"), frozen=True
    )
    RecipeOptions.__doc__ = "How it is trained; what is left out is published, or has the default named."


def described(
    task: Task, model: dict[str, Any], recipe: dict[str, Any], epochs: int | None
) -> dict[str, Any]:
    """A run's description from what was said, published settings where nothing was, defaults elsewhere.

    On a data set a look comes after every epoch and takes in all that is held out, unless told otherwise.
    """
    from plait.models import MODELS
    from plait.models.options import model_defaults
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
