"""Will it fit? What cannot is refused by an estimate, before anything is allocated.

The rooms say what they need, at least, and what to change; here it is held against what there is.
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

FLOAT = 4  # bytes of a number in float32
SMALL = 1e8  # bytes nobody needs to ask for
_STACK = 8 * 2**20  # bytes of address space that a thread's stack takes
_SHARE = 0.9  # of what is free: the rest is for the interpreter, the BLAS and the neighbours


def available_bytes(device: str | None = None) -> int:
    """Free memory where it is to live: the card's, or what this process may still take."""
    if device is not None and device.startswith("cuda"):
        torch = require("torch", "torch")
        if torch.cuda.is_available():  # where it is not, the device's own error says so
            place = torch.device(device)
            # what torch holds and does not use, it uses again
            kept = torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
            return int(torch.cuda.mem_get_info(place)[0] + kept)
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
    """What `ulimit -v` leaves; without such a limit, more than there is."""
    try:
        import resource
    except ImportError:  # Windows has none
        return 2**63
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return 2**63
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return max(0, most - taken)


def check_stacks(threads: int) -> None:
    """Refuse threads for whose stacks `ulimit -v` leaves no room: OpenMP ends the process that tries them."""
    room = _left_to_this_process() // _STACK
    if threads > max(1, room):
        raise ConfigError(f"threads: expected at most {max(1, room):,} within `ulimit -v`, got {threads:,}")


def check_fits(needed: float, alternative: str, device: str | None = None) -> None:
    """Raise before allocation when `needed` bytes are not to be had; `alternative` is what to do instead.

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
    """The same for so many weights in float32, wherever torch would put them; of a model that is only planned
    (torch's device meta) there is nothing to fit."""
    needed = FLOAT * numbers
    if needed >= SMALL:
        torch = require("torch", "torch")
        place = torch.empty(0, device=device).device
        if place.type != "meta":
            check_fits(needed, "take a smaller hidden size, fewer layers or fewer symbols", str(place))


def check_slots(rows: int, slots: int, hidden_size: int, device: Any) -> None:
    """Refuse a bounded memory whose slots cannot fit: of each the state, its relevance and, in 64 bits, the
    step it is from."""
    needed = FLOAT * rows * slots * (hidden_size + 3)
    if needed >= SMALL and device.type != "meta":
        check_fits(needed, "take a smaller memory (window, capacity) or fewer rows", str(device))
