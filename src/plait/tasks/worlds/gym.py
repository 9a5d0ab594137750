"""Any world of gymnasium's interface, by its id or by a function that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Tensor

from plait.errors import MissingExtraError, PlaitError, WorldError
from plait.tasks.worlds.base import Seen
from plait.tasks.worlds.episodes import EpisodeWorlds
from plait.tasks.worlds.spaces import Observed, actions_of

__all__ = ["GymWorlds", "Kind", "made"]


class Kind:
    """What a world is: how it is made, what it shows and what can be done in it, asked of one that is made
    and closed at once.

    Args:
        make: gives one environment.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make
        one = made(name, make)
        self.observed = Observed(one.observation_space, name)
        self.actions = actions_of(one.action_space, name)
        self.spaces = one.observation_space, one.action_space
        self.rendered: tuple[str, ...] = tuple((getattr(one, "metadata", None) or {}).get("render_modes", ()))
        one.close()


class GymWorlds(EpisodeWorlds):
    """`envs` copies of a world of a kind."""

    def __init__(self, kind: Kind, envs: int, seed: int = 0, held_out: bool = False) -> None:
        self.kind = kind
        self.fields = tuple(f"seen.{leaf.name}" for leaf in kind.observed.leaves)
        parts = [leaf.stored for leaf in kind.observed.leaves]
        make = lambda: made(kind.name, kind.make)  # noqa: E731
        super().__init__(kind.name, envs, seed, held_out, kind.actions, make, parts)
        self._write = kind.observed.writer(self._parts)

    def observed(self, parts: Iterable[Tensor]) -> Seen:
        return Seen(parts)

    def could_show(self, observation: Seen) -> bool:
        leaves = self.kind.observed.leaves
        return all(leaf.could_show(part) for leaf, part in zip(leaves, observation, strict=True))

    def frame(self, world: int = 0) -> np.ndarray[Any, Any]:
        """A picture (height, width, 3) uint8 of the world, by itself."""
        try:
            return np.asarray(self._worlds[world].render())
        except Exception as error:
            raise self._blamed(error, world, "render()") from error

    def _see(self, world: int, seen: Any) -> None:
        self._write(world, seen)


def made(name: str, make: Callable[[], Any]) -> Any:
    """One environment, or one line that says why there is none."""
    try:
        return make()
    except PlaitError:
        raise
    except ImportError as error:
        raise MissingExtraError(f"{name} needs what is not installed: {_said(error)}") from error
    except Exception as error:
        # gymnasium's own error for a missing library is no ImportError
        if type(error).__name__ == "DependencyNotInstalled":
            raise MissingExtraError(f"{name} needs what is not installed: {_said(error)}") from error
        raise WorldError(f"{name} cannot be made: {type(error).__name__}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return " ".join(str(error).split())
