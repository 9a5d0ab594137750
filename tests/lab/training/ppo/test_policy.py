"""Policies of any layer: steps equal the sequence, resets clear the state, a full memory is trimmed."""

import pytest
import torch

from plait.lab.tasks.minigrid import make_vec_env
from plait.lab.tasks.minigrid.observation import grid_actions
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.learner import PolicyLearner
from plait.lab.training.ppo.policy import build_policy
from plait.lab.training.ppo.rollout import Collector
from plait.lab.training.recipe import PPOConfig
from plait.models import State

MODELS = ["none", "lstm", "rellstm", "relgru", "memlstm", "sab", "transformer", "bounded transformer"]
CPU = torch.device("cpu")


def rollouts(policy, count=3, steps=12, num_envs=4, env="GoToDoor-5x5", seed=0):
    collector = Collector(make_vec_env(env, num_envs, seed), CPU)
    return [collector.collect(policy, steps, generator_for(seed, "train", n, CPU)) for n in range(count)]


@pytest.mark.parametrize("model", MODELS)
def test_replaying_a_rollout_from_its_initial_state_gives_the_same_logits(described, model):
    """PPO relies on it: before a step of the optimiser every ratio is 1, with resets within the rollout."""
    policy = build_policy(described(model))
    for rollout in rollouts(policy):
        logits, values, _ = policy(rollout.observation, rollout.state, reset=rollout.episode_starts)
        torch.testing.assert_close(logits, rollout.logits, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(values, rollout.values, atol=1e-6, rtol=1e-4)
    assert rollout.episode_starts.any()
    assert not rollout.valid.all()


@pytest.mark.parametrize("model", [m for m in MODELS if m != "none"])
def test_a_reset_clears_the_state(described, model):
    policy = build_policy(described(model))
    rollout = rollouts(policy, count=1)[0]
    reset = torch.zeros_like(rollout.episode_starts)
    reset[5] = True
    whole = policy(rollout.observation, reset=reset)[1]
    fresh = policy(rollout.observation.map(lambda part: part[5:]))[1]
    torch.testing.assert_close(whole[5:], fresh, atol=1e-6, rtol=1e-4)
    without_reset = policy(rollout.observation)[1]
    assert not torch.allclose(without_reset[5:], fresh, atol=1e-6)


def test_the_step_after_an_end_is_not_valid(described):
    """The action on an episode's last observation is ignored; the next episode starts instead."""
    rollout = rollouts(build_policy(described()), count=1, steps=40)[0]
    assert torch.equal(~rollout.valid[1:], rollout.done[:-1])
    assert torch.equal(rollout.episode_starts[2:], rollout.done[:-2])
    assert not rollout.rewards[~rollout.valid].any()
    assert rollout.episode_starts[0].all()
    assert len(rollout.episodes) == int(rollout.done.sum())


def test_episodes_add_up_over_rollouts(described):
    policy = build_policy(described())
    parts = rollouts(policy, count=12, steps=10, env="Empty-5x5", num_envs=6)
    episodes = [episode for part in parts for episode in part.episodes]
    assert sum(e.reward for e in episodes) == pytest.approx(
        sum(p.rewards.sum().item() for p in parts), abs=1e-5
    )
    # The length of an episode is the number of its valid steps.
    length = torch.zeros(6, dtype=torch.int64)
    expected = []
    for part in parts:
        for valid, done in zip(part.valid, part.done, strict=True):
            length += valid
            expected += length[done].tolist()
            length[done] = 0
    assert [e.length for e in episodes] == expected
    assert expected


def test_a_full_memory_has_as_many_slots_as_the_longest_open_episode(described):
    policy = build_policy(described("memlstm"))
    parts = rollouts(policy, count=8, steps=10)
    ages = [part.state.memory[0].age for part in parts[1:]]
    widths = [part.state.memory[0].born.shape[1] for part in parts[1:]]
    assert widths == [int(age.max()) for age in ages]
    assert widths[-1] < 70  # 80 steps were played


def test_a_bounded_memory_keeps_its_slots(described):
    policy = build_policy(described("rellstm"))
    assert all(part.state.memory[0].born.shape[1] == 10 for part in rollouts(policy)[1:])


def test_sampling_follows_the_probabilities():
    probabilities = torch.tensor([0.5, 0.3, 0.1, 0.05, 0.05, 0.0, 0.0])
    samples = grid_actions().sample(
        probabilities.log(), grid_actions().noise((20000,), torch.Generator().manual_seed(0))
    )
    shares = torch.bincount(samples, minlength=7) / 20000
    torch.testing.assert_close(shares, probabilities, atol=0.012, rtol=0)


def test_minibatches_contain_every_environment_once_per_epoch(described):
    ppo = PPOConfig(n_envs=10, n_minibatches=3, n_epochs=2)
    learner = PolicyLearner(build_policy(described()), ppo, CPU)
    parts = [part.tolist() for part in learner._minibatches(1)]
    assert [len(part) for part in parts] == [4, 3, 3, 4, 3, 3]
    for epoch in (parts[:3], parts[3:]):
        assert sorted(env for part in epoch for env in part) == list(range(10))
    assert parts[:3] != parts[3:]


def test_an_update_makes_rewarded_actions_likelier(described):
    """Where only turning left is rewarded, it becomes likelier."""
    policy = build_policy(described())
    ppo = PPOConfig(n_envs=4, n_steps=12, n_minibatches=1, lr=1e-2, gamma=0.0)
    learner = PolicyLearner(policy, ppo, CPU)
    rollout = rollouts(policy, count=1)[0]
    rollout = rollout._replace(rewards=(rollout.actions == 0).float())
    learner.update(1, rollout)
    after = policy(rollout.observation, rollout.state, reset=rollout.episode_starts)[0].softmax(-1)
    before = rollout.logits.softmax(-1)
    assert (after[..., 0] > before[..., 0])[rollout.valid].float().mean() > 0.9


def test_a_gradient_whose_squares_overflow_is_clipped(described):
    """Elements of 1e25 are finite in float32, their squares are not."""
    policy = build_policy(described())
    learner = PolicyLearner(policy, PPOConfig(n_envs=4, n_steps=12, n_minibatches=1), CPU)
    weight = policy.actor[-1].weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, 1e25))
    step = learner.update(1, rollouts(policy, count=1)[0])
    assert step.gradient_norm == pytest.approx(1e25 * weight.numel() ** 0.5, rel=1e-4)
    assert torch.isfinite(weight).all()


def test_a_policy_without_a_state_has_none_to_detach(described):
    bounded, none = (build_policy(described(model)) for model in ("rellstm", "none"))
    assert bounded.detach_state(None) is None
    hidden = torch.zeros(1, 2, 8)
    assert none.detach_state(State(hidden, hidden, ())) is None
