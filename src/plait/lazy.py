"""Names of a package that are resolved when first used, so that importing it loads nothing; and modules that
are imported when, and only when, another one is about to be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["before", "lazily"]


def lazily(
    package: str, homes: Mapping[str, str], rooms: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        homes: the module each public name is in: below the package, or in full where it begins with plait.
        rooms: modules of the package that are names themselves.
    """
    known = frozenset(rooms)

    def resolve(name: str) -> Any:
        if name in homes:
            home = homes[name]
            module = home if home.startswith("plait.") else f"{package}.{home}"
            value = getattr(importlib.import_module(module), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in known:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return resolve, lambda: sorted({*homes, *known})


class _Before:
    """A finder that finds nothing: being asked for `module` is what it waits for."""

    def __init__(self, module: str, needed: str) -> None:
        self.module, self.needed = module, needed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == self.module:
            sys.meta_path.remove(self)
            importlib.import_module(self.needed)


def before(module: str, needed: str) -> None:
    """Import `needed` before `module` is imported, or now if that was done already."""
    if module in sys.modules:
        importlib.import_module(needed)
    else:
        sys.meta_path.insert(0, _Before(module, needed))
