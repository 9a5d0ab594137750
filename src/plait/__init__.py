"""plait: a bounded memory for sequence models that learns what to keep.

Public names are imported on first use, so that `import plait` stays light. `__init__.pyi` beside this file
lists them, for this module and for editors and type checkers.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

_PACKAGES = (
    "cells",
    "depthwidth",
    "errors",
    "gradients",
    "hf",
    "integrations",
    "lab",
    "memory",
    "models",
    "ops",
)


def _read_stub() -> dict[str, str]:
    """Return the module of every name that the stub imports."""
    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = _read_stub()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"plait.{name}")
    raise AttributeError(f"module 'plait' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_MODULES, *_PACKAGES})
