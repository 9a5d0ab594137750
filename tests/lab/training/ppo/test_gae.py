"""Generalised advantage estimation against a worked example, and against its definition as a sum."""

import pytest
import torch

from plait.lab.training.ppo.learner import normalise
from plait.lab.training.ppo.rollout import compute_advantages

FIVE = {"rewards": [0.0, 1.0, 0.0, 0.0, 2.0], "values": [1.0, 2.0, 4.0, 8.0, 16.0]}


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def estimate(terminated, truncated, gamma=0.5, gae_lambda=0.5, last=32.0):
    terminated, truncated = column(terminated, torch.bool), column(truncated, torch.bool)
    rewards, values = column(FIVE["rewards"]), column(FIVE["values"])
    last_values = torch.tensor([last], dtype=torch.float64)
    done = terminated | truncated
    advantage = compute_advantages(rewards, values, last_values, terminated, done, gamma, gae_lambda)
    return advantage.flatten().tolist()


NEVER = [0, 0, 0, 0, 0]


def test_worked_example_without_an_end():
    """γ = λ = ½. δ = (0 + 1 − 1, 1 + 2 − 2, 0 + 4 − 4, 0 + 8 − 8, 2 + 16 − 16) = (0, 1, 0, 0, 2);
    A_4 = 2, A_3 = 2/4, A_2 = 2/16, A_1 = 1 + 2/64, A_0 = A_1 / 4."""
    assert estimate(NEVER, NEVER) == pytest.approx([1.03125 / 4, 1.03125, 0.125, 0.5, 2])


def test_worked_example_with_a_terminated_episode():
    """Step 1 terminates: δ_1 = 1 − 2 = −1, nothing later reaches back; step 2 starts a new episode."""
    advantage = estimate([0, 1, 0, 0, 0], NEVER)
    assert advantage[:2] == pytest.approx([0 + -1 / 4, -1])
    assert advantage[3:] == pytest.approx([0.5, 2])


def test_worked_example_with_a_truncated_episode():
    """Step 1 truncates: δ_1 = 1 + γ V_2 − 2 = 1, with V_2 of the last observation, and no A_2 added."""
    assert estimate(NEVER, [0, 1, 0, 0, 0])[:2] == pytest.approx([0.25, 1])


def test_steps_after_an_end_do_not_affect_earlier_advantages():
    """With another reward of the step that starts an episode only its own advantage changes."""
    before = estimate([0, 1, 0, 0, 0], NEVER)
    FIVE["rewards"][2] += 7
    after = estimate([0, 1, 0, 0, 0], NEVER)
    FIVE["rewards"][2] -= 7
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert changed == [False, False, True, False, False]


def test_advantage_is_the_sum_of_discounted_errors():
    generator = torch.Generator().manual_seed(0)
    steps, envs, gamma, gae_lambda = 12, 3, 0.9, 0.8
    rewards, values = torch.rand(2, steps, envs, generator=generator, dtype=torch.float64)
    last = torch.rand(envs, generator=generator, dtype=torch.float64)
    done = torch.rand(steps, envs, generator=generator) < 0.25
    terminated = done & (torch.rand(steps, envs, generator=generator) < 0.5)
    advantage = compute_advantages(rewards, values, last, terminated, done, gamma, gae_lambda)
    next_values = torch.cat([values[1:], last[None]])
    for env in range(envs):
        for step in range(steps):
            total, weight = 0.0, 1.0
            for later in range(step, steps):
                bootstrap = 0.0 if terminated[later, env] else next_values[later, env].item()
                error = rewards[later, env].item() + gamma * bootstrap - values[later, env].item()
                total += weight * error
                weight *= gamma * gae_lambda
                if done[later, env]:
                    break
            assert advantage[step, env].item() == pytest.approx(total)


def test_advantages_are_normalised_over_the_valid_steps():
    advantage, valid = torch.tensor([[1.0, 50.0], [3.0, 5.0]]), torch.tensor([[True, False], [True, True]])
    inside = normalise(advantage, valid)[valid]
    assert inside.mean().item() == pytest.approx(0, abs=1e-6)
    assert inside.std(correction=0).item() == pytest.approx(1, abs=1e-6)


def test_small_advantages_are_not_scaled_up():
    """Before the first reward advantages stay small, and the entropy bonus prevails."""
    advantage, valid = torch.tensor([[0.01], [-0.01]]), torch.ones(2, 1, dtype=torch.bool)
    assert normalise(advantage, valid).flatten().tolist() == pytest.approx([0.1, -0.1])
