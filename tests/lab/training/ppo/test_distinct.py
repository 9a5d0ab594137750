"""Observations kept once: the same outputs and gradients as when every one is read."""

import pytest
import torch
from torch import nn

from plait.lab.tasks.environments.base import Observation
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.encoders import Distinct, distinct
from plait.lab.training.ppo.policy import build_policy, describe_policy
from plait.lab.training.ppo.rollout import Collector
from plait.lab.training.recipe import Settings

CPU = torch.device("cpu")


def test_every_byte_tells_observations_apart():
    seen = Observation((torch.tensor([[0.0, -0.0, 0.0]]), torch.tensor([[[1, 2], [1, 2], [1, 3]]])))
    found = distinct(seen, CPU)
    assert found.place.shape == (1, 3)
    assert len(found.rows[0]) == 3
    twice = distinct(seen.map(lambda part: torch.cat([part, part])), CPU)
    assert len(twice.rows[0]) == 3
    assert torch.equal(twice.place[0], twice.place[1])
    for part, rows in zip(seen, found.rows, strict=True):
        assert torch.equal(rows[found.place], part)


@pytest.mark.parametrize(
    ("env", "family"), [("GoToDoor-5x5", "minigrid"), ("RepeatFirstEasy", "popgym"), ("CartPole", "gym")]
)
def test_an_update_sees_and_learns_the_same(env, family):
    policy = build_policy(describe_policy(env, "rellstm", Settings(), family=family, hidden_size=8))
    collector = Collector(policy.family.open(env if family != "gym" else "CartPole-v1", 6, 0), CPU)
    rollout = collector.collect(policy, 20, generator_for(0, "train", 1, CPU))
    prepared = policy.prepared(rollout.observation, CPU)
    assert isinstance(prepared, Distinct)
    worlds = torch.tensor([4, 1])
    outcomes = []
    for seen in (rollout.observation, prepared):
        taken = seen.map(lambda part: part.index_select(1, worlds))
        logits, values, _ = policy(taken, reset=rollout.begins[:, worlds])
        loss = logits.sin().sum() + values.sin().sum()
        outcomes.append((logits, values, *torch.autograd.grad(loss, list(policy.parameters()))))
    for plain, once in zip(*outcomes, strict=True):
        torch.testing.assert_close(once, plain, atol=1e-5, rtol=1e-4)
    if family == "minigrid":
        assert len(prepared.rows[0]) < 0.7 * prepared.place.numel()


class Batched(nn.Module):
    """An encoder that looks at the others in its batch."""

    def __init__(self, space, features):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, features), nn.BatchNorm1d(features)

    def forward(self, seen):
        return self.norm(self.layer(seen))


def test_an_encoder_of_ones_own_reads_everything():
    described = describe_policy("CartPole", "gru", Settings(), family="gym", hidden_size=8, encoder=Batched)
    policy = build_policy(described)
    seen = Observation((torch.zeros(3, 2, 4),))
    assert torch.equal(policy.prepared(seen, CPU)[0], seen[0])
