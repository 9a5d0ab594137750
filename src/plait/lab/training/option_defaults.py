"""Defaults in the help of `plait train`, for the task and the model of a command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from plait.lab.training.options import HIDDEN, OF_EPOCHS, ModelOptions, Published, settings_for
from plait.lab.training.recipe import Recipe

__all__ = ["defaults_for"]


def defaults_for(words: list[str]) -> dict[str, Any] | None:
    """Return the defaults of `plait train` for the task and the model of a command line, by option.

    >>> defaults = defaults_for(["copy", "--model", "rellstm"])
    >>> defaults["delay"], defaults["window"], defaults["lr"], "test_delays" in defaults
    (100, 10, 0.004, False)
    """
    if all(word.startswith("-") for word in words):
        return None
    from plait.lab.tasks import TASKS
    from plait.lab.training.process import device_named
    from plait.models import MODELS
    from plait.models.options import complete_model, model_defaults

    task = next((word for word in words if word in TASKS), None)
    model = _option_value(words, "model") or ModelOptions.name
    if task is None or model not in MODELS:
        return None
    on_cpu = device_named(_option_value(words, "device") or "auto").type == "cpu"
    row = settings_for(task, model, on_cpu)
    names = frozenset(model_defaults(model))
    published = row.model(names) if row else {}
    of_model = {
        **model_defaults(model),
        **complete_model({"name": model, "hidden_size": HIDDEN, **published}),
    }
    of_recipe = {field.name: field.default for field in dataclasses.fields(Recipe)}
    if row:
        of_recipe |= row.recipe()
    if isinstance(row, Published):
        follows = dict(zip(OF_EPOCHS, ("as many as the epochs have", "an epoch", "all"), strict=True))
        of_recipe |= follows | {"epochs": row.epochs}
    options = dataclasses.fields(TASKS[task])
    of_task = {field.name: field.default for field in options if not field.metadata.get("hidden")}
    return {**of_task, **of_model, **of_recipe, "name": ModelOptions.name}


def _option_value(words: list[str], option: str) -> str | None:
    """Return the value of an option in a command line before it is parsed; None if it is missing."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == f"--{option}":
            return value if equals else following
    return None
