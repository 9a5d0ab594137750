"""plait: recurrence, attention, sparse memory, depth and width; what they buy and what they cost.

Public names are resolved when first used, so `import plait` stays light and `plait.depthwidth` never
loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from plait._version import __version__

if TYPE_CHECKING:
    pass

# public name -> the module that holds it
_HOMES: dict[str, str] = {}
_ROOMS: tuple[str, ...] = ()

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"plait.{name}")
    raise AttributeError(f"module 'plait' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
