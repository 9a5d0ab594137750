"""Evaluation on held-out episodes: the whole first episode of each environment, and nothing else."""

import pytest
import torch

from plait.lab.tasks import minigrid
from plait.lab.training.ppo.policy import build_policy
from plait.lab.training.ppo.rollout import evaluate_policy


@pytest.fixture
def recorded(monkeypatch):
    """Record the time steps of an evaluation's environments, and the arguments they were made with."""
    timesteps, calls = [], []

    def make_recorded(*arguments, **options):
        calls.append((arguments, options))
        env = make_vec_env(*arguments, **options)
        step = env.step

        def recorded_step(actions):
            timesteps.append(step(actions))
            return timesteps[-1]

        env.step = recorded_step
        return env

    make_vec_env = minigrid.make_vec_env
    monkeypatch.setattr(minigrid, "make_vec_env", make_recorded)
    return timesteps, calls


@pytest.mark.parametrize("greedy", [False, True])
def test_scores_are_means_over_first_episodes(described, recorded, greedy):
    timesteps, calls = recorded
    torch.manual_seed(0)
    policy = build_policy(described(seed=3))
    scores = evaluate_policy(policy, "GoToDoor-5x5", 12, seed=5, greedy=greedy)
    assert calls[0][0] == ("GoToDoor-5x5", 12, 5, True, "minigrid")
    returns, lengths = [], []
    for env in range(12):
        first = next(i for i, timestep in enumerate(timesteps) if timestep.done[env])
        lengths.append(first + 1)
        returns.append(sum(timestep.reward[env].item() for timestep in timesteps[: first + 1]))
    assert scores["score"] == pytest.approx(sum(returns) / 12)
    assert scores["length"] == pytest.approx(sum(lengths) / 12)
    assert scores["success"] == pytest.approx(sum(r > 0 for r in returns) / 12)
    assert max(lengths) == len(timesteps)


def test_later_episodes_do_not_count(described, recorded):
    """Some environments are rewarded again while the slowest is still in its first episode."""
    timesteps, _ = recorded
    scores = evaluate_policy(build_policy(described("none")), "GoToDoor-5x5", 64, seed=1)
    all_rewards = sum(timestep.reward.sum().item() for timestep in timesteps) / 64
    assert 0 < scores["score"] < all_rewards


def test_the_time_limit_ends_an_episode(described):
    """A policy that only turns never reaches the goal."""
    policy = build_policy(described("none"))
    with torch.no_grad():
        policy.actor[-1].bias[0] = 1e4
    scores = evaluate_policy(policy, "Empty-5x5", 3)
    assert scores == {"score": 0.0, "success": 0.0, "length": 100.0}


def test_evaluation_keeps_the_mode_of_the_policy(described):
    policy = build_policy(described()).train()
    evaluate_policy(policy, "GoToDoor-5x5", 2)
    assert policy.training
