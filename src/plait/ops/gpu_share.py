"""Sharing one GPU between several training programs.

A program alone on a GPU minimises its latency; several programs share it for the highest total throughput.
"""

from __future__ import annotations

from plait.errors import check_min

__all__ = ["programs", "share_gpu", "waves"]

_programs = 1


def share_gpu(programs: int) -> None:
    """Tell kernels that this process is one of several programs on its GPU, from now on; 1 is the default.

    Call it before a model's first pass. Kernels split a batch so that all programs together are done
    soonest; sums have another order then, so results differ from those of a program alone in their last
    digits. Runs of `plait reproduce --together N` call it, and record it as `gpu_shared_by`.
    """
    global _programs
    check_min(1, programs=programs)
    _programs = programs


def programs() -> int:
    """Return the number of programs on this GPU, as `share_gpu` set it."""
    return _programs


def waves(blocks: int, at_a_time: int) -> float:
    """Return the number of waves in which a batch's blocks (or clusters of them) run on the GPU.

    Other programs fill what the last wave leaves idle, so with several of them the cost is the fraction of
    this program's share, once that is more than one wave.

    >>> waves(17, 16)
    2
    """
    count = programs()
    return -(-blocks // at_a_time) if count == 1 else max(1.0, blocks * count / at_a_time)
