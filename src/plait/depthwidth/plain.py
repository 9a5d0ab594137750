"""Results as JSON can hold them."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Dataclasses as objects, what is not finite as null.

    >>> plain((1.5, float("inf")))
    [1.5, None]
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
