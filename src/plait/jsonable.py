"""Results and descriptions as JSON can hold them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, is_dataclass
from typing import Any

from plait.errors import ConfigError, in_utf8

__all__ = ["canonical_json", "jsonable"]


def jsonable(value: Any) -> Any:
    """Dataclasses as objects, arrays as lists, what is not finite as null.

    >>> jsonable((1.5, float("inf")))
    [1.5, None]
    """
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # of numpy, which this need not load
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def canonical_json(description: dict[str, Any]) -> str:
    """Return a run's description as JSON in one order and without blanks, from which its id follows.

    Raises:
        ConfigError: for a number that is not finite, or a text that JSON would hold and no reader take: the
            name of a file that is not UTF-8.
    """
    _check_texts(description)
    try:
        return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        found = (pair for part in description.values() if isinstance(part, dict) for pair in part.items())
        name = next((k for k, v in found if isinstance(v, float) and not math.isfinite(v)), "a value")
        raise ConfigError(f"{name}: expected a finite number") from error


def _check_texts(value: Any, name: str = "description") -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _check_texts(one, key)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_texts(one, name)
    elif isinstance(value, str):
        in_utf8("rename it (if its name is UTF-8, set LC_ALL=C.UTF-8)", **{name: value})
