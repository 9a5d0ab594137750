"""The loss of PPO against an example worked by hand."""

import math

import pytest
import torch

from plait.lab.tasks.minigrid.observation import GRID_ACTIONS
from plait.lab.training.ppo.learner import clipped_objective, ppo_loss
from plait.lab.training.recipe import Settings


def logits_of(*probabilities):
    """(T, 1, 7) logits in which action 0 has this probability and the six others share the rest."""
    rows = [[p] + [(1 - p) / 6] * 6 for p in probabilities]
    return torch.tensor(rows, dtype=torch.float64).log().unsqueeze(1).requires_grad_()


def loss_of(logits, values, counted, **changes):
    """Three steps, all with action 0, which had probability ½; advantages 1, 1, −1; returns 1, 1, 1."""
    old = torch.full((3, 1), math.log(0.5), dtype=torch.float64)
    advantage = torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64)
    returns, actions = torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.int64)
    settings = Settings(clip=0.2, value=0.5, entropy=0.1).changed(**changes)
    return ppo_loss(
        logits, values, actions, old, advantage, returns, torch.tensor(counted)[:, None], settings, GRID_ACTIONS
    )


def entropy(p):
    return -p * math.log(p) - (1 - p) * math.log((1 - p) / 6)


def test_by_hand():
    """Ratios 0.8/0.5 = 1.6 → 1.2 with A = 1; 0.45/0.5 = 0.9 → 0.9; 0.8/0.5 = 1.6 → −1.6 with A = −1."""
    values = torch.tensor([[1.0], [3.0], [0.0]], dtype=torch.float64)
    losses = loss_of(logits_of(0.8, 0.45, 0.8), values, [True] * 3)
    assert losses.policy.item() == pytest.approx(-(1.2 + 0.9 - 1.6) / 3)
    assert losses.value.item() == pytest.approx((0 + 4 + 1) / 3 / 2)
    expected = (2 * entropy(0.8) + entropy(0.45)) / 3
    assert losses.entropy.item() == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(-0.5 / 3 + 0.5 * 5 / 6 - 0.1 * expected)
    assert losses.clipped.item() == pytest.approx(2 / 3)


def test_a_step_that_does_not_count_moves_nothing():
    logits, values = logits_of(0.8, 0.45, 0.8), torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    losses = loss_of(logits, values, [True, True, False])
    losses.total.backward()
    assert not logits.grad[2].any()
    assert not values.grad[2].any()
    assert values.grad[:2].all()
    assert losses.policy.item() == pytest.approx(-(1.2 + 0.9) / 2)


def test_beyond_the_clip_nothing_pushes_further():
    logits = logits_of(0.8, 0.45, 0.8)
    loss_of(logits, torch.ones(3, 1, dtype=torch.float64), [True] * 3, entropy=0.0).total.backward()
    assert not logits.grad[0].any()  # better than before, and far enough already
    assert logits.grad[1].any()  # has room
    assert logits.grad[2].any()  # worse than before, and is called back


def test_clipped_objective_is_the_smaller_of_the_two():
    ratios = torch.linspace(0.1, 3, 30, dtype=torch.float64)
    for advantage in (2.0, -2.0):
        found = clipped_objective(ratios.log(), torch.zeros(30), torch.full((30,), advantage), 0.3)
        expected = [min(r * advantage, min(max(r, 0.7), 1.3) * advantage) for r in ratios.tolist()]
        assert found.tolist() == pytest.approx(expected)


def test_probability_and_entropy_are_torchs():
    logits, actions = torch.randn(5, 3, 7), torch.randint(7, (5, 3))
    found = torch.distributions.Categorical(logits=logits)
    log_probability, spread = GRID_ACTIONS.chosen(logits, actions)
    torch.testing.assert_close(log_probability, found.log_prob(actions))
    torch.testing.assert_close(spread, found.entropy())
