"""Results as JSON can hold them."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass
from typing import Any

__all__ = ["jsonable"]


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
