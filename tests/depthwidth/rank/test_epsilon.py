"""Epsilon-ranks carry their tolerance, and mean what they say."""

import numpy as np
import pytest
import torch

from plait.depthwidth.rank import epsilon_rank, measure, network_epsilon_rank
from plait.errors import ConfigError, ShapeError, UnknownNameError


def test_counts_singular_values():
    result = epsilon_rank(np.diag([1.0, 0.5, 1e-4]), tol=1e-3, scale=2.0)
    assert (result.value, result.tolerance, result.templates, result.scale) == (2, 1e-3, 3, 2.0)
    assert epsilon_rank(np.diag([1.0, 0.5, 1e-4]), tol=1e-5).value == 3
    assert epsilon_rank(1e-9 * np.diag([1.0, 0.5, 1e-4]), tol=1e-3).value == 2  # relative to the largest
    assert epsilon_rank(np.eye(6)).effective == pytest.approx(6)
    assert epsilon_rank(np.zeros((3, 3))).value == 0


@pytest.mark.parametrize(("depth", "width", "heads", "rank"), [(1, 4, 1, 5), (1, 8, 2, 9), (2, 2, 1, 18)])
def test_linear_networks_show_their_exact_rank(depth, width, heads, rank):
    """Up to two layers floating point has a clean gap at the exact rank."""
    result = network_epsilon_rank(depth, width, heads, templates=64, tol=1e-11)
    assert result.value == rank


@pytest.mark.parametrize(
    ("depth", "options"),
    [(1, {"attention": "softmax"}), (1, {"feed_forward": True}), (2, {"normalise": True})],
    ids=["softmax", "relu", "normalised"],
)
def test_nonlinear_networks_fill_every_template(depth, options):
    found = [network_epsilon_rank(depth, 4, 2, 8, templates=m, tol=1e-12, **options).value for m in (32, 64)]
    assert found == [32, 64]


def test_normalising_each_token_first_is_still_polynomial_in_the_normalised_ones():
    """One layer reads normalised tokens, which have mean 0: width 4 acts as width 3, of rank 3 + 1."""
    assert network_epsilon_rank(1, 4, 2, 8, templates=64, tol=1e-12, normalise=True).value == 4


def test_measure_knows_what_a_module_couples():
    linear = measure(torch.nn.Linear(8, 8), 3, tokens=6, width=8, templates=64)
    assert linear.value == 1
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.5).double()
    layer.train()
    coupled = measure(layer, 3, tokens=6, width=8, templates=64)
    assert coupled.value > 5
    assert coupled == measure(layer, 3, tokens=6, width=8, templates=64)  # evaluation mode: no dropout
    assert layer.training


class AddsHalves(torch.nn.Module):
    """Output = sum of all tokens: a + b, of separation rank 2."""

    def forward(self, x):
        return x.sum(1, keepdim=True).expand_as(x)


def test_measure_of_a_sum_is_two():
    assert measure(AddsHalves(), 2, tokens=4, width=3, templates=40, tol=1e-9).value == 2


def test_bad_input():
    with pytest.raises(ShapeError, match="module: expected output of shape"):
        measure(torch.nn.Linear(8, 4), 2, tokens=4, width=8, templates=4)
    with pytest.raises(ConfigError, match="cut: expected 1 to"):
        measure(torch.nn.Linear(8, 8), 4, tokens=4, width=8)
    with pytest.raises(ConfigError, match="position"):
        measure(torch.nn.Linear(8, 8), 2, tokens=4, width=8, position=4)
    with pytest.raises(UnknownNameError, match="unknown attention"):
        network_epsilon_rank(1, 4, attention="cosine")
    with pytest.raises(ShapeError, match="matrix"):
        epsilon_rank([1.0])
    with pytest.raises(ConfigError, match="tol"):
        epsilon_rank(np.eye(2), tol=2)
    with pytest.raises(ConfigError, match="non-finite"):
        epsilon_rank([[np.inf]])


class Squares(torch.nn.Module):
    """At each position the square of the sum of all features up to there."""

    def forward(self, tokens):
        return tokens.sum(2, keepdim=True).cumsum(1).square().expand_as(tokens)


def test_a_module_is_read_at_its_last_position():
    """The square of a sum of two parts has rank 3; earlier positions see less of the second part."""
    assert measure(Squares(), 2, tokens=4, width=3, templates=16, tol=1e-9).value == 3
    assert measure(Squares(), 2, tokens=4, width=3, templates=16, tol=1e-9, position=1).value == 1
