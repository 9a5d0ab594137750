"""torch's recurrent layers with zeros beside their input: same output, same state, total gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plait.errors import ShapeError
from plait.gradients import probe
from plait.gradients.recurrent import TappedRun, run_tapped

DOUBLE = torch.float64


def no_tap(part: str, run: TappedRun) -> None:
    pass


def by_cells(module: nn.RNNBase, x: Tensor, loss: Any, suffix: str = "_l0") -> Tensor:
    """‖dL/dh_t‖ by plain autograd through a loop over cells, a zero added to every h_t; (T, B, F) in."""
    kinds = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}
    cell = kinds[type(module)](module.input_size, module.hidden_size, bias=module.bias, dtype=x.dtype)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(getattr(module, name + suffix))
    hidden = cell_state = torch.zeros(x.shape[1], module.hidden_size, dtype=x.dtype)
    steps = list(range(len(x)))[:: -1 if "reverse" in suffix else 1]
    leaves, outputs = {}, {}
    for t in steps:
        if isinstance(cell, nn.LSTMCell):
            hidden, cell_state = cell(x[t], (hidden, cell_state))
        else:
            hidden = cell(x[t], hidden)
        leaves[t] = torch.zeros_like(hidden, requires_grad=True)
        hidden = outputs[t] = hidden + leaves[t]
    stacked = torch.stack([outputs[t] for t in range(len(x))])
    found = torch.autograd.grad(loss(stacked), [leaves[t] for t in range(len(x))])
    return torch.stack(found).flatten(1).norm(dim=1)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bias", [True, False])
def test_total_gradients_equal_a_loop_over_cells(kind: type[nn.RNNBase], bias: bool) -> None:
    torch.manual_seed(2)
    module, x = kind(3, 5, bias=bias, dtype=DOUBLE), torch.randn(11, 2, 3, dtype=DOUBLE)

    def loss(states: Tensor) -> Tensor:
        return states[-1].square().sum() + 0.3 * states[4].sum() + states[6].exp().sum()

    found = probe(module, x, lambda output: loss(output[0])).layers[0].norms
    assert found == pytest.approx(by_cells(module, x, loss).tolist(), rel=1e-10)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_total_gradients_backwards_in_time(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(3)
    module, x = kind(3, 5, bidirectional=True, dtype=DOUBLE), torch.randn(9, 2, 3, dtype=DOUBLE)
    profile = probe(module, x, lambda output: output[0][4, :, 5:].square().sum())
    expected = by_cells(module, x, lambda states: states[4].square().sum(), "_l0_reverse")
    backward = next(layer for layer in profile.layers if "backward" in layer.name)
    assert backward.norms == pytest.approx(expected.tolist(), rel=1e-10)
    assert not backward.norms[:4].any()


@pytest.mark.slow  # a clock: other work on the machine moves it
def test_costs_at_most_three_times_a_plain_pass() -> None:
    """Best of six each, taken in turns; 38 times when it was run one step per call."""
    import time

    module, x = nn.LSTM(32, 64), torch.randn(2000, 4, 32)

    def plain() -> None:
        module.zero_grad()
        module(x)[0][-1].square().sum().backward()

    def probed() -> None:
        probe(module, x, lambda output: output[0][-1].square().sum())

    best = {plain: float("inf"), probed: float("inf")}
    for _ in range(6):
        for work in best:
            begin = time.process_time()  # of this process, whatever else runs on its core
            work()
            best[work] = min(best[work], time.process_time() - begin)
    assert best[probed] < 3 * best[plain]


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
        got, got_end = run_tapped(module, no_tap, x, state)
        assert (got - expected).abs().max() < 1e-12
        ends = (end, got_end) if kind is nn.LSTM else ((end,), (got_end,))
        for one, two in zip(*ends, strict=True):
            assert (one - two).abs().max() < 1e-12


def test_unbatched() -> None:
    module = nn.LSTM(3, 4, dtype=DOUBLE)
    x = torch.randn(6, 3, dtype=DOUBLE)
    (expected, end), (got, got_end) = module(x), run_tapped(module, no_tap, x)
    assert got.shape == expected.shape
    assert (got - expected).abs().max() < 1e-12
    assert (got_end[1] - end[1]).abs().max() < 1e-12
    again = run_tapped(module, no_tap, x, end)[0]
    assert (again - module(x, end)[0]).abs().max() < 1e-12


def test_gradients_reach_the_original_weights() -> None:
    module = nn.GRU(3, 4, num_layers=2, dtype=DOUBLE)
    x = torch.randn(6, 2, 3, dtype=DOUBLE)
    module(x)[0].square().sum().backward()
    expected = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    run_tapped(module, no_tap, x)[0].square().sum().backward()
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert (parameter.grad - gradient).abs().max() < 1e-12


def test_packed_sequences_are_refused() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 3)])
    with pytest.raises(ShapeError, match="unpack it first"):
        run_tapped(nn.GRU(3, 4), no_tap, packed)
