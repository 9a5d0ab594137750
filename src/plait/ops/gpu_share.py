"""How many programs train on one GPU at a time: alone, a kernel takes all of it that makes it quicker; beside
others, what makes all of them quickest."""

from __future__ import annotations

import os

from plait.errors import ConfigError

__all__ = ["SHARED_BY", "programs", "waves"]

SHARED_BY = "PLAIT_GPU_SHARED_BY"


def programs() -> int:
    """What the environment says, 1 if nothing."""
    said = os.environ.get(SHARED_BY, "1")
    if not said.isdecimal() or int(said) < 1:
        raise ConfigError(f"{SHARED_BY} is the number of programs on a GPU, 1 or more; got {said!r}")
    return int(said)


def waves(blocks: int, at_a_time: int) -> float:
    """How often a batch's blocks (or clusters of them) fill the GPU. Beside others, who fill what the last
    wave leaves, they cost what they take of this program's part of it, once that is more than one wave.

    >>> waves(17, 16)
    2
    """
    count = programs()
    return -(-blocks // at_a_time) if count == 1 else max(1.0, blocks * count / at_a_time)
