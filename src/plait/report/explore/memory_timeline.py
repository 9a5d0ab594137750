"""A trace moment by moment: what is in the window, what is kept beyond it, what came and what went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "memory_timeline"]

MOST = 64  # states shown of a step: those of the largest weight; only memories without bound hold more

Ints = NDArray[np.int64]


def memory_timeline(
    born: Ints, weights: NDArray[Any], relevance: NDArray[Any], window: int | None
) -> list[dict[str, Any]]:
    """For every step what its memory held; states are named by the step that made them, counted from 1.

    `states` is a list of [state, weight, relevance] in the order of time; a state is in the window if it is
    among the last `window`, and `kept` lists the others. `arrived` came with this step, `moved` left the
    window and is kept from now on, `lost` was there one step before and is not any more.

    Args:
        born: (T, κ), the step counted from 0 whose state a slot holds, −1 where it is empty.
        weights: (T, κ).
        relevance: (T, κ).
        window: None where a model has none: all it holds is kept.

    >>> born = np.array([[0, -1], [0, 1], [2, 1]])
    >>> found = memory_timeline(born, np.ones((3, 2)), np.zeros((3, 2)), window=1)
    >>> [(step["kept"], step["arrived"], step["moved"], step["lost"]) for step in found]
    [([], [1], [], []), ([1], [2], [1], []), ([2], [3], [2], [1])]
    """
    found: list[dict[str, Any]] = []
    before: set[int] = set()
    kept_before: set[int] = set()
    for step, held in enumerate(born):
        slots = np.flatnonzero(held >= 0)
        there = {int(state) + 1 for state in held[slots]}
        kept = {state for state in there if window is None or state <= step + 1 - window}
        arrived = sorted(there - before)
        found.append({
            "states": _states(held, weights[step], relevance[step], slots),
            "held": len(there),
            "kept": _shown(kept),
            "arrived": arrived,
            "moved": [] if window is None else sorted((kept - kept_before) & before),
            "lost": _shown(before - there),
        })  # fmt: skip
        before, kept_before = there, kept
    return found


def _states(held: Ints, weights: NDArray[Any], relevance: NDArray[Any], slots: Ints) -> list[list[float]]:
    if slots.size > MOST:
        slots = slots[np.argsort(-weights[slots], kind="stable")[:MOST]]
    slots = slots[np.argsort(held[slots], kind="stable")]
    return [[int(held[s]) + 1, round(float(weights[s]), 4), round(float(relevance[s]), 4)] for s in slots]


def _shown(states: set[int]) -> Sequence[int]:
    """The latest of them, if there are many."""
    return sorted(states)[-MOST:]
