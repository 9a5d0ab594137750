"""Lemmas 7 and 8: terms by state sum to autograd's gradient; screening against full attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import plait
from plait.cells import ElmanCell
from plait.errors import ConfigError
from plait.gradients.screening import screening_quality
from plait.gradients.shares import state_shares
from plait.memory import FullMemory
from plait.models import SelfAttentive

DOUBLE = torch.float64


def everywhere(states: Tensor) -> Tensor:
    """A loss on all h_t, and so on all s_t that made them."""
    return (states.square() * torch.arange(1, len(states) + 1, dtype=states.dtype)[:, None]).sum()


def enlarge(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.7)


@pytest.mark.parametrize("name", ["MemRNN", "RelRNN", "RelLSTM", "RelGRU", "SAB"])
def test_terms_sum_to_the_parameter_gradient(name: str) -> None:
    model = getattr(plait, name)(3, 5, dtype=DOUBLE)
    enlarge(model)
    x = torch.randn(26, 2, 3, dtype=DOUBLE)
    shares = state_shares(model, x, everywhere, row=1)
    everywhere(model(x[:, 1:])[0][:, 0]).backward()
    for part, module in (
        (shares.attention, model.layers[0].scorer),
        (shares.recurrent, model.layers[0].cell),
    ):
        for key, parameter in module.named_parameters():
            scale = max(1.0, float(parameter.grad.abs().max()))
            assert (part[key].sum(0) - parameter.grad).abs().max() < 1e-12 * scale
    assert float(shares.attention_share().sum()) == pytest.approx(1)
    assert float(shares.recurrent_share().sum()) == pytest.approx(1)


def test_lemma_8_for_an_elman_cell() -> None:
    """Column × row with φ'(a_{t−1}); the printed φ'(a_t), or the missing transpose, is far off."""
    model = plait.MemRNN(3, 4, dtype=DOUBLE)
    enlarge(model)
    x = torch.randn(12, 1, 3, dtype=DOUBLE)
    cell = model.layers[0].cell
    nudge = torch.zeros(12, 1, 4, dtype=DOUBLE, requires_grad=True)
    output, _ = model(x, nudge=[nudge])
    everywhere(output[:, 0]).backward()
    by_state = nudge.grad[:, 0]
    states = output[:, 0].detach()
    mixed = torch.stack(
        [torch.zeros(4, dtype=DOUBLE), *(model(x[:m])[1].hidden[0, 0].detach() for m in range(1, 12))]
    )
    slope = 1 - states.square()  # φ'(a_{t−1}) = 1 − h_t² for tanh
    corrected = sum(torch.outer(mixed[t], by_state[t] * slope[t]) for t in range(12))
    printed = sum(torch.outer(mixed[t], by_state[t] * slope[t + 1]) for t in range(11))
    assert (corrected.T - cell.weight_hh.grad).abs().max() < 1e-12
    assert (printed.T - cell.weight_hh.grad).abs().max() > 0.1
    assert (corrected - cell.weight_hh.grad).abs().max() > 0.1
    shares = state_shares(model, x, everywhere)
    for t in (0, 5, 11):
        term = torch.outer(by_state[t] * slope[t], mixed[t])
        assert (shares.recurrent["weight_hh"][t] - term).abs().max() < 1e-12


def test_edge_contributes_in_proportion_to_its_weight() -> None:
    """Remark 6, edge level: biasing one state's energy down changes dL/dV by O(α)."""

    class Biased(nn.Module):
        def __init__(self, inner: nn.Module, bias: float) -> None:
            super().__init__()
            self.inner, self.bias, self.largest = inner, bias, 0.0

        def forward(self, query: Tensor, slots: Tensor) -> Tensor:
            energies = self.inner(query, slots).clone()
            if energies.shape[1] > 3:  # h_3 is not pushed below where it is the current state
                energies[:, 2] = energies[:, 2] + self.bias
                self.largest = max(self.largest, float(torch.softmax(energies.detach(), 1)[:, 2].max()))
            return energies

    base = SelfAttentive(ElmanCell(3, 4, dtype=DOUBLE), FullMemory(), 1.0)
    x = torch.randn(10, 1, 3, dtype=DOUBLE)

    def gradient(bias: float) -> tuple[Tensor, float]:
        scorer = Biased(base.scorer, bias)
        layer = SelfAttentive(base.cell, FullMemory(), 1.0, scorer=scorer)
        (found,) = torch.autograd.grad(layer(x).output[-1].square().sum(), base.cell.weight_hh)
        return found, scorer.largest

    limit, _ = gradient(-60.0)
    ratios = []
    for bias in (-3.0, -6.0, -9.0, -12.0):
        found, largest = gradient(bias)
        ratios.append(float((found - limit).norm()) / largest)
    assert ratios[-1] > 0
    assert ratios == pytest.approx([ratios[-1]] * 4, rel=0.1)


def test_states_that_are_attended_most_of_the_time() -> None:
    model = plait.RelRNN(3, 4, window=2, capacity=2, dtype=DOUBLE)
    x = torch.randn(30, 1, 3, dtype=DOUBLE)
    shares = state_shares(model, x, everywhere)
    _, _, (trace,) = model(x, need_trace=True)
    held = [set((row[row >= 0] + 1).tolist()) for row in trace.born[:, 0]]
    for i in range(1, 31):
        share = sum(i in held[t - 1] for t in range(i, 31)) / (31 - i)
        assert float(shares.presence[i - 1]) <= share + 1e-12
    assert set(shares.relevant(0.9)) <= {i for i in range(1, 31) if i in held[-1] or i > 28}
    assert float(shares.weights.max()) <= 1


def test_dropped_states_contribute_nothing_to_the_energies() -> None:
    """A state never attended to after it was dropped keeps only what it earned in the window."""
    model = plait.RelRNN(3, 4, window=2, capacity=1, dtype=DOUBLE)
    x = torch.randn(20, 1, 3, dtype=DOUBLE)
    shares = state_shares(model, x, lambda states: states[-1].square().sum())
    _, _, (trace,) = model(x, need_trace=True)
    never = [i for i in range(20) if not bool(((trace.born[:, 0] == i) & (trace.weights[:, 0] > 0)).any())]
    assert all(float(shares.attention_norm()[i]) == 0 for i in never)


def test_screening_against_full_attention() -> None:
    model = plait.RelRNN(3, 6, window=3, capacity=4, dtype=DOUBLE)
    enlarge(model)
    x = torch.randn(40, 2, 3, dtype=DOUBLE)
    quality = screening_quality(model, x, lambda states: states[-1].square().sum(), row=1)
    _, _, (trace,) = model(x, need_trace=True)
    assert set(quality.kept) == {int(b) + 1 for b in trace.born[-1, 1, 3:].tolist() if b >= 0}
    assert max(quality.kept) <= 37
    assert quality.candidates == 37
    hits = set(quality.kept) & set(quality.relevant)
    assert quality.precision == len(hits) / len(quality.kept)
    assert quality.recall == len(hits) / len(quality.relevant)
    assert 0 < quality.chance < 1
    # with room for everything, nothing relevant can be lost
    roomy = plait.RelRNN(3, 6, window=3, capacity=37, dtype=DOUBLE)
    roomy.load_state_dict(model.state_dict())
    assert screening_quality(roomy, x, lambda states: states[-1].square().sum(), row=1).recall == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [(plait.LSTM(3, 4), "beyond its window"), (plait.MemRNN(3, 4), "beyond its window")],
)
def test_screening_needs_a_bounded_memory(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        screening_quality(model, torch.randn(5, 1, 3), everywhere)


def test_bad_arguments() -> None:
    with pytest.raises(ConfigError, match="no memory"):
        state_shares(plait.RNN(3, 4), torch.randn(5, 1, 3), everywhere)
    model, x = plait.RelRNN(3, 4), torch.randn(5, 1, 3)
    with pytest.raises(ConfigError, match="does not depend"):
        state_shares(model, x, lambda states: torch.zeros((), requires_grad=True) * 1)
    with pytest.raises(ConfigError, match="does not depend"):
        state_shares(model, x, lambda states: torch.zeros(()))
    still = state_shares(model, x, lambda states: 0 * states.sum())
    with pytest.raises(ConfigError, match="gradient is zero"):
        still.attention_share()
