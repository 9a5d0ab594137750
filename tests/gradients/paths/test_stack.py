"""The path expansion for Transformers: sums over paths of positions, against autograd and enumeration."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import plait
from plait.errors import ConfigError, ShapeError
from plait.gradients.paths import stack_breakdown, stack_derivatives, stack_of

DOUBLE = torch.float64


def whole(layers: list, x: Tensor, t: int, end: int) -> Tensor:
    def last(below: Tensor) -> Tensor:
        for layer in layers:
            below = layer(below)
        return below[end - 1]

    return torch.autograd.functional.jacobian(last, x)[:, t - 1]


def transformer(num_layers: int) -> list:
    torch.manual_seed(4)
    model = plait.Transformer(3, 8, num_layers=num_layers, heads=2, dtype=DOUBLE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # attention far from uniform
    return stack_of(model)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_sum_over_paths_is_the_derivative_of_a_transformer(num_layers: int) -> None:
    layers, x = transformer(num_layers), torch.randn(7, 8, dtype=DOUBLE)
    for t, end in ((1, 7), (3, 6), (5, 5)):
        parts = stack_derivatives(layers, x, t, end)
        expected = whole(layers, x, t, end)
        assert parts.shape == (num_layers + 1, 8, 8)
        assert (parts.sum(0) - expected).abs().max() < 1e-12 * max(1, float(expected.abs().max()))
    with pytest.raises(ConfigError, match="1 <= t <= T"):
        stack_derivatives(layers, x, 5, 4)


def test_parts_are_the_paths_with_that_many_attention_edges() -> None:
    """By listing all T^(L−1) paths of positions."""
    layers, x, t, end = transformer(3), torch.randn(5, 8, dtype=DOUBLE), 2, 4
    states, edges = x, []
    for layer in layers:
        edges.append(torch.autograd.functional.jacobian(layer, states))
        states = layer(states)
    listed, paths = torch.zeros(4, 8, 8, dtype=DOUBLE), 0
    for between in itertools.product(range(5), repeat=2):
        path = (t - 1, *between, end - 1)
        product = torch.eye(8, dtype=DOUBLE)
        for edge, (below, above) in zip(edges, itertools.pairwise(path), strict=True):
            product = edge[above, :, below] @ product
        paths += bool(product.abs().max() > 0)
        listed[sum(a != b for a, b in itertools.pairwise(path))] += product
    assert paths == 6  # C(T − t + L − 1, L − 1): causal
    assert (stack_derivatives(layers, x, t, end) - listed).abs().max() < 1e-12
    assert listed[0].abs().max() == 0  # another position is reached by attention alone


def test_without_attention_nothing_moves() -> None:
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double()
    x = torch.randn(6, 4, dtype=DOUBLE)
    parts = stack_derivatives([mlp, mlp], x, 3, 3)
    assert parts[1:].abs().max() == 0
    assert parts[0].abs().max() > 0
    assert stack_derivatives([mlp, mlp], x, 2, 3).abs().max() == 0
    with pytest.raises(ConfigError, match=r"dx_3/dx_2 is zero"):
        stack_breakdown([mlp], x, 2, 3)


def test_breakdown_of_torchs_own_encoder() -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, dtype=DOUBLE).eval()
    blocks = [lambda x: layer(x[:, None])[:, 0]] * 2
    x = torch.randn(5, 8, dtype=DOUBLE)
    result = stack_breakdown(blocks, x, 2, 4)
    assert (result.total - whole(blocks, x, 2, 4)).abs().max() < 1e-12
    assert float(result.share.sum()) == pytest.approx(1)
    assert result.recurrent_share == 0
    assert float(result.norm[2]) > 0


def test_bad_arguments() -> None:
    with pytest.raises(ShapeError, match=r"x: expected \(T, N\)"):
        stack_derivatives([nn.Identity()], torch.zeros(3, 1, 2), 1, 2)
    with pytest.raises(ConfigError, match="at least one"):
        stack_derivatives([], torch.zeros(3, 2), 1, 2)
