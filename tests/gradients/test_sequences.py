"""Positions of a layer's states against positions of the model's input."""

from __future__ import annotations

import pytest
import torch

from plait.gradients.sequences import goes_on, source_of, span_of


def test_a_call_spans_the_positions_it_was_computed_from() -> None:
    x = torch.randn(1, 9, 3, requires_grad=True)
    before, after = (span_of(x[:, part] * 2, 1, {"x": x}) for part in (slice(0, 4), slice(4, 9)))
    assert before["x", 1] == (0, 3)
    assert after["x", 1] == (4, 8)
    assert goes_on(before, after)
    assert not goes_on(after, before)
    assert span_of(x.detach(), 1, {"x": x}) == {}


@pytest.mark.parametrize("padding", [(0, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_source_of_padded_states(padding: tuple[int, int], is_reversed: bool) -> None:
    x = torch.randn(1, 12, 3, requires_grad=True)
    before, after = (torch.zeros(1, count, 3) for count in padding)
    states = torch.cat([before, x.flip(1) if is_reversed else 2 * x, after], dim=1)
    source = source_of(states, 1, padding, {"x": x})
    assert source is not None
    assert (source.name, source.time_axis, source.is_reversed) == ("x", 1, is_reversed)
