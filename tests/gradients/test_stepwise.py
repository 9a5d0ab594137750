"""torch's recurrent layers run one step per call: same output, same state, total gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.gradients.stepwise import run_stepwise

DOUBLE = torch.float64


def no_tap(part: str, steps: int, rows: int, width: int) -> Tensor:
    return torch.zeros(steps, rows, width, dtype=DOUBLE)


COMMON = [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}]
CASES = [(kind, options) for kind in (nn.RNN, nn.LSTM, nn.GRU) for options in COMMON]
CASES += [(nn.RNN, {"nonlinearity": "relu"}), (nn.LSTM, {"proj_size": 2})]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_equals_the_fused_layer(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    module = kind(3, 4, dtype=DOUBLE, **options)
    x = torch.randn(5, 7, 3, dtype=DOUBLE)
    rows = 5 if module.batch_first else 7
    places = module.num_layers * (2 if module.bidirectional else 1)
    hidden = torch.randn(places, rows, options.get("proj_size", 4), dtype=DOUBLE)
    begin: Any = (hidden, torch.randn(places, rows, 4, dtype=DOUBLE)) if kind is nn.LSTM else hidden
    for state in (None, begin):
        expected, end = module(x, state)
        got, got_end = run_stepwise(module, no_tap, x, state)
        assert (got - expected).abs().max() < 1e-12
        ends = (end, got_end) if kind is nn.LSTM else ((end,), (got_end,))
        for one, two in zip(*ends, strict=True):
            assert (one - two).abs().max() < 1e-12


def test_unbatched() -> None:
    module = nn.LSTM(3, 4, dtype=DOUBLE)
    x = torch.randn(6, 3, dtype=DOUBLE)
    (expected, end), (got, got_end) = module(x), run_stepwise(module, no_tap, x)
    assert got.shape == expected.shape
    assert (got - expected).abs().max() < 1e-12
    assert (got_end[1] - end[1]).abs().max() < 1e-12
    again = run_stepwise(module, no_tap, x, end)[0]
    assert (again - module(x, end)[0]).abs().max() < 1e-12


def test_gradients_reach_the_original_weights() -> None:
    module = nn.GRU(3, 4, num_layers=2, dtype=DOUBLE)
    x = torch.randn(6, 2, 3, dtype=DOUBLE)
    module(x)[0].square().sum().backward()
    expected = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    run_stepwise(module, no_tap, x)[0].square().sum().backward()
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert (parameter.grad - gradient).abs().max() < 1e-12


def test_packed_sequences_are_refused() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 3)])
    with pytest.raises(ShapeError, match="unpack it first"):
        run_stepwise(nn.GRU(3, 4), no_tap, packed)
