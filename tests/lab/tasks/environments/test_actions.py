"""Discrete and continuous actions: likelihoods against torch's, samples, and packing for a checkpoint."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

from plait.lab.tasks.environments.actions import PADDING, ContinuousActions, DiscreteActions


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_several_counts_are_independent_categoricals():
    both, outputs = DiscreteActions((3, 4)), torch.randn(5, 2, 7)
    actions = torch.stack([torch.randint(3, (5, 2)), torch.randint(4, (5, 2))], -1)
    first, second = Categorical(logits=outputs[..., :3]), Categorical(logits=outputs[..., 3:])
    log_prob, entropy = both.evaluate(outputs, actions)
    torch.testing.assert_close(log_prob, first.log_prob(actions[..., 0]) + second.log_prob(actions[..., 1]))
    torch.testing.assert_close(entropy, first.entropy() + second.entropy())


def test_several_counts_are_sampled_independently():
    both = DiscreteActions((2, 3))
    outputs = torch.tensor([0.2, 0.8, 0.5, 0.3, 0.2]).log().expand(20000, 5)
    samples = both.sample(outputs, both.noise((20000,), generator()))
    assert samples.shape == (20000, 2)
    shares = torch.bincount(samples[:, 0] * 3 + samples[:, 1], minlength=6) / 20000
    expected = torch.tensor([0.2, 0.8])[:, None] * torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(shares, expected.flatten(), atol=0.012, rtol=0)


def test_continuous_actions_are_torchs_normal():
    space = ContinuousActions(np.full(3, -2.0, np.float32), np.full(3, 2.0, np.float32))
    means, log_stds, actions = torch.randn(3, 5, 2, 3)
    outputs = torch.cat([means, log_stds.clamp(-1, 1)], -1)
    normal = Normal(means, log_stds.clamp(-1, 1).exp())
    log_prob, entropy = space.evaluate(outputs, actions)
    torch.testing.assert_close(log_prob, normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))
    assert torch.equal(space.mode(outputs), means)
    samples = space.sample(outputs[0, 0].expand(40000, 6), space.noise((40000,), generator()))
    torch.testing.assert_close(samples.mean(0), means[0, 0], atol=0.05, rtol=0)
    torch.testing.assert_close(samples.std(0).log(), outputs[0, 0, 3:], atol=0.02, rtol=0)


def test_continuous_actions_are_clipped_to_their_bounds():
    low, high = np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, np.inf]], np.float32)
    space = ContinuousActions(low, high)
    assert space.to_env([0.5, 3.0]).tolist() == [[1.0, 3.0]]  # half of the way to a bound; no bound
    assert space.to_env([9.0, -3.0]).tolist() == [[2.0, 0.0]]
    assert space.to_env([0.5, 3.0]).dtype == np.float32
    integers = ContinuousActions(np.array([0], np.int64), np.array([10], np.int64))
    assert integers.to_env([0.33]).tolist() == [7]  # 6.65, to the nearest


def test_discrete_actions_start_at_the_environments_first_value():
    assert DiscreteActions((3,), single=True, starts=(-1,)).to_env(0) == -1
    table = DiscreteActions((2, 2, 2, 2), starts=(5, 0, 0, 0), env_shape=(2, 2), env_dtype=np.int8)
    action = table.to_env([1, 0, 1, 1])
    assert action.tolist() == [[6, 0], [1, 1]]
    assert action.dtype == np.int8


@pytest.mark.parametrize(
    ("actions", "rows", "dtype"),
    [
        (DiscreteActions((7,), single=True), [[1, 6, 0], [], [3]], torch.uint8),
        (DiscreteActions((300,), single=True), [[1, 299], [0], []], torch.int64),
        (DiscreteActions((2, 5)), [[[1, 4], [0, 0]], [], [[1, 1]]], torch.uint8),
        (
            ContinuousActions(np.zeros(2), np.ones(2)),
            [[[0.5, -1.25], [3.0, 0.0]], [], [[1.0, 1.0]]],
            torch.float32,
        ),
    ],
)
def test_packed_actions_are_unpacked(actions, rows, dtype):
    packed = actions.pack(rows)
    assert packed.dtype == dtype
    assert actions.unpack(packed) == rows
    assert actions.are_valid(packed)
    wrong = packed.clone()
    wrong.view(-1)[0] = math.inf if dtype == torch.float32 else 254 if dtype == torch.uint8 else 300
    assert not actions.are_valid(wrong)


def test_few_actions_are_packed_as_bytes():
    """A checkpoint of a grid world has a byte per action, 255 where an environment took fewer."""
    packed = DiscreteActions((7,), single=True).pack([[1], [2, 3]])
    assert packed.tolist() == [[1, PADDING], [2, 3]]


def test_actions_as_text():
    both, outputs = DiscreteActions((2, 2)), torch.zeros(4)
    assert both.describe(outputs, torch.tensor([1, 0])) == ("[1 0]", pytest.approx(0.25))
    named = DiscreteActions((2,), single=True, names=("left", "right"))
    assert named.describe(torch.zeros(2), torch.tensor(1)) == ("right", pytest.approx(0.5))
    space = ContinuousActions(np.array([-2.0]), np.array([2.0]))
    assert space.describe(torch.zeros(2), torch.tensor([0.5])) == ("1", None)
