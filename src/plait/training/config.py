"""A run's description, checked: every unknown key and every value out of range is named at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.errors import ConfigError, PlaitError, known, whole
from plait.models import MODELS
from plait.strict import checked as strictly
from plait.tasks import task_named
from plait.training.description import FORMAT, model_defaults
from plait.training.recipe import Recipe

__all__ = ["check_model", "checked"]

_PARTS = ("format", "task", "model", "recipe")
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
}


def checked(values: Any) -> dict[str, Any]:
    """What `config.json` holds, completed; or one error that lists everything that is wrong with it.

    >>> checked({"task": {"name": "cpy"}, "model": {"name": "lstm", "hidden_size": 0}, "recipe": {"lr": -1}})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: unknown task 'cpy': did you mean 'copy'? (one of: copy, denoise, mqar, pmnist, ptb, recall, smnist, text, transfer); hidden_size: expected at least 1, got 0; lr: expected at least 0, got -1.0
    """  # noqa: E501  (the message is one line)
    if not isinstance(values, dict) or values.get("format", FORMAT) != FORMAT:
        found = values.get("format") if isinstance(values, dict) else None
        raise ConfigError(f"format: expected {FORMAT!r}, got {found!r}; it was not written by this version")
    problems: list[str] = []
    for part, check in (("task", lambda task: task_named(**task)), ("model", check_model)):
        _collect(problems, _check_named, part, values.get(part), check)
    recipe = _collect(problems, _recipe, values.get("recipe", {}))
    problems += [f"{name}: is not known here" for name in values if name not in _PARTS]
    if problems:
        raise ConfigError("; ".join(problems))
    task, model = (dict(values[part]) for part in ("task", "model"))
    return {"format": FORMAT, "task": task, "model": model, "recipe": recipe}


def check_model(model: dict[str, Any]) -> None:
    """A model's name and options; the options are those of its builder."""
    known(model["name"], MODELS, "model")
    problems: list[str] = []
    for option, value in model.items():
        if option != "name":
            _collect(problems, _check_option, model["name"], option, value)
    if "hidden_size" not in model:
        problems.append("hidden_size is missing")
    if problems:
        raise ConfigError("; ".join(problems))


def _check_option(model: str, option: str, value: Any) -> None:
    known(option, model_defaults(model), f"option of {model}")
    if option in _SMALLEST and value is not None:
        whole(_SMALLEST[option], **{option: value})


def _check_named(part: str, value: Any, check: Callable[[dict[str, Any]], Any]) -> None:
    """A part that is a name and options."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ConfigError(f"{part}: expected a name and options, got {value!r:.80}")
    check(value)


def _recipe(values: Any) -> dict[str, Any]:
    return strictly(Recipe, values, "recipe").check().values()


def _collect(problems: list[str], check: Callable[..., Any], *values: Any) -> Any:
    """What a check gives; what it raises joins the problems."""
    try:
        return check(*values)
    except PlaitError as error:
        problems.append(str(error))
