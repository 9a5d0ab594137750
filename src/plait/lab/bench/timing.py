"""Times that can be compared on a machine with other load.

The functions to be timed take turns: A, B, C, A, B, C, … Other load of a few seconds then affects all of
them, and a ratio is formed within each round before the median is taken.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from plait.errors import check_min
from plait.lab.training.process import check_threads
from plait.ops.scan.cuda_graph import uncollected

__all__ = ["Times", "limit_threads", "seconds_per_call", "take_turns"]

Step = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds per call, one value for each round.

    >>> times = Times((4.0, 1.0, 2.0, 3.0, 10.0))
    >>> times.median, times.spread
    (3.0, 2.0)
    >>> times.ratio_to(Times((2.0, 1.0, 1.0, 1.0, 5.0)))
    2.0
    """

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """The interquartile range of the rounds."""
        if len(self.rounds) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return upper - lower

    def ratio_to(self, other: Times) -> float:
        """Return the median over the rounds of the ratio within a round."""
        return statistics.median(a / b for a, b in zip(self.rounds, other.rounds, strict=False))


def take_turns(
    steps: Mapping[str, Step],
    device: torch.device,
    rounds: int = 20,
    warm_up: int = 3,
    turn_seconds: float = 0.02,
    most_seconds: float = 10.0,
) -> dict[str, Times]:
    """Time every step in every round, in turn.

    Args:
        steps: functions to time, by name.
        device: device on which they run.
        rounds: number of turns of each.
        warm_up: calls of each before the first round, fewer if they take longer than `most_seconds`.
        turn_seconds: length of a turn, in which the step is repeated; the first call of a turn is not timed,
            since the caches still hold another step's data.
        most_seconds: longest total time of a step; a slower one has fewer rounds, at least three.
    """
    check_min(1, rounds=rounds, warm_up=warm_up)
    calls, lasts = {}, {}
    for name, step in steps.items():
        seconds = _warm(step, device, warm_up, most_seconds)
        calls[name] = max(1, round(turn_seconds / seconds))
        # a turn is one call that is not timed, and `calls` that are
        lasts[name] = max(min(3, rounds), int(most_seconds / (seconds * (1 + calls[name]))))
    seconds_of: dict[str, list[float]] = {name: [] for name in steps}
    with uncollected():
        for index in range(rounds):
            for name, step in steps.items():
                if index < lasts[name]:
                    step()
                    seconds_of[name].append(seconds_per_call(step, device, calls[name]))
    return {name: Times(tuple(taken)) for name, taken in seconds_of.items()}


def _warm(step: Step, device: torch.device, calls: int, most_seconds: float) -> float:
    """Warm up, then return the seconds of one more call."""
    start = time.perf_counter()
    for _ in range(calls):
        seconds_per_call(step, device)
        if time.perf_counter() - start > most_seconds:
            break
    return seconds_per_call(step, device)


def seconds_per_call(step: Step, device: torch.device, calls: int = 1) -> float:
    """Return the mean wall time of `calls` calls in a row, by CUDA events on a GPU.

    >>> seconds_per_call(lambda: time.sleep(0.01), torch.device("cpu"), 2) > 0.009
    True
    """
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        begin.record()
        for _ in range(calls):
            step()
        end.record()
        end.synchronize()
        return max(float(begin.elapsed_time(end)), 1e-6) / 1e3 / calls
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls


@contextlib.contextmanager
def limit_threads(number: int | None) -> Iterator[int]:
    """Limit torch to `number` threads (None: no limit), and yield their number."""
    before = torch.get_num_threads()
    if number is not None:
        check_threads(number)
        torch.set_num_threads(number)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
