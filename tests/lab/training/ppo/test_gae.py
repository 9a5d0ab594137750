"""Generalised advantage estimation against an example worked by hand, and against its definition as a sum."""

import pytest
import torch

from plait.lab.training.ppo.learner import normalised
from plait.lab.training.ppo.rollout import advantages

FIVE = {"rewards": [0.0, 1.0, 0.0, 0.0, 2.0], "values": [1.0, 2.0, 4.0, 8.0, 16.0]}


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def estimate(terminated, truncated, discount=0.5, decay=0.5, last=32.0):
    terminated, truncated = column(terminated, torch.bool), column(truncated, torch.bool)
    rewards, values = column(FIVE["rewards"]), column(FIVE["values"])
    last_values = torch.tensor([last], dtype=torch.float64)
    found = advantages(rewards, values, last_values, terminated, terminated | truncated, discount, decay)
    return found.flatten().tolist()


NEVER = [0, 0, 0, 0, 0]


def test_by_hand_without_an_end():
    """γ = λ = ½. δ = (0 + 1 − 1, 1 + 2 − 2, 0 + 4 − 4, 0 + 8 − 8, 2 + 16 − 16) = (0, 1, 0, 0, 2);
    A_4 = 2, A_3 = 2/4, A_2 = 2/16, A_1 = 1 + 2/64, A_0 = A_1 / 4."""
    assert estimate(NEVER, NEVER) == pytest.approx([1.03125 / 4, 1.03125, 0.125, 0.5, 2])


def test_by_hand_with_a_world_that_ends():
    """Step 1 terminates: δ_1 = 1 − 2 = −1, nothing later reaches back; step 2 is the one that begins anew."""
    found = estimate([0, 1, 0, 0, 0], NEVER)
    assert found[:2] == pytest.approx([0 + -1 / 4, -1])
    assert found[3:] == pytest.approx([0.5, 2])


def test_by_hand_with_time_that_is_up():
    """Step 1 truncates: δ_1 = 1 + γ V_2 − 2 = 1, with V_2 of the last observation, and no A_2 added."""
    assert estimate(NEVER, [0, 1, 0, 0, 0])[:2] == pytest.approx([0.25, 1])


def test_what_follows_an_end_reaches_nothing_before_it():
    """The reward of the step that begins anew is perturbed: only its own advantage moves."""
    before = estimate([0, 1, 0, 0, 0], NEVER)
    FIVE["rewards"][2] += 7
    after = estimate([0, 1, 0, 0, 0], NEVER)
    FIVE["rewards"][2] -= 7
    moved = [a != b for a, b in zip(before, after, strict=True)]
    assert moved == [False, False, True, False, False]


def test_is_the_sum_of_discounted_errors():
    draw = torch.Generator().manual_seed(0)
    steps, worlds, discount, decay = 12, 3, 0.9, 0.8
    rewards, values = torch.rand(2, steps, worlds, generator=draw, dtype=torch.float64)
    last = torch.rand(worlds, generator=draw, dtype=torch.float64)
    ended = torch.rand(steps, worlds, generator=draw) < 0.25
    terminated = ended & (torch.rand(steps, worlds, generator=draw) < 0.5)
    found = advantages(rewards, values, last, terminated, ended, discount, decay)
    following = torch.cat([values[1:], last[None]])
    for world in range(worlds):
        for step in range(steps):
            total, weight = 0.0, 1.0
            for later in range(step, steps):
                ahead = 0.0 if terminated[later, world] else following[later, world].item()
                error = rewards[later, world].item() + discount * ahead - values[later, world].item()
                total += weight * error
                weight *= discount * decay
                if ended[later, world]:
                    break
            assert found[step, world].item() == pytest.approx(total)


def test_normalised_over_what_counts():
    advantage, counted = torch.tensor([[1.0, 50.0], [3.0, 5.0]]), torch.tensor([[True, False], [True, True]])
    inside = normalised(advantage, counted)[counted]
    assert inside.mean().item() == pytest.approx(0, abs=1e-6)
    assert inside.std(correction=0).item() == pytest.approx(1, abs=1e-6)


def test_noise_is_not_blown_up():
    """Where nothing was gained advantages stay small, and the entropy bonus leads."""
    advantage, counted = torch.tensor([[0.01], [-0.01]]), torch.ones(2, 1, dtype=torch.bool)
    assert normalised(advantage, counted).flatten().tolist() == pytest.approx([0.1, -0.1])
