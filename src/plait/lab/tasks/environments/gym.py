"""Environments of gymnasium's interface, by id or by a function that makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import EnvError, MissingExtraError, PlaitError
from plait.lab.tasks.environments.base import Observation
from plait.lab.tasks.environments.serial import SerialVectorEnv
from plait.lab.tasks.environments.spaces import ObservationSpace, actions_of

__all__ = ["EnvSpec", "GymVectorEnv", "make_env"]


class EnvSpec:
    """Spec of an environment: its constructor, its observations and its actions.

    The spaces are read from an environment that is made and closed at once.

    Args:
        make: makes one environment.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make
        env = make_env(name, make)
        self.observations = ObservationSpace(env.observation_space, name)
        self.actions = actions_of(env.action_space, name)
        self.spaces = env.observation_space, env.action_space
        metadata = getattr(env, "metadata", None) or {}
        self.render_modes: tuple[str, ...] = tuple(metadata.get("render_modes", ()))
        env.close()


class GymVectorEnv(SerialVectorEnv):
    """`num_envs` copies of an environment, stepped one after the other."""

    def __init__(self, spec: EnvSpec, num_envs: int, seed: int = 0, held_out: bool = False) -> None:
        self.spec = spec
        leaves = spec.observations.leaves
        self.fields = tuple(f"observation.{leaf.name}" for leaf in leaves)

        def make() -> Any:
            return make_env(spec.name, spec.make)

        buffers = [leaf.buffer for leaf in leaves]
        super().__init__(spec.name, num_envs, seed, held_out, spec.actions, make, buffers)
        self._write = spec.observations.writer(self._buffers)

    def observation_from(self, parts: Iterable[Tensor]) -> Observation:
        return Observation(parts)

    def contains(self, observation: Observation) -> bool:
        leaves = self.spec.observations.leaves
        return all(leaf.contains(part) for leaf, part in zip(leaves, observation, strict=True))

    def frame(self, env: int = 0) -> np.ndarray[Any, Any]:
        """Return an environment's rendering, (height, width, 3) uint8."""
        try:
            return np.asarray(self._envs[env].render())
        except Exception as error:
            raise self._failure(error, env, "render()") from error

    def _store(self, env: int, observation: Any) -> None:
        self._write(env, observation)


def make_env(name: str, make: Callable[[], Any]) -> Any:
    """Make one environment; turn any failure into an error of one line."""
    try:
        return make()
    except PlaitError:
        raise
    except ImportError as error:
        raise MissingExtraError(f"{name} needs a package that is missing: {_one_line(error)}") from error
    except Exception as error:
        # gymnasium's own error for a missing library is not an ImportError
        if type(error).__name__ == "DependencyNotInstalled":
            raise MissingExtraError(f"{name} needs a package that is missing: {_one_line(error)}") from error
        raise EnvError(f"{name} cannot be made: {type(error).__name__}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
