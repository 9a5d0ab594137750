"""Loops compiled by numba where it is installed (extra `fast`), and the choice between the two ways."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from plait.errors import known, require

__all__ = ["compiled", "use_numba"]


def use_numba(backend: str) -> bool:
    """Whether `backend` ("auto", "numba" or "numpy") means the compiled loops here.

    "auto" takes numba if it is installed; naming "numba" without it is an error.
    """
    known(backend, ("auto", "numba", "numpy"), "backend")
    if backend == "numba":
        require("numba", "fast")
    return backend == "numba" or (backend == "auto" and importlib.util.find_spec("numba") is not None)


@functools.cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """`loop` translated to machine code on its first call (about a second), then kept."""
    compiled_loop: Callable[..., Any] = require("numba", "fast").njit(nogil=True)(loop)
    return compiled_loop
