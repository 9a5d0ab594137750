"""A trace step by step: states in the window, states kept beyond it, additions and evictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "memory_timeline"]

MOST = 64  # states shown per step, those of the largest weight; only unbounded memories hold more

Ints = NDArray[np.int64]


def memory_timeline(
    born: Ints, weights: NDArray[Any], relevance: NDArray[Any], window: int | None
) -> list[dict[str, Any]]:
    """Return the contents of the memory at every step; states are named by their step, counted from 1.

    `states` is a list of [state, weight, relevance] in the order of time; a state is in the window if it is
    among the last `window`, and `kept` lists the others. `added` came at this step, `retained` have left the
    window and are kept from now on, `evicted` went since the step before; `count` is the number of all.

    Args:
        born: (T, κ), the step, counted from 0, of the state in a slot; −1 for an empty slot.
        weights: (T, κ).
        relevance: (T, κ).
        window: None for a model without a window: all its states count as kept.

    >>> born = np.array([[0, -1], [0, 1], [2, 1]])
    >>> timeline = memory_timeline(born, np.ones((3, 2)), np.zeros((3, 2)), window=1)
    >>> [(step["kept"], step["added"], step["retained"], step["evicted"]) for step in timeline]
    [([], [1], [], []), ([1], [2], [1], []), ([2], [3], [2], [1])]
    """
    timeline: list[dict[str, Any]] = []
    before: set[int] = set()
    kept_before: set[int] = set()
    for step, slot_steps in enumerate(born):
        slots = np.flatnonzero(slot_steps >= 0)
        present = {int(state) + 1 for state in slot_steps[slots]}
        kept = {state for state in present if window is None or state <= step + 1 - window}
        added = sorted(present - before)
        timeline.append(
            {
                "states": _states(slot_steps, weights[step], relevance[step], slots),
                "count": len(present),
                "kept": _latest(kept),
                "added": added,
                "retained": [] if window is None else sorted((kept - kept_before) & before),
                "evicted": _latest(before - present),
            }
        )
        before, kept_before = present, kept
    return timeline


def _states(born: Ints, weights: NDArray[Any], relevance: NDArray[Any], slots: Ints) -> list[list[float]]:
    if slots.size > MOST:
        slots = slots[np.argsort(-weights[slots], kind="stable")[:MOST]]
    slots = slots[np.argsort(born[slots], kind="stable")]
    return [[int(born[s]) + 1, round(float(weights[s]), 4), round(float(relevance[s]), 4)] for s in slots]


def _latest(states: set[int]) -> Sequence[int]:
    """Return the states in order, only the latest if there are many."""
    return sorted(states)[-MOST:]
