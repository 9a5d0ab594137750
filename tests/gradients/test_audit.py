"""The audit: support, bound and measured norm, on models where the theorem is exact and where not."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import plait
from plait.errors import ConfigError
from plait.gradients.audit import audit
from plait.gradients.paths import total_derivative
from plait.gradients.sparse import Support, depth_to

DOUBLE = torch.float64


def test_exact_where_the_theorem_applies() -> None:
    """Linear recurrence, normal V, energies zero: the frozen norm is the norm, and the bound is below."""
    model = plait.RelRNN(2, 3, window=3, capacity=2, nonlinearity="identity", mix=0.5, dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(torch.diag(torch.tensor([0.9, 0.0, 0.0])))
        model.layers[0].scorer.energy.zero_()
    found = audit(model, torch.randn(25, 2, 2, dtype=DOUBLE), row=1)
    assert found.kappa == 5
    assert found.eigenvalue == pytest.approx(0.9)
    assert np.all(found.log_bound <= found.log_frozen + 1e-9)
    assert found.log_frozen == pytest.approx(found.log_norm, abs=1e-9)
    assert np.all(found.depth <= (25 - np.arange(1, 26)) // 3)


def test_measured_norm_is_that_of_the_derivative() -> None:
    model = plait.RelLSTM(2, 4, window=3, capacity=2, dtype=DOUBLE)
    x = torch.randn(15, 1, 2, dtype=DOUBLE)
    found = audit(model, x)
    assert found.eigenvalue is None
    assert found.log_bound is None
    assert found.log_frozen is None
    for t in (1, 6, 15):
        expected = float(total_derivative(model, x, t, 15).norm())
        assert np.exp(found.log_norm[t - 1]) == pytest.approx(expected, rel=1e-10)


def test_the_requested_row_is_used() -> None:
    model = plait.RelRNN(2, 4, window=2, capacity=2, dtype=DOUBLE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # sharp attention, so that rows keep different states
    x = torch.randn(30, 3, 2, dtype=DOUBLE)
    _, _, (trace,) = model(x, need_trace=True)
    depths = [depth_to(Support.from_trace(trace, row=row)).tolist() for row in range(3)]
    assert depths[0] != depths[2]
    assert audit(model, x, row=2).depth.tolist() == depths[2]


def test_no_positive_eigenvalue_and_zero_gradients() -> None:
    model = plait.RelRNN(2, 2, window=2, capacity=1, nonlinearity="relu", dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(-torch.eye(2))
        model.layers[0].cell.bias.fill_(-50.0)  # every unit is dead, so no gradient passes a step
    found = audit(model, torch.zeros(8, 1, 2, dtype=DOUBLE))
    assert found.eigenvalue is None
    assert found.log_frozen is not None
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["log_norm"][3] is None  # h_4 was dropped, and nothing passes the dead units
    assert record["log_norm"][-1] is not None


def test_models_without_support() -> None:
    with pytest.raises(ConfigError, match="has no support"):
        audit(plait.LSTM(2, 3), torch.zeros(5, 1, 2))
