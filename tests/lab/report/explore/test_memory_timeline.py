"""What came and what went, against sets counted step by step."""

import numpy as np
from hypothesis import given, strategies as st

from plait.lab.report.explore.memory_timeline import MOST, memory_timeline


@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 25), st.randoms(use_true_random=False))
def test_every_state_is_accounted_for(window, capacity, steps, draw):
    """A memory that keeps at random what leaves its window: sets before and after explain all signs."""
    kept, held = [], []
    for t in range(steps):
        leaving = t - window
        if leaving >= 0 and capacity and draw.random() < 0.6:
            if len(kept) == capacity:
                kept.pop(draw.randrange(capacity))
            kept.append(leaving)
        held.append(([*range(max(0, t - window + 1), t + 1)], list(kept)))
    born = np.full((steps, window + capacity), -1)
    for t, (near, far) in enumerate(held):
        born[t, : len(near)] = near
        born[t, window : window + len(far)] = far
    found = memory_timeline(born, np.ones(born.shape), np.zeros(born.shape), window)
    before: set[int] = set()
    for t, (near, far) in enumerate(held):
        step, there = found[t], {state + 1 for state in [*near, *far]}
        assert [state for state, _, _ in step["states"]] == sorted(there)
        assert step["kept"] == sorted(state + 1 for state in far)
        assert step["added"] == [t + 1]
        assert step["evicted"] == sorted(before - there)
        gone = t - window + 1  # the state, counted from 1, that leaves the window at this step
        assert step["retained"] == ([gone] if gone - 1 in far else [])
        before = there


def test_weights_follow_their_states():
    born = np.array([[2, 0, -1, 1]])
    weights, relevance = np.array([[0.5, 0.25, 0.9, 0.125]]), np.array([[1.0, 2.0, 9.0, 3.0]])
    (step,) = memory_timeline(born, weights, relevance, None)
    assert step["states"] == [[1, 0.25, 2.0], [2, 0.125, 3.0], [3, 0.5, 1.0]]
    assert step["kept"] == [1, 2, 3], "without a window all is kept"
    assert step["retained"] == []


def test_of_many_states_the_largest_weights_are_shown():
    count = MOST + 10
    born = np.arange(count)[None]
    weights = np.linspace(1, 0, count)[None]
    (step,) = memory_timeline(born, weights, weights, None)
    assert [state for state, _, _ in step["states"]] == list(range(1, MOST + 1))
    assert step["count"] == count
