"""Policies of any layer: step by step is the whole sequence, resets forget, a full memory stays small."""

import pytest
import torch

from plait.lab.tasks.minigrid import make_vec_env
from plait.lab.tasks.minigrid.observation import GRID_ACTIONS
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.learner import PolicyLearner
from plait.lab.training.ppo.policy import build_policy
from plait.lab.training.ppo.rollout import Collector
from plait.lab.training.recipe import Settings
from plait.models import State

MODELS = ["none", "lstm", "rellstm", "relgru", "memlstm", "sab", "transformer", "bounded transformer"]
CPU = torch.device("cpu")


def rollouts(policy, count=3, steps=12, envs=4, env="GoToDoor-5x5", seed=0):
    collector = Collector(make_vec_env(env, envs, seed), CPU)
    return [collector.collect(policy, steps, generator_for(seed, "train", n, CPU)) for n in range(count)]


@pytest.mark.parametrize("model", MODELS)
def test_playing_again_from_the_stored_state_gives_the_same_logits(described, model):
    """What PPO stands on: before a step of the optimiser every ratio is 1, whatever was reset on the way."""
    policy = build_policy(described(model))
    for rollout in rollouts(policy):
        logits, values, _ = policy(rollout.observation, rollout.state, reset=rollout.begins)
        torch.testing.assert_close(logits, rollout.logits, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(values, rollout.values, atol=1e-6, rtol=1e-4)
    assert rollout.begins.any()
    assert not rollout.counted.all()


@pytest.mark.parametrize("model", [m for m in MODELS if m != "none"])
def test_a_reset_forgets(described, model):
    policy = build_policy(described(model))
    rollout = rollouts(policy, count=1)[0]
    reset = torch.zeros_like(rollout.begins)
    reset[5] = True
    whole = policy(rollout.observation, reset=reset)[1]
    fresh = policy(rollout.observation.map(lambda part: part[5:]))[1]
    torch.testing.assert_close(whole[5:], fresh, atol=1e-6, rtol=1e-4)
    remembering = policy(rollout.observation)[1]
    assert not torch.allclose(remembering[5:], fresh, atol=1e-6)


def test_steps_that_count_are_those_before_an_end(described):
    """The action on an episode's last observation is ignored by the world and begins the next episode."""
    rollout = rollouts(build_policy(described()), count=1, steps=40)[0]
    assert torch.equal(~rollout.counted[1:], rollout.ended[:-1])
    assert torch.equal(rollout.begins[2:], rollout.ended[:-2])
    assert not rollout.rewards[~rollout.counted].any()
    assert rollout.begins[0].all()
    assert len(rollout.episodes) == int(rollout.ended.sum())


def test_episodes_add_up_over_rollouts(described):
    policy = build_policy(described())
    parts = rollouts(policy, count=12, steps=10, env="Empty-5x5", envs=6)
    episodes = [episode for part in parts for episode in part.episodes]
    assert sum(e.reward for e in episodes) == pytest.approx(
        sum(p.rewards.sum().item() for p in parts), abs=1e-5
    )
    # With an end at every step in sum(ended): lengths are the counted steps up to the last end.
    lasted = torch.zeros(6, dtype=torch.int64)
    expected = []
    for part in parts:
        for counted, ended in zip(part.counted, part.ended, strict=True):
            lasted += counted
            expected += lasted[ended].tolist()
            lasted[ended] = 0
    assert [e.length for e in episodes] == expected
    assert expected


def test_a_full_memory_is_as_wide_as_the_oldest_open_episode(described):
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
    drawn = GRID_ACTIONS.sample(probabilities.log(), GRID_ACTIONS.noise((20000,), torch.Generator().manual_seed(0)))
    shares = torch.bincount(drawn, minlength=7) / 20000
    torch.testing.assert_close(shares, probabilities, atol=0.012, rtol=0)


def test_minibatches_hold_every_world_once_an_epoch(described):
    settings = Settings(envs=10, minibatches=3, epochs=2)
    learner = PolicyLearner(build_policy(described()), settings, CPU)
    parts = [part.tolist() for part in learner._minibatches(1)]
    assert [len(part) for part in parts] == [4, 3, 3, 4, 3, 3]
    for epoch in (parts[:3], parts[3:]):
        assert sorted(world for part in epoch for world in part) == list(range(10))
    assert parts[:3] != parts[3:]


def test_an_update_makes_good_actions_likelier(described):
    """With every reward for turning left, left becomes likelier."""
    policy = build_policy(described())
    settings = Settings(envs=4, rollout=12, minibatches=1, lr=1e-2, discount=0.0)
    learner = PolicyLearner(policy, settings, CPU)
    rollout = rollouts(policy, count=1)[0]
    rollout = rollout._replace(rewards=(rollout.actions == 0).float())
    learner.update(1, rollout)
    after = policy(rollout.observation, rollout.state, reset=rollout.begins)[0].softmax(-1)
    before = rollout.logits.softmax(-1)
    assert (after[..., 0] > before[..., 0])[rollout.counted].float().mean() > 0.9


def test_a_gradient_whose_squares_overflow_is_clipped(described):
    """Elements of 1e25 are finite in float32, their squares are not."""
    policy = build_policy(described())
    learner = PolicyLearner(policy, Settings(envs=4, rollout=12, minibatches=1), CPU)
    weight = policy.actor[-1].weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, 1e25))
    step = learner.update(1, rollouts(policy, count=1)[0])
    assert step.gradient_norm == pytest.approx(1e25 * weight.numel() ** 0.5, rel=1e-4)
    assert torch.isfinite(weight).all()


def test_a_policy_without_a_state_carries_none(described):
    bounded, none = (build_policy(described(model)) for model in ("rellstm", "none"))
    assert bounded.carried(None) is None
    hidden = torch.zeros(1, 2, 8)
    assert none.carried(State(hidden, hidden, ())) is None
