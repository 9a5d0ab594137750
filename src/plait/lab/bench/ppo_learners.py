"""The learners of `plait bench rl`, with collection and update timed separately."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from plait.lab.bench import recurrent_ppo
from plait.lab.bench.timing import Times
from plait.lab.training.recipe import PPOConfig

__all__ = ["PlaitPPO", "Record", "StableBaselinesPPO", "TimedLearner", "take_turns_playing"]


class TimedLearner(Protocol):
    """A learner that alternates between a rollout of `steps` steps, over all environments, and an update."""

    steps: int

    def play(self) -> None: ...

    def learn(self) -> None: ...


class PlaitPPO:
    """PPO as in `plait train minigrid`, without evaluation and checkpoints.

    >>> ppo = PPOConfig(n_envs=2, n_steps=4, n_minibatches=1, n_epochs=1)
    >>> learner = PlaitPPO("Empty-5x5", "minigrid", "lstm", 8, ppo)
    >>> learner.play(), learner.learn(), learner.steps
    (None, None, 8)
    """

    def __init__(self, env_name: str, backend: str, model: str, hidden: int, ppo: PPOConfig) -> None:
        from plait.lab.tasks.minigrid import make_vec_env
        from plait.lab.training.ppo.learner import PolicyLearner
        from plait.lab.training.ppo.policy import build_policy, describe_policy
        from plait.lab.training.ppo.rollout import Collector

        device = torch.device("cpu")
        policy = build_policy(describe_policy(env_name, model, ppo, backend=backend, hidden_size=hidden))
        self.learner = PolicyLearner(policy, ppo, device)
        env = make_vec_env(env_name, ppo.n_envs, ppo.seed, backend=backend)
        self.collector = Collector(env, device)
        self.steps, self.updates = ppo.n_envs * ppo.n_steps, 0
        self.generator = torch.Generator().manual_seed(ppo.seed)
        self.rollout: Any = None

    def play(self) -> None:
        steps = self.learner.config.n_steps
        self.rollout = self.collector.collect(self.learner.policy, steps, self.generator)

    def learn(self) -> None:
        self.updates += 1
        self.learner.update(self.updates, self.rollout)


class StableBaselinesPPO:
    """RecurrentPPO of Stable-Baselines3."""

    def __init__(self, model: Any) -> None:
        self.model, self.callback = model, None
        self.steps = model.n_steps * model.n_envs

    def play(self) -> None:
        self.callback = recurrent_ppo.play(self.model, self.callback)

    def learn(self) -> None:
        self.model.train()


@dataclass
class Record:
    """Seconds per environment step of one learner, a value for each round."""

    steps: int
    playing: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)

    def add(self, playing: float, learning: float) -> None:
        self.playing.append(playing / self.steps)
        self.training.append((playing + learning) / self.steps)

    @property
    def collection(self) -> Times:
        return Times(tuple(self.playing))

    @property
    def collection_and_update(self) -> Times:
        """Seconds per step of a rollout and its update together."""
        return Times(tuple(self.training))


def take_turns_playing(learners: dict[Any, TimedLearner], rounds: int, warm_up: int) -> dict[Any, Record]:
    """Time every learner in turn, `rounds` times: one rollout and one update each.

    The warm-up is `warm_up` rollouts, so that a growing memory reaches its typical size, and an update.
    Garbage collection stays on, as in training.
    """
    records = {name: Record(learner.steps) for name, learner in learners.items()}
    for learner in learners.values():
        for _ in range(warm_up):
            learner.play()
        learner.learn()
    for _ in range(rounds):
        for name, learner in learners.items():
            begin = time.perf_counter()
            learner.play()
            between = time.perf_counter()
            learner.learn()
            records[name].add(between - begin, time.perf_counter() - between)
    return records
