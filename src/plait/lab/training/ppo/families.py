"""Families of environments: their names and options, how they are opened, displayed and acted in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from torch import nn

from plait.errors import ConfigError, check_choice, check_int
from plait.lab.own_code import by_name
from plait.lab.tasks import minigrid
from plait.lab.tasks.minigrid.names import BACKENDS, check_transfer, world_named
from plait.lab.tasks.minigrid.seen import MOVES
from plait.lab.tasks.worlds import names, popgym
from plait.lab.tasks.worlds.actions import Actions
from plait.lab.tasks.worlds.base import Worlds
from plait.lab.tasks.worlds.gym import EnvSpec, GymWorlds
from plait.lab.training.ppo.encoders import Encoder, OwnEncoder, SpaceEncoder
from plait.lab.training.ppo.stage import Stage, grid_stage, gym_stage

__all__ = ["FAMILIES", "Family", "family_of"]


class Family(ABC):
    """Base class of the families of environments.

    Args:
        task: the task of a description: `name` of the family, `env`, `test_env` and the family's options.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    """Options of a task in addition to the two environments."""
    succeeds: ClassVar[bool] = False
    """Whether an episode with a positive return is a success."""
    best_mean: ClassVar[bool] = False
    """Whether the best mean return of training (MMER) is reported."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task

    def checked(self) -> dict[str, Any]:
        """Validate the task and return it with the full names of its environments."""
        task = {**self.task, "test_env": self.task.get("test_env")}
        for option in task:
            check_choice(option, ("name", "env", "test_env", *self.options), f"option of {self.name}")
        task["env"] = self.named(task["env"])
        if task["test_env"] is not None:
            task["test_env"] = self.named(task["test_env"])
            self.check_transfer(task["env"], task["test_env"])
        return task

    @abstractmethod
    def named(self, env: str) -> str:
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
    def numbers(self) -> int:
        """Number of values of an observation, as an update reads it."""

    @abstractmethod
    def encoder(self, features: int) -> nn.Module:
        """Return a module that maps an observation to a vector."""

    @abstractmethod
    def open(self, env: str, envs: int, seed: int = 0, held_out: bool = False) -> Worlds:
        """Open `envs` copies of an environment of this family."""

    @abstractmethod
    def stage(self, env: str, seed: int, drawn: bool, tile: int) -> Stage:
        """Open one environment to watch; `drawn` adds pictures, of `tile` pixels per cell in grid worlds."""


class MiniGrid(Family):
    """MiniGrid's environments, by Farama's or EnvPool's implementation."""

    name = "minigrid"
    options = ("backend",)
    succeeds = True

    def checked(self) -> dict[str, Any]:
        check_choice(self.task["backend"], BACKENDS, "backend")
        return super().checked()

    def named(self, env: str) -> str:
        return world_named(env)

    def check_transfer(self, trained: str, tested: str) -> None:
        check_transfer(trained, tested)

    @property
    def actions(self) -> Actions:
        return MOVES

    @property
    def numbers(self) -> int:
        return Encoder.numbers

    def encoder(self, features: int) -> nn.Module:
        return Encoder(features)

    def open(self, env: str, envs: int, seed: int = 0, held_out: bool = False) -> Worlds:
        return minigrid.open_worlds(env, envs, seed, held_out, self.task["backend"])

    def stage(self, env: str, seed: int, drawn: bool, tile: int) -> Stage:
        return grid_stage(self.named(env), seed, tile)


class Gym(Family):
    """Any environment of gymnasium's interface, by its id or by a function that makes it."""

    name = "gym"
    options: ClassVar[tuple[str, ...]] = ("time_limit", "encoder")

    def checked(self) -> dict[str, Any]:
        if "time_limit" in self.task:
            check_int(1, time_limit=self.task["time_limit"])
        task = super().checked()
        if "encoder" in task:
            by_name(task["encoder"], "encoder")
        return task

    def named(self, env: str) -> str:
        return names.world_id(env)

    def check_transfer(self, trained: str, tested: str) -> None:
        first, other = self._kind(trained), self._kind(tested)
        for what, here, there in zip(("observations", "actions"), first.spaces, other.spaces, strict=True):
            if here != there:
                raise ConfigError(
                    f"test_env: {tested} does not match {trained}: expected {what} {here}, got {there}"
                )

    @cached_property
    def kind(self) -> EnvSpec:
        """Spec of the training environment."""
        return self._kind(self.task["env"])

    @property
    def actions(self) -> Actions:
        return self.kind.actions

    @property
    def numbers(self) -> int:
        return self.kind.observed.numbers

    def encoder(self, features: int) -> nn.Module:
        if "encoder" in self.task:
            return OwnEncoder(self.task["encoder"], self.kind.observed, features)
        return SpaceEncoder(self.kind.observed, features)

    def open(self, env: str, envs: int, seed: int = 0, held_out: bool = False) -> Worlds:
        env = self.named(env)
        return GymWorlds(self.kind if env == self.task["env"] else self._kind(env), envs, seed, held_out)

    def stage(self, env: str, seed: int, drawn: bool, tile: int) -> Stage:
        return gym_stage(self.named(env), seed, drawn, self.maker)

    def _kind(self, env: str) -> EnvSpec:
        return EnvSpec(env, self.maker(env))

    def maker(self, env: str, **options: Any) -> Callable[[], Any]:
        """Return a function that makes one environment; `options` are those of gymnasium's `make`."""
        return names.maker_of(env, self.task.get("time_limit"), **options)


class PopGym(Gym):
    """POPGym's environments, whose observations include the previous action and an episode-start flag."""

    name = "popgym"
    options = ("encoder",)
    best_mean = True

    def named(self, env: str) -> str:
        return popgym.world_named(env)

    def maker(self, env: str, **options: Any) -> Callable[[], Any]:
        return lambda: popgym.make_world(env, **options)


FAMILIES: dict[str, type[Family]] = {family.name: family for family in (MiniGrid, Gym, PopGym)}


def family_of(task: dict[str, Any]) -> Family:
    """Return the family of a description's task."""
    return FAMILIES[check_choice(task["name"], FAMILIES, "family of worlds")](task)
