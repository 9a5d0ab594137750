"""The options of named models: their names, defaults and bounds."""

from __future__ import annotations

import inspect
from typing import Any, cast

from plait.errors import LARGEST, ConfigError, PlaitError, check_choice, check_int
from plait.memory import RelevancyMemory
from plait.models.attention_memory import bounded_memory, checked_positions
from plait.models.named import NamedModel
from plait.models.table import MODELS
from plait.models.transformer import Transformer

__all__ = ["check_model", "complete_model", "model_defaults"]

# The device and backend of a model, and what the task decides, are not part of its description.
_LEFT_OUT = frozenset({"input_size", "batch_first", "proj_size", "device", "dtype", "backend"})
_SMALLEST = {
    "hidden_size": 1,
    "num_layers": 1,
    "window": 1,
    "capacity": 0,
    "top_k": 1,
    "every": 1,
    "truncate": 1,
    "heads": 1,
    "chrono": 3,
    "sinks": 0,
}
_MOST = {"num_layers": 10_000}


def model_defaults(name: str) -> dict[str, Any]:
    """Return every option of a named model that belongs to a description, with its default."""
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _LEFT_OUT}


def complete_model(model: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a named model with every default filled in, without building the model.

    Equal models have equal descriptions: options added later appear only where they are set.

    >>> complete_model({"name": "lstm", "hidden_size": 8})["initialiser"]
    'xavier'
    """
    check_model(model)
    options = {key: value for key, value in model.items() if key != "name"}
    builder = cast("type[NamedModel | Transformer]", MODELS[model["name"]])
    return {"name": model["name"], **builder.complete_options(**options)}


def check_model(model: dict[str, Any]) -> None:
    """Validate a model's name and options; one error lists all problems.

    >>> check_model({"name": "lstm", "hidden_size": 0})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: hidden_size: expected at least 1, got 0
    """
    name = check_choice(model["name"], MODELS, "model")
    problems = [] if "hidden_size" in model else ["hidden_size is missing"]
    for option, value in model.items():
        try:
            check_choice(option, (*model_defaults(name), "name"), f"option of {name}")
            if option in _SMALLEST and value is not None:
                check_int(_SMALLEST[option], _MOST.get(option, LARGEST), **{option: value})
            if option == "bidirectional" and not isinstance(value, bool):
                problems.append(f"bidirectional: expected true or false, got {value!r}")
        except PlaitError as error:
            problems.append(str(error))
    if "memory" in model_defaults(name) and not problems:
        problems += _memory_problems(model)
    if problems:
        raise ConfigError("; ".join(problems))


_OF_MEMORY = ("memory", "window", "capacity", "relevance", "noise", "sinks", "every")


def _memory_problems(model: dict[str, Any]) -> list[str]:
    """Return the problems of a Transformer's memory in training, which runs all steps in one pass."""
    try:
        memory = bounded_memory(**{option: model.get(option) for option in _OF_MEMORY})
        checked_positions(model.get("positions"), memory)
    except PlaitError as error:
        return [str(error)]
    if isinstance(memory, RelevancyMemory) and memory.relevance == "earned":
        return [
            "relevance: expected learned for a Transformer that trains on all steps in one pass, got earned; "
            "rellstm and relrnn earn it step by step"
        ]
    return []
