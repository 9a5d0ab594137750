"""Environments of gymnasium's interface, stepped one after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import EnvError
from plait.lab.tasks.environments.actions import Actions
from plait.lab.tasks.environments.base import Snapshot, TimeStep, VectorEnv, episode_seed, first_timestep

__all__ = ["SerialVectorEnv"]


class SerialVectorEnv(VectorEnv):
    """Base class of environments that are stepped one after the other and seeded by episode.

    Every episode's seed follows from (seed, environment, episode), so a snapshot holds each environment's
    episode number and the actions in it, and is restored by replaying them.

    Args:
        make: makes one environment.
        buffers: shape and dtype of each tensor of one environment's observation; `_store` writes into arrays
            (num_envs, …) of these.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        held_out: bool,
        actions: Actions,
        make: Callable[[], Any],
        buffers: Sequence[tuple[tuple[int, ...], Any]],
    ) -> None:
        super().__init__(name, num_envs, seed, held_out, actions)
        self._envs: list[Any] = [make() for _ in range(num_envs)]
        self._buffers: list[np.ndarray[Any, Any]] = [
            np.zeros((num_envs, *shape), dtype) for shape, dtype in buffers
        ]
        self._episode = np.zeros(num_envs, np.int64)
        self._actions: list[list[Any]] = [[] for _ in range(num_envs)]
        self._done = np.zeros(num_envs, bool)

    @abstractmethod
    def _store(self, env: int, observation: Any) -> None:
        """Write the observation of environment number `env` into its row of the buffers."""

    def reset(self) -> TimeStep:
        self._episode[:] = 0
        self._done[:] = False
        for env in range(self.num_envs):
            self._start_episode(env)
        return first_timestep(self.current_observation())

    def step(self, actions: Tensor) -> TimeStep:
        checked = self._checked(actions).tolist()
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        episode_start = self._done.copy()
        for env, action in enumerate(checked):
            if episode_start[env]:
                self._episode[env] += 1
                self._start_episode(env)
                continue
            reward[env], terminated[env], truncated[env] = self._act(env, action)
        self._check_finite(reward)
        self._done = terminated | truncated
        flags = (torch.from_numpy(part) for part in (reward, terminated, truncated, episode_start))
        return TimeStep(self.current_observation(), *flags)

    def snapshot(self) -> Snapshot:
        return {
            "episode": torch.from_numpy(self._episode.copy()),
            "actions": self.actions.pack(self._actions),
        }

    def restore(self, snapshot: Snapshot) -> None:
        self._episode[:] = snapshot["episode"].numpy()
        for env, row in enumerate(self.actions.unpack(snapshot["actions"])):
            self._start_episode(env)
            self._done[env] = False
            for action in row:
                _, terminated, truncated = self._act(env, action)
                self._done[env] = terminated or truncated

    def current_observation(self) -> Any:
        """Return a copy of the current observation, since the next step overwrites the buffers."""
        return self.observation_from(torch.from_numpy(buffer.copy()) for buffer in self._buffers)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _start_episode(self, env: int) -> None:
        seed = episode_seed(self.seed, env, int(self._episode[env]), self.held_out)
        try:
            observation, _ = self._envs[env].reset(seed=seed)
            self._store(env, observation)
        except Exception as error:
            raise self._failure(error, env, f"reset(seed={seed})") from error
        self._actions[env] = []

    def _act(self, env: int, action: Any) -> tuple[float, bool, bool]:
        """Step one environment; return reward, terminated and truncated."""
        converted = self.actions.to_env(action)
        try:
            observation, reward, terminated, truncated, _ = self._envs[env].step(converted)
            self._store(env, observation)
        except Exception as error:
            raise self._failure(error, env, f"step({converted})") from error
        self._actions[env].append(action)
        return reward, terminated, truncated

    def _failure(self, error: Exception, env: int, call: str) -> EnvError:
        """Return an error that names the environment, the call and the step at which it raised `error`."""
        reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        return EnvError(f"{self.name} failed in {call}, {self._position(env)}: {reason}")

    def _position(self, env: int) -> str:
        steps = len(self._actions[env])
        return f"environment {env + 1}, episode {int(self._episode[env]) + 1}, after {steps} of its steps"

    def _check_finite(self, reward: np.ndarray[Any, Any]) -> None:
        """Refuse non-finite rewards and observations before a policy learns from them."""
        named = zip(("reward", *self.fields), (reward, *self._buffers), strict=True)
        for name, values in named:
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                env = int(np.argwhere(~np.isfinite(values))[0, 0])
                what = "reward" if values is reward else f"observation ({name})"
                row = values[env]
                value = row[~np.isfinite(row)].flat[0] if values.ndim > 1 else row
                raise EnvError(f"{self.name} returned the {what} {value}, {self._position(env)}")
