"""The command that trains a run again, from its description alone and without torch."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plait.lab.runs.kinds import kind_of
from plait.lab.training.options import ModelOptions, PolicyOptions, TaskOptions
from plait.lab.training.recipe import Recipe, Settings

__all__ = ["repeat_command"]

_SHORT = {"hidden_size": "hidden", "num_layers": "layers", "name": "model"}
# Defaults of every model, and values that no option sets.
_DEFAULT_MODEL = {"num_layers": 1, "dropout": 0.0, "bias": True}
_FROM_DATA = ("sha256", "classes")
_OF_CSV = (
    "target", "sequence", "order", "features", "missing", "answer", "asks", "length", "held_out",
)  # fmt: skip
# Options whose defaults follow from the size of a data set.
_FROM_SIZE = ("updates", "batch_size", "evaluate_every", "evaluate_on")
_WORLDS = ("env", "test_env", "backend", "time_limit", "encoder")
_ALL_HELD_OUT = ("smnist", "pmnist", "ptb", "text", "csv")  # evaluated on all held-out data by default


class _NoOptionError(Exception):
    """A value that no option of the command line can set."""


def repeat_command(description: Mapping[str, Any]) -> str | None:
    """Return the command that trains a run again; None for a user's network or data, which it cannot name.

    The command states the sizes and does not rely on a task's current settings, so that it stays the same
    run. Device and threads are not part of a run.

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
    except _NoOptionError:
        return None


def _supervised(task: dict[str, Any], model: dict[str, Any], recipe: dict[str, Any]) -> Iterator[str]:
    name = task.pop("name", None)
    if name is None or name == "data" or "name" not in model or (name == "csv" and not task.get("file")):
        raise _NoOptionError
    yield name
    if name == "csv":
        yield str(task.pop("file"))
        if not task.pop("header", True):
            yield "--no-header"
        options = {"held_out" if key == "share" else key: value for key, value in task.items()}
        yield from _options(_without_defaults(options, {"standardise": True}), _OF_CSV)
    else:
        yield "--plain"  # the settings of a task may change
        yield from _options(task, _fields(TaskOptions))
    yield from _of_model(model, {"truncate": 10} if model["name"] == "sab" else {}, ModelOptions)
    if recipe.get("evaluate_on", 0) is None and name not in _ALL_HELD_OUT:
        raise _NoOptionError
    computed = _FROM_SIZE if name in _ALL_HELD_OUT else ()
    defaults = {key: value for key, value in _defaults(Recipe).items() if key not in computed}
    yield from _options(_without_defaults(recipe, defaults), _fields(Recipe))


def _policy(task: dict[str, Any], model: dict[str, Any], recipe: dict[str, Any]) -> Iterator[str]:
    yield str(task.pop("name"))
    yield from _options(task, _WORLDS)
    yield from _of_model(model, {"noise": 0.0}, PolicyOptions)  # the only value a policy can have
    yield from _options(_without_defaults(recipe, _defaults(Settings)), _fields(Settings))


def _of_model(model: dict[str, Any], defaults: dict[str, Any], kind: type) -> Iterator[str]:
    values = _without_defaults(model, {**_DEFAULT_MODEL, **defaults})
    yield from _options({_SHORT.get(name, name): value for name, value in values.items()}, _fields(kind))


def _options(values: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """Yield the values as command-line arguments; empty values are left out."""
    known = set(names)
    for name, value in values.items():
        if value is None or value in ("", [], ()) or name in _FROM_DATA:
            continue
        if name not in known:
            raise _NoOptionError
        if value is False:
            continue
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield from map(str, value if isinstance(value, list | tuple) else [value])


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(kind)}
