"""Loops compiled by numba where it is installed (extra `fast`), and the choice between them and numpy."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from plait.errors import check_choice, require

__all__ = ["compiled", "use_numba"]


def use_numba(backend: str) -> bool:
    """Return True if `backend` ("auto", "numba" or "numpy") selects the compiled loops.

    "auto" selects numba if it is installed; "numba" without it is an error.
    """
    check_choice(backend, ("auto", "numba", "numpy"), "backend")
    if backend == "numba":
        require("numba", "fast")
    return backend == "numba" or (backend == "auto" and importlib.util.find_spec("numba") is not None)


@functools.cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return `loop` as a cached numba function; its first call compiles it, in about a second."""
    compiled_loop: Callable[..., Any] = require("numba", "fast").njit(nogil=True)(loop)
    return compiled_loop
