"""A run's description, checked: every unknown key and every value out of range is named at once."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from plait.errors import ConfigError, PlaitError, known, whole
from plait.models import MODELS
from plait.tasks import task_named
from plait.training.description import FORMAT, model_defaults
from plait.training.recipe import Recipe

__all__ = ["ModelConfig", "RunConfig", "TaskConfig", "checked"]

_SMALLEST = {
    "hidden_size": 1,
    "num_layers": 1,
    "window": 1,
    "capacity": 0,
    "top_k": 1,
    "every": 1,
    "truncate": 1,
    "heads": 1,
}


class TaskConfig(BaseModel):
    """A task's name and options; the options are the fields of its class."""

    # Which extra keys there may be depends on the name, so they are let in and checked below.
    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        task_named(self.name, **(self.model_extra or {}))
        return self


class ModelConfig(BaseModel):
    """A model's name and options; the options are those of its builder."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        known(self.name, MODELS, "model")
        problems = []
        for option, value in (self.model_extra or {}).items():
            try:
                known(option, model_defaults(self.name), f"option of {self.name}")
                if option in _SMALLEST and value is not None:
                    whole(_SMALLEST[option], **{option: value})
            except PlaitError as error:
                problems.append(str(error))
        if "hidden_size" not in (self.model_extra or {}):
            problems.append("hidden_size is missing")
        if problems:
            raise ConfigError("; ".join(problems))
        return self


class RunConfig(BaseModel):
    """What `config.json` holds.

    >>> checked({"task": {"name": "cpy"}, "model": {"name": "lstm", "hidden_size": 0}, "recipe": {"lr": -1}})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: unknown task 'cpy': did you mean 'copy'? (one of: copy, denoise, transfer); hidden_size: expected at least 1, got 0; lr: expected at least 0, got -1.0
    """  # noqa: E501  (the message is one line)

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: str = FORMAT
    task: TaskConfig
    model: ModelConfig
    recipe: Recipe = Recipe()

    @model_validator(mode="before")
    @classmethod
    def _check_format(cls, values: Any) -> Any:
        found = values.get("format", FORMAT) if isinstance(values, dict) else None
        if found != FORMAT:
            raise ConfigError(
                f"format: expected {FORMAT!r}, got {found!r}; it was not written by this version"
            )
        return values

    @field_validator("recipe")
    @classmethod
    def _check_recipe(cls, recipe: Recipe) -> Recipe:
        return recipe.check()

    def description(self) -> dict[str, Any]:
        """Plain data for `plait.training.description.build`."""
        return {
            "format": self.format,
            "task": self.task.model_dump(),
            "model": self.model.model_dump(),
            "recipe": self.recipe.values(),
        }


def checked(values: dict[str, Any]) -> RunConfig:
    """`values` as a `RunConfig`, or one error that lists everything that is wrong with them."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(problem) for problem in error.errors())) from None


def _sentence(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, PlaitError):
        return str(cause)
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].lower()}"
