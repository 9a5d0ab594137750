"""How much memory a training step needs, and how much a process holds.

The peak is that of torch's own allocator, on the GPU and on the CPU alike: tensors, exactly and
reproducibly. On the CPU it is read off the profiler's record of every allocation. Scratch memory that a
kernel takes from elsewhere (a few vectors per thread in the C++ scan) is not in it; what is asked
for and never becomes resident is, and that makes `torch.nn.LSTM` on the CPU look larger than it is.
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
    """The most memory held at once during a training step, in MB (10⁶ bytes).

    Everything since before `build` counts: weights, inputs, what is saved for the backward pass, gradients.
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
    # else the profiler's library reports its own start and stop on standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step = build()
        step()
        with record_function(_MEASURED):
            step()
    assert record.profiler is not None
    assert record.profiler.kineto_results is not None
    events = record.profiler.kineto_results.events()
    start = next(event.start_ns() for event in events if event.name() == _MEASURED)
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            if event.start_ns() >= start:
                peak = max(peak, held)
    return peak


def megabytes_in_use(device: torch.device) -> float:
    """What is held now, in MB: by tensors on a GPU, by the whole process (resident) on the CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 1e6
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise PlaitError(f"the process's memory cannot be read here ({error}); it needs Linux") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
