"""Will an exact rank fit? Estimated and refused before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from plait.depthwidth.echelon import block_rows
from plait.errors import ConfigError, require

__all__ = ["available_bytes", "check_fits", "elimination_bytes"]

_SHARE = 0.9  # of what is free: the rest is for the interpreter, the BLAS and the neighbours


def elimination_bytes(rank: int, columns: int, width: int, letters: int, prime: int) -> int:
    """Peak bytes of one streamed elimination.

    Pivot rows right of their pivots (rank · (columns − rank/2) numbers), three blocks of rows, and each
    letter's matrices for every template.

    >>> elimination_bytes(11_645, 11_653, 16, 4, 8388593) < 4e9
    True
    """
    pivots = rank * columns - rank * rank // 2
    blocks = 3 * block_rows(prime) * columns
    return 8 * (pivots + blocks + (letters + 2) * columns * width * width)


def available_bytes(device: str | None) -> int:
    """Free memory where the matrix is to live: the card's, or what this process may still take."""
    if device is not None and device.startswith("cuda"):
        torch = require("torch", "torch")
        free: int = torch.cuda.mem_get_info(torch.device(device))[0]
        return free
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = min(free, int(line.split()[1]) * 1024)
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        free = min(free, int(text))
    return free


def check_fits(needed: int, alternative: str, device: str | None) -> None:
    """Raise before allocation when `needed` bytes are not to be had."""
    free = available_bytes(device)
    if needed > _SHARE * free:
        raise ConfigError(
            f"this needs about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free "
            f"{'on ' + device if device else 'here'}; {alternative}"
        )
