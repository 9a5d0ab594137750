"""Environments of gymnasium's interface, by id or by a function that makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import MissingExtraError, PlaitError, WorldError
from plait.lab.tasks.worlds.base import Seen
from plait.lab.tasks.worlds.episodes import EpisodeWorlds
from plait.lab.tasks.worlds.spaces import Observed, actions_of

__all__ = ["EnvSpec", "GymWorlds", "make_env"]


class EnvSpec:
    """Spec of an environment: how to make it, its observations and its actions.

    The spaces are read from an environment that is made and closed at once.

    Args:
        make: makes one environment.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make
        env = make_env(name, make)
        self.observed = Observed(env.observation_space, name)
        self.actions = actions_of(env.action_space, name)
        self.spaces = env.observation_space, env.action_space
        self.rendered: tuple[str, ...] = tuple((getattr(env, "metadata", None) or {}).get("render_modes", ()))
        env.close()


class GymWorlds(EpisodeWorlds):
    """`envs` copies of an environment, stepped one after the other."""

    def __init__(self, kind: EnvSpec, envs: int, seed: int = 0, held_out: bool = False) -> None:
        self.kind = kind
        self.fields = tuple(f"seen.{leaf.name}" for leaf in kind.observed.leaves)
        parts = [leaf.stored for leaf in kind.observed.leaves]
        make = lambda: make_env(kind.name, kind.make)  # noqa: E731
        super().__init__(kind.name, envs, seed, held_out, kind.actions, make, parts)
        self._write = kind.observed.writer(self._parts)

    def observed(self, parts: Iterable[Tensor]) -> Seen:
        return Seen(parts)

    def could_show(self, observation: Seen) -> bool:
        leaves = self.kind.observed.leaves
        return all(leaf.could_show(part) for leaf, part in zip(leaves, observation, strict=True))

    def frame(self, world: int = 0) -> np.ndarray[Any, Any]:
        """Return the environment's rendering, (height, width, 3) uint8."""
        try:
            return np.asarray(self._worlds[world].render())
        except Exception as error:
            raise self._blamed(error, world, "render()") from error

    def _see(self, world: int, seen: Any) -> None:
        self._write(world, seen)


def make_env(name: str, make: Callable[[], Any]) -> Any:
    """Make one environment; raise a one-line error if that fails."""
    try:
        return make()
    except PlaitError:
        raise
    except ImportError as error:
        raise MissingExtraError(f"{name} needs what is not installed: {_one_line(error)}") from error
    except Exception as error:
        # gymnasium's own error for a missing library is no ImportError
        if type(error).__name__ == "DependencyNotInstalled":
            raise MissingExtraError(f"{name} needs what is not installed: {_one_line(error)}") from error
        raise WorldError(f"{name} cannot be made: {type(error).__name__}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
