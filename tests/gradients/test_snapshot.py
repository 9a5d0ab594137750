"""Snapshots of attention, on models whose answer is known."""

from __future__ import annotations

import pytest
import torch

import plait
from plait.gradients.snapshot import snapshot


def test_even_attention_reads_everything() -> None:
    torch.manual_seed(0)
    model = plait.MemRNN(2, 3)
    with torch.no_grad():
        model.layers[0].scorer.energy.zero_()
    seen = snapshot(model, torch.randn(11, 2, 2), lambda h: h[-1].sum())
    assert seen.evenness == pytest.approx(1, abs=1e-6)
    assert seen.kappa == seen.readable == 6.0  # 1 to 11 states
    assert seen.depth == 0
    assert seen.relevant == tuple(range(1, 12))
    assert (seen.relevant_share, seen.gradient_share) == (1.0, 1.0)


def test_sharp_attention_reads_one() -> None:
    torch.manual_seed(0)
    model, x = plait.MemRNN(1, 2), torch.full((20, 1, 1), -3.0)
    x[0] = 3.0
    with torch.no_grad():
        model.layers[0].scorer.energy.mul_(200)
    seen = snapshot(model, x, lambda h: h[-1].square().sum())
    assert seen.kappa < 0.7 * seen.readable
    assert seen.evenness < 0.7
    assert 0 < len(seen.relevant) < 20
    assert seen.gradient_share >= 0
