"""The causal networks: no output sees a later symbol, sizes are right, the linear one is a polynomial."""

import math

import pytest
import torch

from plait.depthwidth.rank import Weights, linear_attention_forward
from plait.errors import ConfigError, ShapeError
from plait.models.character_networks import CausalTransformer, LinearAttentionNetwork

NETWORKS = [CausalTransformer, LinearAttentionNetwork]


def woken(kind, vocab=11, depth=3, width=32, heads=2, context=12):
    """A network whose readout is not zero any more."""
    network = kind(vocab, depth, width, heads, context)
    torch.nn.init.normal_(network.readout.weight)
    return network


@pytest.mark.parametrize("kind", NETWORKS)
def test_no_output_sees_a_later_symbol(kind):
    network = woken(kind)
    tokens = torch.randint(11, (4, 12))
    before = network(tokens)
    for t in range(12):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 11
        after = network(changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], rtol=0, atol=1e-6)
        assert (after[:, t] - before[:, t]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_earlier_symbol_counts(kind):
    network = woken(kind)
    tokens = torch.randint(11, (1, 12))
    last = network(tokens)[:, -1]
    for t in range(12):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 11
        assert (network(changed)[:, -1] - last).abs().max() > 1e-6, t


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_prefix_alone_gives_the_same(kind):
    network = woken(kind)
    tokens = torch.randint(11, (2, 12))
    torch.testing.assert_close(network(tokens[:, :7]), network(tokens)[:, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(("depth", "width"), [(1, 16), (12, 16), (4, 144), (2, 640)])
def test_parameters_without_embeddings(kind, depth, width):
    network = kind(50, depth, width, width // 16, 8)
    theory = kind.per_layer * depth * width**2
    assert theory <= network.num_block_params <= 1.03 * theory
    everything = sum(p.numel() for p in network.parameters())
    assert everything - network.num_block_params == (50 + 8 + 50) * width


@pytest.mark.parametrize("kind", NETWORKS)
def test_training_starts_from_the_uniform_guess(kind):
    logits = kind(50, 2, 32, 2, 8)(torch.randint(50, (3, 8)))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(50, (24,)))
    assert loss.item() == pytest.approx(math.log(50), abs=1e-6)


def test_last_position_of_one_linear_layer_is_the_theory_layer():
    """There the causal sum runs over all tokens: the analysed layer, scaled, plus the residual."""
    network = LinearAttentionNetwork(11, 1, 12, 3, 9).double()
    tokens = torch.randint(11, (1, 9))
    x = network.embed(tokens)
    caught = []
    network.readout.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    network(tokens)
    joint = network.into_heads[0].weight.detach().reshape(3, 3, 4, 12).numpy()
    out = network.out_of_heads[0].weight.detach().reshape(12, 3, 4).permute(1, 0, 2).numpy()
    layer = Weights(joint[0][None], joint[1][None], joint[2][None], out[None])
    whole = torch.from_numpy(linear_attention_forward(x[0].detach().numpy(), layer))
    expected = x[0, -1] + whole[-1] / math.sqrt(4 * 9)
    torch.testing.assert_close(caught[0][0, -1], expected)


def test_linear_network_is_a_polynomial_of_degree_3_to_the_depth():
    """Along a line of embeddings finite differences of order 3^L + 1 vanish, those of order 3^L do not."""
    network = woken(LinearAttentionNetwork, depth=2, width=8, heads=2, context=4).double()
    tokens = torch.randint(11, (1, 4))
    start = network.symbols.detach().clone()
    direction = torch.randn_like(start)
    values = []
    for step in range(11):
        network.symbols.data = start + (step / 5 - 1) * direction
        values.append(network(tokens)[0, -1, 0].item())
    curve = torch.tensor(values, dtype=torch.float64)
    rounding = 1e-15 * curve.abs().max() * 2**10
    assert curve.diff(n=9).abs().min() > 1e4 * rounding
    assert curve.diff(n=10).abs().max() < rounding


def test_bad_input():
    with pytest.raises(ConfigError, match="heads: expected a divisor of width 32, got 3"):
        CausalTransformer(50, 2, 32, 3, 8)
    with pytest.raises(ConfigError, match="depth: expected at least 1"):
        LinearAttentionNetwork(50, 0, 32, 2, 8)
    with pytest.raises(ShapeError, match="time at most 8"):
        CausalTransformer(50, 1, 32, 2, 8)(torch.zeros(1, 9, dtype=torch.int64))
