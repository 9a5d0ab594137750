"""`total_derivative` equals autograd for every cell times memory, and for every named model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import plait
from plait.cells import ElmanCell, GRUCell, LSTMCell
from plait.errors import ConfigError, ShapeError
from plait.gradients.paths import dynamics, path_breakdown, total_derivative
from plait.memory import (
    FullMemory,
    NoMemory,
    RelevancyMemory,
    TopKMemory,
    UniformMemory,
    WindowMemory,
)
from plait.models import MODELS, SelfAttentive
from plait.ops.walk import LayerState

DOUBLE = torch.float64
CELLS = {
    "tanh": lambda: ElmanCell(3, 5, dtype=DOUBLE),
    "relu": lambda: ElmanCell(3, 5, nonlinearity="relu", dtype=DOUBLE),
    "modrelu": lambda: ElmanCell(3, 5, nonlinearity="modrelu", dtype=DOUBLE),
    "lstm": lambda: LSTMCell(3, 5, dtype=DOUBLE),
    "gru": lambda: GRUCell(3, 5, dtype=DOUBLE),
}
MEMORIES = [
    NoMemory(),
    FullMemory(),
    WindowMemory(3),
    RelevancyMemory(3, 2),
    UniformMemory(2, 3, 2),
    TopKMemory(2, 3),
]


def by_nudge(layer: SelfAttentive, x: Tensor, t: int, end: int, row: int) -> Tensor:
    """ds_T/dh_t by autograd: s_T is the state after T steps, a zero added to h_t the leaf."""

    def last(leaf: Tensor) -> Tensor:
        nudge = torch.zeros(end, x.shape[1], leaf.shape[0], dtype=x.dtype)
        here = nudge.clone()
        here[t - 1, row] = 1.0
        state: LayerState = layer(x[:end], nudge=here * leaf).state
        return state.hidden[row]

    return torch.autograd.functional.jacobian(last, torch.zeros(layer.cell.hidden_size, dtype=x.dtype))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def enlarge(module: nn.Module, factor: float = 2.0) -> None:
    """Weights large enough that attention is far from uniform."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(factor)


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
@pytest.mark.parametrize("cell", list(CELLS))
def test_every_cell_and_memory(cell: str, memory: Any) -> None:
    layer = SelfAttentive(CELLS[cell](), memory, 0.5)
    enlarge(layer, 1.5)
    x = torch.randn(12, 2, 3, dtype=DOUBLE)
    for t, end in ((1, 12), (4, 11), (6, 6)):
        expected = by_nudge(layer, x, t, end, row=1)
        got = total_derivative(layer, x, t, end, row=1)
        assert (got - expected).abs().max() < 1e-10
        assert expected.abs().max() > 0 or isinstance(memory, NoMemory)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "transformer"])
def test_every_named_model_and_layer(name: str) -> None:
    model = MODELS[name](3, 4, num_layers=2, dtype=DOUBLE)
    enlarge(model)
    x = torch.randn(25, 1, 3, dtype=DOUBLE)
    for index, below in enumerate((x, model._layers()[0](x).output.detach())):
        expected = by_nudge(model._layers()[index], below, 2, 24, 0)
        got = total_derivative(model, x, 2, 24, layer=index)
        # of what is there: an enlarged matrix whose φ has slope 1 grows by its factor every step
        assert (got - expected).abs().max() < 1e-10 * max(1.0, float(expected.abs().max()))


def test_any_mix_any_energy_and_batch_first() -> None:
    class Dot(nn.Module):
        def forward(self, query: Tensor, slots: Tensor) -> Tensor:
            return (slots @ query.unsqueeze(-1)).squeeze(-1)

    layer = SelfAttentive(CELLS["gru"](), WindowMemory(4), lambda h, c: torch.tanh(h + 2 * c), scorer=Dot())
    x = torch.randn(9, 1, 3, dtype=DOUBLE)
    expected = by_nudge(layer, x, 2, 9, 0)
    assert (total_derivative(layer, x, 2, 9) - expected).abs().max() < 1e-10
    model = plait.Recurrent([layer], batch_first=True)
    assert (total_derivative(model, x.transpose(0, 1), 2, 9) - expected).abs().max() < 1e-10


def test_truncated_steps_pass_nothing() -> None:
    layer = SelfAttentive(CELLS["lstm"](), TopKMemory(2, 2), 0.5, truncate=3)
    enlarge(layer)
    x = torch.randn(10, 1, 3, dtype=DOUBLE)
    expected = by_nudge(layer, x, 2, 9, 0)
    assert (total_derivative(layer, x, 2, 9) - expected).abs().max() < 1e-10
    free = SelfAttentive(layer.cell, TopKMemory(2, 2), 0.5, scorer=layer.scorer)
    assert (by_nudge(free, x, 2, 9, 0) - expected).abs().max() > 1e-4


def test_counterexample_to_theorem_1_in_the_full_model() -> None:
    """v_a = 0, linear recurrence, V = −I/2: T‖ds_T/dh_1‖ falls; with V = I/4 it rises."""
    for diagonal, expected in (
        (-0.5, [0.1463, 0.1175, 0.0937, 0.0745]),
        (0.25, [6.96, 8.76, 11.0, 13.9]),
    ):
        layer = SelfAttentive(ElmanCell(1, 2, nonlinearity="identity", dtype=DOUBLE), FullMemory(), 1.0)
        with torch.no_grad():
            layer.cell.weight_hh.copy_(diagonal * torch.eye(2))
            layer.scorer.energy.zero_()
        x = torch.randn(160, 1, 1, dtype=DOUBLE)
        scaled = [end * float(by_nudge(layer, x, 1, end, 0).norm()) for end in (20, 40, 80, 160)]
        assert scaled == pytest.approx(expected, rel=5e-3)
        assert 20 * float(total_derivative(layer, x, 1, 20).norm()) == pytest.approx(scaled[0], rel=1e-10)


def test_polynomial_in_v_from_the_model() -> None:
    """(121): p(V) with the exact coefficients, n = 5, T = 24, γ = 1 and the rule for γ = 1/2."""
    from plait.gradients.uniform import chi

    coefficients = [float(c) for c in chi(2, 22)[22]]
    for mix in (1.0, 0.5):
        layer = SelfAttentive(ElmanCell(2, 5, nonlinearity="identity", dtype=DOUBLE), FullMemory(), mix)
        with torch.no_grad():
            layer.scorer.energy.zero_()
        matrix = mix * layer.cell.weight_hh.detach()
        expected = mix * sum(c * torch.linalg.matrix_power(matrix, s) for s, c in enumerate(coefficients))
        got = by_nudge(layer, torch.randn(24, 1, 2, dtype=DOUBLE), 2, 24, 0)
        assert (got - expected).abs().max() < 1e-10


def test_energy_scale_decides_how_good_the_closed_form_is() -> None:
    """Remark 8: the closed form is exact for v_a = 0 and drifts away as v_a grows."""
    from plait.gradients.uniform import chi

    coefficients = [float(c) for c in chi(1, 19)[19]]
    errors = []
    for scale in (0.0, 0.01, 0.1, 1.0):
        torch.manual_seed(0)
        layer = SelfAttentive(ElmanCell(2, 4, nonlinearity="identity", dtype=DOUBLE), FullMemory(), 1.0)
        with torch.no_grad():
            layer.scorer.energy.mul_(scale)
            layer.cell.weight_hh.mul_(0.7)
        matrix = layer.cell.weight_hh.detach()
        closed = sum(c * torch.linalg.matrix_power(matrix, s) for s, c in enumerate(coefficients))
        got = by_nudge(layer, torch.randn(20, 1, 2, dtype=DOUBLE), 1, 20, 0)
        errors.append(float((got - closed).norm() / got.norm()))
    assert errors[0] < 1e-12
    assert errors[0] < errors[1] < errors[2] < errors[3]
    assert errors[1] < 0.05 < errors[3]


def test_breakdown_of_a_model() -> None:
    model = plait.RelLSTM(3, 4, window=3, capacity=2, dtype=DOUBLE)
    x = torch.randn(14, 1, 3, dtype=DOUBLE)
    parts = path_breakdown(model, x, 2, 13)
    assert (parts.total - total_derivative(model, x, 2, 13)).abs().max() < 1e-12
    assert parts.attention_share + parts.recurrent_share == pytest.approx(1)
    plain = path_breakdown(plait.LSTM(3, 4, dtype=DOUBLE), x, 2, 13)
    assert plain.attention_share == 0
    assert math.isclose(plain.recurrent_share, 1)


def test_replayed_trajectory_is_the_models() -> None:
    model = plait.RelGRU(3, 4, window=3, capacity=2, dtype=DOUBLE)
    x = torch.randn(20, 2, 3, dtype=DOUBLE)
    system, size = dynamics(model, x, row=1)
    assert (system.run().states[:, :size] - model(x)[0][:, 1]).abs().max() < 1e-14


def test_bad_arguments() -> None:
    model, x = plait.RelRNN(3, 4, dtype=DOUBLE), torch.randn(6, 2, 3, dtype=DOUBLE)
    with pytest.raises(ConfigError, match=r"plait\.gradients\.probe measures any module"):
        total_derivative(nn.LSTM(3, 4), x, 1, 2)
    with pytest.raises(ConfigError, match="1 <= t <= T <= 6, got t = 5, T = 3"):
        total_derivative(model, x, 5, 3)
    with pytest.raises(ConfigError, match=r"row: expected 0\.\.1"):
        total_derivative(model, x, 1, 2, row=2)
    with pytest.raises(ConfigError, match="layer: expected one of 1"):
        total_derivative(model, x, 1, 2, layer=1)
    with pytest.raises(ShapeError, match="three axes"):
        total_derivative(model, x[:, 0], 1, 2)
