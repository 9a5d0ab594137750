"""Unique observations of a rollout: outputs and gradients equal those of encoding every observation."""

import pytest
import torch
from torch import nn

from plait.lab.tasks.environments.base import Observation
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.encoders import UniqueObservations, unique_observations
from plait.lab.training.ppo.policy import build_policy, describe_policy
from plait.lab.training.ppo.rollout import Collector
from plait.lab.training.recipe import PPOConfig

CPU = torch.device("cpu")


def test_observations_that_differ_in_a_byte_are_distinct():
    observation = Observation((torch.tensor([[0.0, -0.0, 0.0]]), torch.tensor([[[1, 2], [1, 2], [1, 3]]])))
    unique = unique_observations(observation, CPU)
    assert unique.index.shape == (1, 3)
    assert len(unique.rows[0]) == 3
    twice = unique_observations(observation.map(lambda part: torch.cat([part, part])), CPU)
    assert len(twice.rows[0]) == 3
    assert torch.equal(twice.index[0], twice.index[1])
    for part, rows in zip(observation, unique.rows, strict=True):
        assert torch.equal(rows[unique.index], part)


@pytest.mark.parametrize(
    ("env", "family"), [("GoToDoor-5x5", "minigrid"), ("RepeatFirstEasy", "popgym"), ("CartPole", "gym")]
)
def test_outputs_and_gradients_of_an_update_are_equal(env, family):
    policy = build_policy(describe_policy(env, "rellstm", PPOConfig(), family=family, hidden_size=8))
    collector = Collector(policy.family.make_vec_env(env if family != "gym" else "CartPole-v1", 6, 0), CPU)
    rollout = collector.collect(policy, 20, generator_for(0, "train", 1, CPU))
    prepared = policy.prepare(rollout.observation, CPU)
    assert isinstance(prepared, UniqueObservations)
    envs = torch.tensor([4, 1])
    results = []
    for observation in (rollout.observation, prepared):
        selected = observation.map(lambda part: part.index_select(1, envs))
        logits, values, _ = policy(selected, reset=rollout.episode_starts[:, envs])
        loss = logits.sin().sum() + values.sin().sum()
        results.append((logits, values, *torch.autograd.grad(loss, list(policy.parameters()))))
    for plain, unique in zip(*results, strict=True):
        torch.testing.assert_close(unique, plain, atol=1e-5, rtol=1e-4)
    if family == "minigrid":
        assert len(prepared.rows[0]) < 0.7 * prepared.index.numel()


class Batched(nn.Module):
    """An encoder whose output depends on the whole batch."""

    def __init__(self, space, features):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, features), nn.BatchNorm1d(features)

    def forward(self, observation):
        return self.norm(self.layer(observation))


def test_a_users_encoder_gets_every_observation():
    description = describe_policy("CartPole", "gru", family="gym", hidden_size=8, encoder=Batched)
    policy = build_policy(description)
    observation = Observation((torch.zeros(3, 2, 4),))
    assert torch.equal(policy.prepare(observation, CPU)[0], observation[0])
