"""torch's recurrent layers with zeros beside their input: same output, same state, total gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("has_state", [False, True])
def test_packed_sequences_run_packed(kind: type[nn.RNNBase], bidirectional: bool, has_state: bool) -> None:
    """Rows of several lengths in any order: the same outputs, last states and gradients by the input."""
    module = kind(3, 4, num_layers=2, bidirectional=bidirectional, dtype=DOUBLE)
    x, lengths = torch.randn(7, 3, 3, dtype=DOUBLE), torch.tensor([4, 7, 5])
    state = torch.randn(4 if bidirectional else 2, 3, 4, dtype=DOUBLE) if has_state else None
    begin = (state, state + 1) if has_state and kind is nn.LSTM else state
    results = []
    for run in (module, lambda *args: run_tapped(module, no_tap, *args)):
        leaf = x.clone().requires_grad_(True)
        packed = nn.utils.rnn.pack_padded_sequence(leaf, lengths, enforce_sorted=False)
        output, after = run(packed, begin)
        padded, sizes = nn.utils.rnn.pad_packed_sequence(output)
        states = after if isinstance(after, tuple) else (after,)
        value = padded.square().sum() + sum((n + 1) * s.sin().sum() for n, s in enumerate(states))
        (gradient,) = torch.autograd.grad(value, leaf)
        results.append((padded, sizes, gradient, *states))
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() < 1e-12


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_total_gradients_of_packed_rows_are_those_of_each_row(kind: type[nn.RNNBase]) -> None:
    module = kind(3, 4, bidirectional=True, dtype=DOUBLE)
    x, lengths = torch.randn(6, 2, 3, dtype=DOUBLE), (6, 4)

    def norms(part: Tensor, size: int) -> list[NDArray[np.float64]]:
        profile = probe(module, part, lambda output: output[0].sin().sum())
        return [layer.norms[:size] ** 2 for layer in profile.layers]

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = module

        def forward(self, padded: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(padded, torch.tensor(lengths))
            return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])[0]

    together = probe(Packed(), x, lambda output: output.sin().sum())
    rows = [norms(x[:size, [row]], size) for row, size in enumerate(lengths)]
    for layer, first, second in zip(together.layers, *rows, strict=True):
        expected = first + np.pad(second, (0, 2))
        assert layer.norms**2 == pytest.approx(expected, rel=1e-9)
