"""Who plays in `plait bench rl`: a learner whose two halves, playing and learning, can be timed apart."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from plait.lab.bench import recurrent_ppo
from plait.lab.bench.timing import Times
from plait.lab.training.recipe import Settings

__all__ = ["Ours", "PPOContender", "Peer", "Record", "take_turns_playing"]


class PPOContender(Protocol):
    """A rollout of `steps` steps of all worlds together, then an update from it."""

    steps: int

    def play(self) -> None: ...

    def learn(self) -> None: ...


class Ours:
    """What `plait train minigrid` runs, without evaluation and checkpoints.

    >>> settings = Settings(envs=2, rollout=4, minibatches=1, epochs=1)
    >>> contender = Ours("Empty-5x5", "minigrid", "lstm", 8, settings)
    >>> contender.play(), contender.learn(), contender.steps
    (None, None, 8)
    """

    def __init__(self, world: str, backend: str, model: str, hidden: int, settings: Settings) -> None:
        from plait.lab.tasks.minigrid import open_worlds
        from plait.lab.training.ppo.learner import PolicyLearner
        from plait.lab.training.ppo.policy import build_policy, describe_policy
        from plait.lab.training.ppo.rollout import Collector

        device = torch.device("cpu")
        policy = build_policy(describe_policy(world, model, settings, backend=backend, hidden_size=hidden))
        self.learner = PolicyLearner(policy, settings, device)
        worlds = open_worlds(world, settings.envs, settings.seed, backend=backend)
        self.collector = Collector(worlds, device)
        self.steps, self.updates = settings.envs * settings.rollout, 0
        self.draw = torch.Generator().manual_seed(settings.seed)
        self.rollout: Any = None

    def play(self) -> None:
        rollout = self.learner.settings.rollout
        self.rollout = self.collector.collect(self.learner.policy, rollout, self.draw)

    def learn(self) -> None:
        self.updates += 1
        self.learner.update(self.updates, self.rollout)


class Peer:
    """A RecurrentPPO of Stable-Baselines3."""

    def __init__(self, model: Any) -> None:
        self.model, self.callback = model, None
        self.steps = model.n_steps * model.n_envs

    def play(self) -> None:
        self.callback = recurrent_ppo.play(self.model, self.callback)

    def learn(self) -> None:
        self.model.train()


@dataclass
class Record:
    """Seconds a step of one contender, a value for each round."""

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
    def whole(self) -> Times:
        """Of playing and learning together."""
        return Times(tuple(self.training))


def take_turns_playing(contenders: dict[Any, PPOContender], rounds: int, warm_up: int) -> dict[Any, Record]:
    """Every contender plays one rollout and learns from it, in turn, `rounds` times.

    Before that each warms up: `warm_up` rollouts, so that a memory which grows has its usual size, and an
    update. The collector of garbage stays on, as it is in training.
    """
    records = {name: Record(contender.steps) for name, contender in contenders.items()}
    for contender in contenders.values():
        for _ in range(warm_up):
            contender.play()
        contender.learn()
    for _ in range(rounds):
        for name, contender in contenders.items():
            begin = time.perf_counter()
            contender.play()
            between = time.perf_counter()
            contender.learn()
            records[name].add(between - begin, time.perf_counter() - between)
    return records
