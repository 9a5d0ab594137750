"""The options of named models: which there are, and what they may be."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from plait.errors import PlaitError, known, whole
from plait.models.builders import MODELS

__all__ = ["model_defaults", "model_problems"]

# Where and how a model is computed, and what the task decides, are not part of what it is.
_LEFT_OUT = frozenset(
    {"input_size", "batch_first", "bidirectional", "proj_size", "device", "dtype", "backend"}
)
_SMALLEST = {
    "hidden_size": 1, "num_layers": 1, "window": 1, "capacity": 0, "top_k": 1, "every": 1, "truncate": 1,
    "heads": 1,
}  # fmt: skip


def model_defaults(name: str) -> dict[str, Any]:
    """Every option of a named model that belongs to a description, with its default."""
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _LEFT_OUT}


def model_problems(model: dict[str, Any]) -> Iterator[str]:
    """Everything wrong with a model's name and options, so that it can be mended at once.

    >>> list(model_problems({"name": "lstm", "hidden_size": 0}))
    ['hidden_size: expected at least 1, got 0']
    """
    try:
        name = known(model.get("name", ""), MODELS, "model")
    except PlaitError as error:
        yield str(error)
        return
    for option, value in model.items():
        try:
            known(option, (*model_defaults(name), "name"), f"option of {name}")
            if option in _SMALLEST and value is not None:
                whole(_SMALLEST[option], **{option: value})
        except PlaitError as error:
            yield str(error)
    if "hidden_size" not in model:
        yield "hidden_size is missing"
