"""Validation of dataclasses built from JSON; all unknown, missing and invalid values are reported at once.

A schema library would stop at types; here a dataclass's own checks are part of the same list of problems.
"""

from __future__ import annotations

import dataclasses
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from plait.errors import ConfigError, PlaitError

__all__ = ["parse"]

T = TypeVar("T")
_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "an object"}


def parse(kind: type[T], values: Any, where: str = "") -> T:
    """Build a dataclass of type `kind` from JSON values, or raise one error that lists all problems.

    >>> from plait.lab.training.characters import CharacterRecipe
    >>> parse(CharacterRecipe, {"updates": 0.5, "batches": 3})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: updates: expected a whole number, got 0.5; batches: is not known here
    """
    problems: list[str] = []
    instance = _dataclass(kind, values, where, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return instance  # type: ignore[no-any-return]


def _dataclass(kind: Any, values: Any, where: str, problems: list[str]) -> Any:
    if isinstance(values, kind):
        return values
    if not isinstance(values, dict):
        problems.append(f"{where or kind.__name__}: expected an object, got {values!r:.80}")
        return None
    hints, before, arguments = get_type_hints(kind), len(problems), {}
    for field in dataclasses.fields(kind):
        path = f"{where}.{field.name}" if where else field.name
        if field.name in values:
            arguments[field.name] = _value(hints[field.name], values[field.name], path, problems)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"{path}: is missing")
    strange = (name for name in values if name not in hints)
    problems += (
        f"{where}.{name}: is not known here" if where else f"{name}: is not known here" for name in strange
    )
    if len(problems) > before:
        return None
    try:
        return kind(**arguments)
    except PlaitError as error:
        problems.append(f"{where}: {error}" if where else str(error))


def _value(hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    """Convert a value to its annotated type; an invalid one is added to the problems."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        (hint,) = (part for part in parts if part is not NoneType)  # only `X | None` is used
        return _value(hint, value, where, problems)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, where, problems)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(parts[0], item, f"{where}.{n}", problems) for n, item in enumerate(value))
    if origin is Literal:
        if value not in parts:
            problems.append(f"{where}: expected one of {', '.join(map(str, parts))}, got {value!r}")
        return value
    kind = origin or hint
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not kind:
        problems.append(f"{where}: expected {_NAMES.get(kind, 'a list')}, got {value!r:.80}")
    return value
