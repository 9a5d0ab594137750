"""Estimates of memory: work that cannot fit is refused before anything is allocated.

Callers pass a lower bound of what they need and a remedy; it is compared with the free memory here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, require

__all__ = [
    "FLOAT",
    "SMALL",
    "available_bytes",
    "check_fits",
    "check_slots",
    "check_stacks",
    "check_weights",
]

FLOAT = 4  # bytes of a float32
SMALL = 1e8  # bytes below which nothing is checked
_STACK = 8 * 2**20  # bytes of address space of a thread's stack
_SHARE = 0.9  # usable share of free memory; the rest is for the interpreter, BLAS and other processes


def available_bytes(device: str | None = None) -> int:
    """Return the free memory in bytes of a CUDA device, or of this process on the CPU."""
    if device is not None and device.startswith("cuda"):
        torch = require("torch", "torch")
        if torch.cuda.is_available():  # otherwise torch raises its own error later
            target = torch.device(device)
            # memory that torch's allocator has cached and can reuse
            cached = torch.cuda.memory_reserved(target) - torch.cuda.memory_allocated(target)
            return int(torch.cuda.mem_get_info(target)[0] + cached)
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = min(free, int(line.split()[1]) * 1024)
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        free = min(free, int(text))
    return min(free, _left_to_this_process())


def _left_to_this_process() -> int:
    """Return the bytes that `ulimit -v` leaves; without a limit, more than any machine has."""
    try:
        import resource
    except ImportError:  # on Windows
        return 2**63
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return 2**63
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return max(0, most - taken)


def check_stacks(threads: int) -> None:
    """Refuse more threads than have room for their stacks in `ulimit -v`: OpenMP would abort the process."""
    room = _left_to_this_process() // _STACK
    if threads > max(1, room):
        raise ConfigError(f"threads: expected at most {max(1, room):,} within `ulimit -v`, got {threads:,}")


def check_fits(needed: float, alternative: str, device: str | None = None) -> None:
    """Raise an error if `needed` bytes are not available; `alternative` tells the user what to do instead.

    >>> check_fits(10**18, "take less")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: this needs about 1,000,000,000.0 GB and ... GB are free here; take less
    """
    if needed < SMALL:
        return
    free = available_bytes(device)
    if needed > _SHARE * free:
        raise ConfigError(
            f"this needs about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free "
            f"{'on ' + device if device and device.startswith('cuda') else 'here'}; {alternative}"
        )


def check_weights(numbers: float, device: Any = None) -> None:
    """Raise an error if this number of float32 weights does not fit on a device, by default torch's.

    On the meta device there is nothing to check.
    """
    needed = FLOAT * numbers
    if needed >= SMALL:
        torch = require("torch", "torch")
        target = torch.empty(0, device=device).device
        if target.type != "meta":
            check_fits(needed, "take a smaller hidden size, fewer layers or fewer symbols", str(target))


def check_slots(rows: int, slots: int, hidden_size: int, device: Any) -> None:
    """Refuse a bounded memory whose slots cannot fit.

    A slot has the state, its relevance, and its step of birth in 64 bits.
    """
    needed = FLOAT * rows * slots * (hidden_size + 3)
    if needed >= SMALL and device.type != "meta":
        check_fits(needed, "take a smaller memory (window, capacity) or fewer rows", str(device))
