"""The defaults that the help of `plait train` shows: those of the task and the model of a line."""

from __future__ import annotations

import dataclasses
from typing import Any

from plait.training.options import HIDDEN, OF_EPOCHS, SHORT, ModelOptions, Published, settings_for
from plait.training.recipe import Recipe

__all__ = ["defaults_for"]


def defaults_for(words: list[str]) -> dict[str, Any] | None:
    """What `plait train` takes for the task and the model of a line, by the names of its options.

    >>> found = defaults_for(["copy", "--model", "rellstm"])
    >>> found["delay"], found["window"], found["lr"], "test_delays" in found
    (100, 10, 0.004, False)
    """
    if all(word.startswith("-") for word in words):
        return None
    from plait.models import MODELS
    from plait.models.options import model_defaults
    from plait.tasks import TASKS
    from plait.training.process import device_named

    task = next((word for word in words if word in TASKS), None)
    model = _said(words, "model") or ModelOptions.model
    if task is None or model not in MODELS:
        return None
    on_cpu = device_named(_said(words, "device") or "auto").type == "cpu"
    row = None if "--plain" in words else settings_for(task, model, on_cpu)
    names = frozenset(model_defaults(model))
    published = row.model(names) if row else {}
    small = MODELS[model](
        1, **{**published, "hidden_size": 8}
    )  # made, so that what it chooses itself is known
    of_model = {**model_defaults(model), **(small.options() or {}), "hidden_size": HIDDEN, **published}
    of_recipe = {field.name: field.default for field in dataclasses.fields(Recipe)}
    if row:
        of_recipe |= row.recipe()
    if isinstance(row, Published):
        follows = dict(zip(OF_EPOCHS, ("as many as the epochs have", "an epoch", "all"), strict=True))
        of_recipe |= follows | {"epochs": row.epochs}
    options = dataclasses.fields(TASKS[task])
    of_task = {field.name: field.default for field in options if not field.metadata.get("hidden")}
    found = {**of_task, **of_model, **of_recipe, "name": ModelOptions.model}
    return {SHORT.get(name, name): value for name, value in found.items()}


def _said(words: list[str], option: str) -> str | None:
    """The value of an option in a line that was not read yet."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == f"--{option}":
            return value if equals else following
    return None
