"""Sharing one GPU between several training programs.

A program alone on a GPU minimises its latency; several programs share it for the highest total throughput.
"""

from __future__ import annotations

import os

from plait.errors import ConfigError

__all__ = ["SHARED_BY", "programs", "waves"]

SHARED_BY = "PLAIT_GPU_SHARED_BY"


def programs() -> int:
    """Return the number of programs on this GPU, from the environment variable; 1 by default."""
    value = os.environ.get(SHARED_BY, "1")
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{SHARED_BY} is the number of programs on a GPU, 1 or more; got {value!r}")
    return int(value)


def waves(blocks: int, at_a_time: int) -> float:
    """Return the number of waves in which a batch's blocks (or clusters of them) run on the GPU.

    Other programs fill what the last wave leaves idle, so with several of them the cost is the fraction of
    this program's share, once that is more than one wave.

    >>> waves(17, 16)
    2
    """
    count = programs()
    return -(-blocks // at_a_time) if count == 1 else max(1.0, blocks * count / at_a_time)
