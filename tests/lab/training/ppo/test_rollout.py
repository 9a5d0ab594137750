"""A look at held-out episodes: each world's first episode, whole, and nothing else."""

import pytest
import torch

from plait.lab.tasks import minigrid
from plait.lab.training.ppo.policy import build_policy
from plait.lab.training.ppo.rollout import evaluate_policy


@pytest.fixture
def recorded(monkeypatch):
    """Every timestep of the worlds an evaluation opens, and the arguments it opened them with."""
    timesteps, opened = [], []

    def spying(*arguments, **options):
        opened.append((arguments, options))
        worlds = honest(*arguments, **options)
        step = worlds.step

        def remembered(actions):
            timesteps.append(step(actions))
            return timesteps[-1]

        worlds.step = remembered
        return worlds

    honest = minigrid.make_vec_env
    monkeypatch.setattr(minigrid, "make_vec_env", spying)
    return timesteps, opened


@pytest.mark.parametrize("greedy", [False, True])
def test_is_the_mean_over_first_episodes(described, recorded, greedy):
    timesteps, opened = recorded
    torch.manual_seed(0)
    policy = build_policy(described(seed=3))
    found = evaluate_policy(policy, "GoToDoor-5x5", 12, seed=5, greedy=greedy)
    name, envs, seed, held_out, backend = opened[0][0]
    assert (name, envs, seed, held_out, backend) == ("GoToDoor-5x5", 12, 5, True, "minigrid")
    returns, lengths = [], []
    for world in range(12):
        first = next(i for i, timestep in enumerate(timesteps) if timestep.ended[world])
        lengths.append(first + 1)
        returns.append(sum(timestep.reward[world].item() for timestep in timesteps[: first + 1]))
    assert found["score"] == pytest.approx(sum(returns) / 12)
    assert found["length"] == pytest.approx(sum(lengths) / 12)
    assert found["success"] == pytest.approx(sum(r > 0 for r in returns) / 12)
    assert max(lengths) == len(timesteps)


def test_later_episodes_do_not_count(described, recorded):
    """Some worlds are rewarded again while the slowest one still plays its first episode."""
    timesteps, _ = recorded
    found = evaluate_policy(build_policy(described("none")), "GoToDoor-5x5", 64, seed=1)
    everything = sum(timestep.reward.sum().item() for timestep in timesteps) / 64
    assert 0 < found["score"] < everything


def test_time_that_is_up_ends_an_episode(described):
    """A policy that only turns never gets anywhere."""
    policy = build_policy(described("none"))
    with torch.no_grad():
        policy.actor[-1].bias[0] = 1e4
    found = evaluate_policy(policy, "Empty-5x5", 3)
    assert found == {"score": 0.0, "success": 0.0, "length": 100.0}


def test_leaves_the_policy_as_it_was(described):
    policy = build_policy(described()).train()
    evaluate_policy(policy, "GoToDoor-5x5", 2)
    assert policy.training
