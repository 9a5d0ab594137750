"""A record of the backends that really ran."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["record_backends", "recorded"]

_recordings: list[list[str]] = []


@contextlib.contextmanager
def record_backends() -> Iterator[list[str]]:
    """Collect the names of the backends that really run, in order, forward passes only.

    >>> with record_backends() as ran:
    ...     pass
    >>> ran
    []
    """
    ran: list[str] = []
    _recordings.append(ran)
    try:
        yield ran
    finally:
        _recordings.remove(ran)


def recorded(name: str) -> str:
    """Record in every active context that a forward pass runs on this backend."""
    for ran in _recordings:
        ran.append(name)
    return name
