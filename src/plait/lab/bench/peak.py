"""Peak memory of a training step, and memory in use by a process.

The peak is that of torch's allocator, exact and reproducible; on the CPU it comes from the profiler's record
of every allocation. Scratch memory that a kernel allocates otherwise (a few vectors per thread in the C++
scan) is not counted. Memory that is allocated and never touched is, which makes `torch.nn.LSTM` on the CPU
look larger than it is.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from plait.errors import PlaitError

__all__ = ["megabytes_in_use", "peak_megabytes"]

Step = Callable[[], object]
_MEASURED = "plait.lab.bench.measured"


def peak_megabytes(build: Callable[[], Step], device: torch.device) -> float:
    """Return the peak memory of a training step in MB (10⁶ bytes).

    All tensors allocated since before `build` count: weights, inputs, saved activations, gradients.
    The second call of the built step is measured.

    >>> def build():
    ...     kept = torch.zeros(250_000)
    ...     return lambda: kept + 1
    >>> round(peak_megabytes(build, torch.device("cpu")), 2)
    2.0
    """
    gc.collect()
    return (_peak_on_gpu(build, device) if device.type == "cuda" else _peak_on_cpu(build)) / 1e6


def _peak_on_gpu(build: Callable[[], Step], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    step = build()
    step()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_on_cpu(build: Callable[[], Step]) -> int:
    # otherwise the profiler's library logs its start and stop to standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    # torch 2.11 warns at the end of a profile unless it accumulates events
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        step = build()
        step()
        with record_function(_MEASURED):
            step()
    assert record.profiler is not None
    assert record.profiler.kineto_results is not None
    events = record.profiler.kineto_results.events()
    start = next(event.start_ns() for event in events if event.name() == _MEASURED)
    in_use = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            in_use += event.nbytes()
            if event.start_ns() >= start:
                peak = max(peak, in_use)
    return peak


def megabytes_in_use(device: torch.device) -> float:
    """Return the memory in use in MB: of all tensors on a GPU, of the resident process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 1e6
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise PlaitError(f"the process's memory cannot be read here ({error}); it needs Linux") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
