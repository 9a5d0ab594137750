"""The loss of PPO against a worked example."""

import math

import pytest
import torch

from plait.lab.tasks.minigrid.observation import grid_actions
from plait.lab.training.ppo.learner import clipped_objective, ppo_loss
from plait.lab.training.recipe import PPOConfig


def logits_of(*probabilities):
    """Return (T, 1, 7) logits of these probabilities of action 0, with the rest divided among the others."""
    rows = [[p] + [(1 - p) / 6] * 6 for p in probabilities]
    return torch.tensor(rows, dtype=torch.float64).log().unsqueeze(1).requires_grad_()


def loss_of(logits, values, valid, **changes):
    """Return the losses of three steps with action 0 of probability ½; advantages 1, 1, −1; returns 1."""
    old = torch.full((3, 1), math.log(0.5), dtype=torch.float64)
    advantage = torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64)
    returns, actions = torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.int64)
    ppo = PPOConfig(clip_range=0.2, vf_coef=0.5, ent_coef=0.1).changed(**changes)
    return ppo_loss(
        logits, values, actions, old, advantage, returns, torch.tensor(valid)[:, None], ppo, grid_actions()
    )


def entropy(p):
    return -p * math.log(p) - (1 - p) * math.log((1 - p) / 6)


def test_worked_example():
    """Ratios 0.8/0.5 = 1.6 → 1.2 with A = 1; 0.45/0.5 = 0.9 → 0.9; 0.8/0.5 = 1.6 → −1.6 with A = −1."""
    values = torch.tensor([[1.0], [3.0], [0.0]], dtype=torch.float64)
    losses = loss_of(logits_of(0.8, 0.45, 0.8), values, [True] * 3)
    assert losses.policy.item() == pytest.approx(-(1.2 + 0.9 - 1.6) / 3)
    assert losses.value.item() == pytest.approx((0 + 4 + 1) / 3 / 2)
    expected = (2 * entropy(0.8) + entropy(0.45)) / 3
    assert losses.entropy.item() == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(-0.5 / 3 + 0.5 * 5 / 6 - 0.1 * expected)
    assert losses.clip_fraction.item() == pytest.approx(2 / 3)


def test_an_invalid_step_has_no_gradient():
    logits, values = logits_of(0.8, 0.45, 0.8), torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    losses = loss_of(logits, values, [True, True, False])
    losses.total.backward()
    assert not logits.grad[2].any()
    assert not values.grad[2].any()
    assert values.grad[:2].all()
    assert losses.policy.item() == pytest.approx(-(1.2 + 0.9) / 2)


def test_beyond_the_clipping_range_the_gradient_is_zero():
    logits = logits_of(0.8, 0.45, 0.8)
    loss_of(logits, torch.ones(3, 1, dtype=torch.float64), [True] * 3, ent_coef=0.0).total.backward()
    assert not logits.grad[0].any()  # likelier, good, and beyond the clipping range
    assert logits.grad[1].any()  # within the clipping range
    assert logits.grad[2].any()  # likelier although bad: the loss makes it less likely


def test_clipped_objective_is_the_minimum_of_both():
    ratios = torch.linspace(0.1, 3, 30, dtype=torch.float64)
    for advantage in (2.0, -2.0):
        objective = clipped_objective(ratios.log(), torch.zeros(30), torch.full((30,), advantage), 0.3)
        expected = [min(r * advantage, min(max(r, 0.7), 1.3) * advantage) for r in ratios.tolist()]
        assert objective.tolist() == pytest.approx(expected)


def test_log_probability_and_entropy_are_torchs():
    logits, actions = torch.randn(5, 3, 7), torch.randint(7, (5, 3))
    distribution = torch.distributions.Categorical(logits=logits)
    log_probs, entropies = grid_actions().evaluate(logits, actions)
    torch.testing.assert_close(log_probs, distribution.log_prob(actions))
    torch.testing.assert_close(entropies, distribution.entropy())
