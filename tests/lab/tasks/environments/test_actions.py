"""DiscreteActions and amounts: likelihoods against torch's distributions, draws, and what a checkpoint keeps."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

from plait.lab.tasks.environments.actions import PADDING, ContinuousActions, DiscreteActions


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def test_several_choices_are_torchs_distributions_side_by_side():
    both, outputs = DiscreteActions((3, 4)), torch.randn(5, 2, 7)
    actions = torch.stack([torch.randint(3, (5, 2)), torch.randint(4, (5, 2))], -1)
    one, other = Categorical(logits=outputs[..., :3]), Categorical(logits=outputs[..., 3:])
    logarithm, entropy = both.chosen(outputs, actions)
    torch.testing.assert_close(logarithm, one.log_prob(actions[..., 0]) + other.log_prob(actions[..., 1]))
    torch.testing.assert_close(entropy, one.entropy() + other.entropy())


def test_several_choices_are_drawn_by_their_chances_and_apart():
    both = DiscreteActions((2, 3))
    outputs = torch.tensor([0.2, 0.8, 0.5, 0.3, 0.2]).log().expand(20000, 5)
    found = both.sample(outputs, both.noise((20000,), drawn()))
    assert found.shape == (20000, 2)
    shares = torch.bincount(found[:, 0] * 3 + found[:, 1], minlength=6) / 20000
    expected = torch.tensor([0.2, 0.8])[:, None] * torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(shares, expected.flatten(), atol=0.012, rtol=0)


def test_amounts_are_torchs_normal():
    amounts = ContinuousActions(np.full(3, -2.0, np.float32), np.full(3, 2.0, np.float32))
    means, spreads, actions = torch.randn(3, 5, 2, 3)
    outputs = torch.cat([means, spreads.clamp(-1, 1)], -1)
    found = Normal(means, spreads.clamp(-1, 1).exp())
    logarithm, entropy = amounts.chosen(outputs, actions)
    torch.testing.assert_close(logarithm, found.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, found.entropy().sum(-1))
    assert torch.equal(amounts.mode(outputs), means)
    many = amounts.sample(outputs[0, 0].expand(40000, 6), amounts.noise((40000,), drawn()))
    torch.testing.assert_close(many.mean(0), means[0, 0], atol=0.05, rtol=0)
    torch.testing.assert_close(many.std(0).log(), outputs[0, 0, 3:], atol=0.02, rtol=0)


def test_a_world_gets_amounts_within_its_bounds():
    low, high = np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, np.inf]], np.float32)
    amounts = ContinuousActions(low, high)
    assert amounts.to_env([0.5, 3.0]).tolist() == [[1.0, 3.0]]  # half of the way to a bound; no bound
    assert amounts.to_env([9.0, -3.0]).tolist() == [[2.0, 0.0]]
    assert amounts.to_env([0.5, 3.0]).dtype == np.float32
    whole = ContinuousActions(np.array([0], np.int64), np.array([10], np.int64))
    assert whole.to_env([0.33]).tolist() == [7]  # 6.65, to the nearest


def test_a_world_gets_choices_as_it_counts_them():
    assert DiscreteActions((3,), single=True, starts=(-1,)).to_env(0) == -1
    table = DiscreteActions((2, 2, 2, 2), starts=(5, 0, 0, 0), form=(2, 2), kind=np.int8)
    given = table.to_env([1, 0, 1, 1])
    assert given.tolist() == [[6, 0], [1, 1]]
    assert given.dtype == np.int8


@pytest.mark.parametrize(
    ("actions", "rows", "dtype"),
    [
        (DiscreteActions((7,), single=True), [[1, 6, 0], [], [3]], torch.uint8),
        (DiscreteActions((300,), single=True), [[1, 299], [0], []], torch.int64),
        (DiscreteActions((2, 5)), [[[1, 4], [0, 0]], [], [[1, 1]]], torch.uint8),
        (ContinuousActions(np.zeros(2), np.ones(2)), [[[0.5, -1.25], [3.0, 0.0]], [], [[1.0, 1.0]]], torch.float32),
    ],
)
def test_what_is_kept_is_given_back(actions, rows, dtype):
    kept = actions.kept(rows)
    assert kept.dtype == dtype
    assert actions.rows(kept) == rows
    assert actions.are_valid(kept)
    wrong = kept.clone()
    wrong.view(-1)[0] = math.inf if dtype == torch.float32 else 254 if dtype == torch.uint8 else 300
    assert not actions.are_valid(wrong)


def test_bytes_are_kept_as_they_always_were():
    """Checkpoints of grid worlds hold a byte an action, 255 where a world took fewer."""
    kept = DiscreteActions((7,), single=True).kept([[1], [2, 3]])
    assert kept.tolist() == [[1, PADDING], [2, 3]]


def test_in_words():
    both, outputs = DiscreteActions((2, 2)), torch.zeros(4)
    assert both.describe(outputs, torch.tensor([1, 0])) == ("[1 0]", pytest.approx(0.25))
    named = DiscreteActions((2,), single=True, names=("left", "right"))
    assert named.describe(torch.zeros(2), torch.tensor(1)) == ("right", pytest.approx(0.5))
    amounts = ContinuousActions(np.array([-2.0]), np.array([2.0]))
    assert amounts.describe(torch.zeros(2), torch.tensor([0.5])) == ("1", None)
