"""A run as the one command that trains it again, from its description alone and without torch."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plait.runs.kinds import kind_of
from plait.training.options import ModelOptions, PolicyOptions, TaskOptions
from plait.training.recipe import Recipe, Settings

__all__ = ["repeat_command"]

_SHORT = {"hidden_size": "hidden", "num_layers": "layers", "name": "model"}
# What every model has unless something else is said, and what no option says.
_USUAL = {"num_layers": 1, "dropout": 0.0, "bias": True}
_FOUND = ("sha256", "classes")  # follows from the data
_OF_CSV = (
    "target", "sequence", "order", "features", "missing", "answer", "asks", "length", "held_out",
)  # fmt: skip
# What the size of a data set decides where nothing is said.
_DECIDED = ("updates", "batch_size", "evaluate_every", "evaluate_on")
_WORLDS = ("env", "test_env", "backend", "time_limit", "encoder")
_ALL_HELD_OUT = ("smnist", "pmnist", "ptb", "text", "csv")  # evaluated on all there is, where nothing is said


class _Unsayable(Exception):
    """No option says this."""


def repeat_command(description: Mapping[str, Any]) -> str | None:
    """What to type to train a run again; None where no command can say it: a network or data of one's own.

    It names the sizes, and takes nothing from what a task recommends today, so that it stays the same run.
    Where it is computed (device, threads) is no part of what a run is.

    >>> repeat_command({"task": {"name": "copy", "delay": 50}, "model": {"name": "lstm", "hidden_size": 64},
    ...                 "recipe": {"updates": 500, "lr": 0.001, "seed": 3}})
    'plait train copy --plain --delay 50 --model lstm --hidden 64 --updates 500 --seed 3'
    """
    task, model, recipe = (dict(description.get(part) or {}) for part in ("task", "model", "recipe"))
    try:
        if kind_of(dict(description)).score == "return":
            words = _policy(task, model, recipe)
        else:
            words = _supervised(task, model, recipe)
        return shlex.join(["plait", "train", *words])
    except _Unsayable:
        return None


def _supervised(task: dict[str, Any], model: dict[str, Any], recipe: dict[str, Any]) -> Iterator[str]:
    name = task.pop("name", None)
    if name is None or name == "data" or "name" not in model or (name == "csv" and not task.get("file")):
        raise _Unsayable
    yield name
    if name == "csv":
        yield str(task.pop("file"))
        if not task.pop("header", True):
            yield "--no-header"
        said = {"held_out" if key == "share" else key: value for key, value in task.items()}
        yield from _options(_unusual(said, {"standardise": True}), _OF_CSV)
    else:
        yield "--plain"  # what a task recommends may change
        yield from _options(task, _fields(TaskOptions))
    yield from _of_model(model, {"truncate": 10} if model["name"] == "sab" else {}, ModelOptions)
    if recipe.get("evaluate_on", 0) is None and name not in _ALL_HELD_OUT:
        raise _Unsayable
    decided = _DECIDED if name in _ALL_HELD_OUT else ()
    usual = {key: value for key, value in _defaults(Recipe).items() if key not in decided}
    yield from _options(_unusual(recipe, usual), _fields(Recipe))


def _policy(task: dict[str, Any], model: dict[str, Any], recipe: dict[str, Any]) -> Iterator[str]:
    yield str(task.pop("name"))
    yield from _options(task, _WORLDS)
    yield from _of_model(model, {"noise": 0.0}, PolicyOptions)  # a policy has no other noise
    yield from _options(_unusual(recipe, _defaults(Settings)), _fields(Settings))


def _of_model(model: dict[str, Any], usual: dict[str, Any], kind: type) -> Iterator[str]:
    values = _unusual(model, {**_USUAL, **usual})
    yield from _options({_SHORT.get(name, name): value for name, value in values.items()}, _fields(kind))


def _options(values: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """The values as a person types them; nothing is said of what was left out."""
    there = set(names)
    for name, value in values.items():
        if value is None or value in ("", [], ()) or name in _FOUND:
            continue
        if name not in there:
            raise _Unsayable
        if value is False:
            continue
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield from map(str, value if isinstance(value, list | tuple) else [value])


def _unusual(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in usual or value != usual[key]}


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(kind)}
