"""Descriptions from plain data: unknown, missing and wrong keys are errors, all named at once."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from plait.errors import ConfigError, PlaitError

__all__ = ["checked", "plain"]

T = TypeVar("T")


def checked(kind: type[T], values: Any) -> T:
    """`values`, as JSON brings them, as a `kind`; or one error that lists everything wrong with them.

    >>> from plait.experiments.depthwidth.figure1 import Training
    >>> checked(Training, {"updates": 0.5, "batches": 3})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: updates: input should be a valid integer; batches: unexpected keyword argument
    """
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    try:
        return TypeAdapter(kind).validate_json(to_json(values))
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(problem) for problem in error.errors())) from None


def plain(description: Any) -> dict[str, Any]:
    """A description as data for JSON; `checked` reads it back."""
    return dataclasses.asdict(description)


def _sentence(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    where = ".".join(map(str, problem["loc"]))
    if isinstance(cause, PlaitError):
        return f"{where}: {cause}" if where else str(cause)
    return f"{where}: {problem['msg'].lower()}"
