"""Trained linear networks are generic: exact ranks of exactly the weights that training gave."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from plait.depthwidth.rank import Weights, draw_weights, linear_attention_forward, rank_of_weights
from plait.depthwidth.rank.field import PRIMES
from plait.errors import ConfigError
from plait.lab.training.character_learner import CharacterLearner, DeviceText
from plait.lab.training.characters import CharacterModel, CharacterRecipe, CharacterSpec, CharacterTask
from plait.lab.training.stop import Stop
from plait.models import LinearAttentionNetwork

ROOT = Path(__file__).parents[3]
P = PRIMES[0]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("trained_ranks", ROOT / "docs/theory/trained_ranks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text():
    symbols = np.random.default_rng(0).integers(0, 9, 3000)
    symbols[1::2] = (symbols[::2] * 2 + 1) % 9  # something to learn
    parts = [torch.from_numpy(symbols[i : i + 1000]) for i in (0, 1000, 2000)]
    return DeviceText(9, *parts)


def test_training_leaves_the_exceptional_set(script, text):
    """All matrices the identity: 104 of 110. Twelve updates later the rank is the generic one."""
    recipe = CharacterRecipe(updates=12, warmup=2, batch=8, context=16, peak=0.024, held_out=200)
    spec = CharacterSpec(CharacterTask(symbols=9), CharacterModel("linear", 2, 4, 1), recipe)
    learner = CharacterLearner(spec, text)
    script.begin_special(learner.network)
    assert script.ranks(learner, residual=False) == [104, 104]
    for update in range(12):
        learner.advance(update + 1, Stop(signals=False))
    assert script.ranks(learner, residual=False) == [110, 110]
    assert script.ranks(learner, residual=True) == [110, 110]
    assert float(learner.losses[11]) < float(learner.losses[0])


@pytest.mark.parametrize(("depth", "heads", "rank"), [(2, 2, 107), (2, 4, 85)])
def test_beginnings_are_generic(script, depth, heads, rank):
    torch.manual_seed(0)
    network = LinearAttentionNetwork(9, depth, 4, heads, 8)
    assert rank_of_weights(script.weights_of(network, P), P) == rank


def test_the_matrices_are_those_of_the_network(script):
    """The analysed network with the extracted weights is the module's block without mask and scale."""
    torch.manual_seed(1)
    network = LinearAttentionNetwork(5, 2, 4, 2, 3).double()
    network.scale = torch.ones_like(network.scale)
    with torch.no_grad():
        network.readout = torch.nn.Identity()
        expected = network(torch.tensor([[0, 3, 1]]))[0].numpy()
        tokens = network.embed(torch.tensor([[0, 3, 1]]))[0].numpy()
    joint = torch.stack([layer.weight for layer in network.into_heads]).detach()
    query, key, value = (x.numpy() for x in joint.view(2, 3, 2, 2, 4).unbind(1))
    out = torch.stack([layer.weight for layer in network.out_of_heads]).detach()
    weights = Weights(query, key, value, out.view(2, 4, 2, 2).transpose(1, 2).numpy())
    assert linear_attention_forward(tokens, weights, residual=True) == pytest.approx(expected, abs=1e-12)
    exact = script.weights_of(network, P)
    for ours, theirs in zip((query, key, value), (exact.query, exact.key, exact.value), strict=True):
        scaled = (ours * 2.0**60).astype(object)  # m·2^e as a whole number, over 2^60
        whole = np.vectorize(lambda x: int(x) % P)(scaled)
        assert ((whole - theirs.astype(np.int64) * pow(2, 60, P)) % P == 0).all()


def test_non_finite_floats_are_refused():
    bad = np.full((1, 1, 1, 1), np.nan)
    with pytest.raises(ConfigError, match="finite"):
        Weights.of_floats(P, bad, bad, bad, bad)
    with pytest.raises(ConfigError, match="odd prime"):
        Weights.of_floats(2, *[np.ones((1, 1, 1, 1))] * 4)
    assert rank_of_weights(draw_weights(1, 3, 1, P, 0), P, residual=True) == 4
