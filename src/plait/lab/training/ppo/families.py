"""Families of environments: their names and options, constructors, encoders, actions and viewers."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from plait.errors import ConfigError, UnknownNameError, check_choice, check_int
from plait.lab.own_code import by_name
from plait.lab.tasks import minigrid
from plait.lab.tasks.environments import names, popgym
from plait.lab.tasks.environments.actions import Actions
from plait.lab.tasks.environments.base import Observation, VectorEnv
from plait.lab.tasks.environments.gym import EnvSpec, GymVectorEnv
from plait.lab.tasks.minigrid.names import BACKENDS, canonical_name, check_transfer
from plait.lab.tasks.minigrid.observation import GridObservation, grid_actions
from plait.lab.tasks.minigrid.vocabulary import mission_tokens
from plait.lab.training.ppo.encoders import GridEncoder, OwnEncoder, SpaceEncoder
from plait.lab.training.ppo.viewer import Viewer, grid_viewer, gym_viewer

__all__ = ["FAMILIES", "Family", "family_of", "guess_family"]


class Family(ABC):
    """Base class of the families of environments.

    Args:
        task: the task of a description: `name` of the family, `env`, `test_env` and the family's options.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    """Options of a task in addition to the two environments."""
    has_success: ClassVar[bool] = False
    """True if an episode with a positive return is a success."""
    reports_mmer: ClassVar[bool] = False
    """True if the best mean return of training (MMER) is reported."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task

    def parse_task(self) -> dict[str, Any]:
        """Validate the task and return it with the full names of its environments."""
        task = {**self.task, "test_env": self.task.get("test_env")}
        for option in task:
            check_choice(option, ("name", "env", "test_env", *self.options), f"option of {self.name}")
        task["env"] = self.canonical_name(task["env"])
        if task["test_env"] is not None:
            task["test_env"] = self.canonical_name(task["test_env"])
            self.check_transfer(task["env"], task["test_env"])
        return task

    @abstractmethod
    def canonical_name(self, env: str) -> str:
        """Return the name of an environment as in a description."""

    @abstractmethod
    def check_transfer(self, trained: str, tested: str) -> None:
        """Refuse a test environment that does not fit a policy trained in the other one."""

    @property
    @abstractmethod
    def actions(self) -> Actions:
        """The actions of the environment."""

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """Number of values of an observation, as an update reads it."""

    @abstractmethod
    def encoder(self, features: int) -> nn.Module:
        """Build a module that maps an observation to a vector."""

    @abstractmethod
    def make_vec_env(self, env: str, num_envs: int, seed: int = 0, held_out: bool = False) -> VectorEnv:
        """Make `num_envs` copies of an environment of this family."""

    @abstractmethod
    def observe(self, observation: Any) -> Any:
        """Return an observation, as one environment returns it, as tensors (1, …)."""

    @abstractmethod
    def viewer(self, env: str, seed: int, pictures: bool, tile: int) -> Viewer:
        """Return a viewer of one environment; `tile` is the size in pixels of a grid world's cell."""


class MiniGrid(Family):
    """MiniGrid's environments, by Farama's or EnvPool's implementation."""

    name = "minigrid"
    options = ("backend",)
    has_success = True

    def parse_task(self) -> dict[str, Any]:
        check_choice(self.task["backend"], BACKENDS, "backend")
        return super().parse_task()

    def canonical_name(self, env: str) -> str:
        return canonical_name(env)

    def check_transfer(self, trained: str, tested: str) -> None:
        check_transfer(trained, tested)

    @property
    def actions(self) -> Actions:
        return grid_actions()

    @property
    def observation_size(self) -> int:
        return GridEncoder.observation_size

    def encoder(self, features: int) -> nn.Module:
        return GridEncoder(features)

    def make_vec_env(self, env: str, num_envs: int, seed: int = 0, held_out: bool = False) -> VectorEnv:
        return minigrid.make_vec_env(env, num_envs, seed, held_out, self.task["backend"])

    def observe(self, observation: Any) -> Any:
        tokens = np.asarray(mission_tokens(observation["mission"]), np.uint8)
        parts = (np.asarray(observation[name], np.uint8) for name in ("image", "direction"))
        return GridObservation(*(torch.from_numpy(np.array(part)[None]) for part in (*parts, tokens)))

    def viewer(self, env: str, seed: int, pictures: bool, tile: int) -> Viewer:
        return grid_viewer(self.canonical_name(env), seed, tile)


class Gym(Family):
    """Any environment of gymnasium's interface, by its id or by a function that makes it."""

    name = "gym"
    options: ClassVar[tuple[str, ...]] = ("time_limit", "encoder")

    def parse_task(self) -> dict[str, Any]:
        if "time_limit" in self.task:
            check_int(1, time_limit=self.task["time_limit"])
        task = super().parse_task()
        if "encoder" in task:
            by_name(task["encoder"], "encoder")
        return task

    def canonical_name(self, env: str) -> str:
        return names.env_id(env)

    def check_transfer(self, trained: str, tested: str) -> None:
        first, other = self._spec_of(trained), self._spec_of(tested)
        for what, here, there in zip(("observations", "actions"), first.spaces, other.spaces, strict=True):
            if here != there:
                raise ConfigError(
                    f"test_env: {tested} does not match {trained}: expected {what} {here}, got {there}"
                )

    @cached_property
    def spec(self) -> EnvSpec:
        """Spec of the training environment."""
        return self._spec_of(self.task["env"])

    @property
    def actions(self) -> Actions:
        return self.spec.actions

    @property
    def observation_size(self) -> int:
        return self.spec.observations.size

    def encoder(self, features: int) -> nn.Module:
        if "encoder" in self.task:
            return OwnEncoder(self.task["encoder"], self.spec.observations, features)
        return SpaceEncoder(self.spec.observations, features)

    def make_vec_env(self, env: str, num_envs: int, seed: int = 0, held_out: bool = False) -> VectorEnv:
        env = self.canonical_name(env)
        spec = self.spec if env == self.task["env"] else self._spec_of(env)
        return GymVectorEnv(spec, num_envs, seed, held_out)

    def observe(self, observation: Any) -> Any:
        space = self.spec.observations
        buffers = [np.zeros((1, *leaf.buffer[0]), leaf.buffer[1]) for leaf in space.leaves]
        try:
            space.writer(buffers)(0, observation)
        except (TypeError, ValueError, LookupError) as error:
            raise ConfigError(f"observation: expected one of {space.space}, got another ({error})") from error
        return Observation(torch.from_numpy(buffer) for buffer in buffers)

    def viewer(self, env: str, seed: int, pictures: bool, tile: int) -> Viewer:
        return gym_viewer(self.canonical_name(env), seed, pictures, self.constructor)

    def _spec_of(self, env: str) -> EnvSpec:
        return EnvSpec(env, self.constructor(env))

    def constructor(self, env: str, **options: Any) -> Callable[[], Any]:
        """Return a function that makes one environment; `options` are those of gymnasium's `make`."""
        return names.env_constructor(env, self.task.get("time_limit"), **options)


class PopGym(Gym):
    """POPGym's environments, whose observations include the previous action and an episode-start flag."""

    name = "popgym"
    options = ("encoder",)
    reports_mmer = True

    def canonical_name(self, env: str) -> str:
        return popgym.canonical_name(env)

    def constructor(self, env: str, **options: Any) -> Callable[[], Any]:
        return lambda: popgym.make_env(env, **options)

    def viewer(self, env: str, seed: int, pictures: bool, tile: int) -> Viewer:
        name = self.canonical_name(env)
        return gym_viewer(name, seed, pictures, self.constructor, ("previous action", "first step"))


FAMILIES: dict[str, type[Family]] = {family.name: family for family in (MiniGrid, Gym, PopGym)}


def guess_family(env: str) -> str:
    """Return the name of the family that an environment's name belongs to: gym if to no other.

    >>> guess_family("DoorKey-5x5"), guess_family("popgym-RepeatFirstEasy-v0"), guess_family("CartPole-v1")
    ('minigrid', 'popgym', 'gym')
    """
    for name in ("minigrid", "popgym"):
        with contextlib.suppress(UnknownNameError):
            (minigrid.names if name == "minigrid" else popgym).canonical_name(env)
            return name
    return "gym"


def family_of(task: dict[str, Any]) -> Family:
    """Return the family of a description's task."""
    return FAMILIES[check_choice(task["name"], FAMILIES, "family of environments")](task)
