"""Rollouts of a policy in its environments, their advantages, and evaluation on held-out episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import DivergedError, EnvError
from plait.lab.own_code import name_of_factory
from plait.lab.tasks.environments.base import Snapshot, TimeStep, VectorEnv
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.families import family_of
from plait.lab.training.ppo.policy import Policy
from plait.lab.training.stop import CutShort, Stop

__all__ = ["Collector", "CollectorState", "Episode", "Rollout", "compute_advantages", "evaluate_policy"]

_NOISE_STEPS = 64  # steps whose noise is drawn in one call
_MAX_EPISODE = 100_000  # steps after which an evaluated episode counts as endless


class Episode(NamedTuple):
    """A finished episode: the undiscounted sum of its rewards, and its number of steps."""

    reward: float
    length: int


class Rollout(NamedTuple):
    """T steps of B environments.

    `observation` and `actions` (T, B, …); `logits` (T, B, outputs). (T, B) bool: `episode_starts`, where the
    policy's state was cleared; `valid`, False where the episode had ended and the action was ignored;
    `terminated` and `done`. (T, B) float: `log_probs` of the actions, the critic's `values`, `rewards`.
    `state` is the policy's before the first step, `last_values` (B,) is the value of the observation after
    the last one; `episodes` are those that ended.
    """

    observation: Any
    episode_starts: Tensor
    valid: Tensor
    actions: Tensor
    logits: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    terminated: Tensor
    done: Tensor
    state: Any
    last_values: Tensor
    episodes: list[Episode]


class CollectorState(NamedTuple):
    """State of a collector, with return and length (B,) of the unfinished episodes."""

    env: Snapshot
    timestep: TimeStep
    state: Any
    returns: Tensor
    lengths: Tensor


class Collector:
    """Vectorised environment with a policy acting in it: time step, recurrent state, returns so far."""

    def __init__(self, env: VectorEnv, device: torch.device) -> None:
        self.env, self.device = env, device
        self.timestep = env.reset()
        self.state: Any = None
        self.returns = torch.zeros(env.num_envs, dtype=torch.float64)
        self.lengths = torch.zeros(env.num_envs, dtype=torch.int64)
        self._aborted_from: CollectorState | None = None

    def checkpoint_state(self) -> CollectorState:
        """Return the checkpoint state; after an aborted rollout, the state at its start."""
        return self._aborted_from or CollectorState(
            self.env.snapshot(), self.timestep, self.state, self.returns.clone(), self.lengths.clone()
        )

    @torch.no_grad()
    def collect(
        self, policy: Policy, steps: int, generator: torch.Generator, stop: Stop | None = None
    ) -> Rollout:
        """Play `steps` steps of every environment; everything random comes from `generator`.

        Args:
            stop: once it is overdue, the rollout is aborted with `CutShort`.
        """
        noise = policy.actions.noise((steps, self.env.num_envs), generator)
        start, initial_state, episodes = self.checkpoint_state(), self.state, []
        rows: list[tuple[Tensor, ...]] = []
        for step in range(steps):
            if stop is not None and stop.overdue:
                self._aborted_from = start
                raise CutShort
            before = self.timestep
            logits, values, self.state = self._forward(policy)
            actions = policy.actions.sample(logits, noise[step])
            after = self.timestep = self.env.step(actions)
            episodes += self._count_step()
            transition = (actions, logits, values, after.reward, after.terminated, after.done)
            rows.append((*before.observation, before.episode_start, ~before.done, *transition))
        last_values = self._forward(policy)[1]
        self.state = policy.detach_state(self.state)
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        episode_starts, valid, actions, logits, values, rewards, terminated, done = columns[-8:]
        rollout = Rollout(
            observation=self.env.observation_from(columns[:-8]),
            episode_starts=episode_starts,
            valid=valid,
            actions=actions,
            logits=logits,
            log_probs=policy.actions.evaluate(logits, actions)[0],
            values=values,
            rewards=rewards,
            terminated=terminated,
            done=done,
            state=initial_state,
            last_values=last_values,
            episodes=episodes,
        )
        _check_finite(rollout)
        return rollout

    def _forward(self, policy: Policy) -> tuple[Tensor, Tensor, Any]:
        """Return logits (B, actions), values (B,) on the CPU and the state after the current observation."""
        observation = self.timestep.observation.map(lambda part: part.unsqueeze(0).to(self.device))
        reset = self.timestep.episode_start.unsqueeze(0).to(self.device)
        logits, values, state = policy(observation, self.state, reset=reset)
        return logits[0].float().cpu(), values[0].float().cpu(), state

    def _count_step(self) -> list[Episode]:
        """Add the current step to the open episodes; return those that ended with it."""
        timestep = self.timestep
        self.returns += timestep.reward
        self.lengths += (~timestep.episode_start).long()
        done = timestep.done
        episodes = [
            Episode(*pair)
            for pair in zip(self.returns[done].tolist(), self.lengths[done].tolist(), strict=True)
        ]
        self.returns[done] = 0
        self.lengths[done] = 0
        return episodes


def compute_advantages(
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Return the generalised advantage estimates (GAE), (T, B).

    δ_t = r_t + γ V_{t+1} [not terminated at t] − V_t,  A_t = δ_t + γ λ A_{t+1} [not done at t].

    A truncated episode did not terminate: V_{t+1}, the value of its last observation, replaces the rewards
    that would have followed. The step that starts the next episode is not a transition; its A is meaningless
    and does not reach earlier steps, because the step before it is done. The caller must leave it out.

    Args:
        rewards, values: (T, B) r_t and V_t.
        last_values: (B,) V_T, of the observation after the last step.
        terminated, done: (T, B) bool: step t ended its episode by the rules, or for any reason.

    >>> rewards, values = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [0.5]])
    >>> no = torch.zeros(2, 1, dtype=torch.bool)
    >>> compute_advantages(rewards, values, torch.tensor([2.0]), no, no, 0.5, 0.5).flatten().tolist()
    [0.125, 1.5]
    """
    next_values = torch.cat([values[1:], last_values[None]])
    delta = rewards + gamma * next_values.masked_fill(terminated, 0) - values
    decay = (~done).to(delta.dtype) * (gamma * gae_lambda)
    result = torch.empty_like(delta)
    running = torch.zeros_like(last_values)
    for step in reversed(range(len(delta))):
        running = delta[step] + decay[step] * running
        result[step] = running
    return result


def _check_finite(rollout: Rollout) -> None:
    for name, tensor in (("logits", rollout.logits), ("values", rollout.values)):
        wrong = ~torch.isfinite(tensor).flatten(2).all(-1) if tensor.dim() > 2 else ~torch.isfinite(tensor)
        if bool(wrong.any()):
            step, env = wrong.nonzero()[0].tolist()
            raise DivergedError(
                f"the policy's {name} are not finite from step {step + 1} of the rollout on, in environment "
                f"{env + 1}"
            )


@torch.no_grad()
def evaluate_policy(
    policy: Policy,
    env: str | Callable[..., Any] | None = None,
    episodes: int = 64,
    seed: int = 0,
    backend: str | None = None,
    greedy: bool = False,
) -> dict[str, float]:
    """Return the mean return (`score`) and mean length (`length`) of held-out episodes.

    In grid worlds `success` is the share of episodes with a positive return. Every environment plays one
    episode, so that short episodes do not count more often than long ones.

    Args:
        env: an environment of the policy's family, or with the family gym a function that makes one; left
            out, the one it was trained in.
        episodes: number of episodes, each in an environment of its own.
        seed: decides the episodes and the sampled actions, which are the same at every evaluation.
        backend: backend of a grid world; by default that of the policy's training.
        greedy: take the most likely action instead of sampling.
    """
    family = policy.family if backend is None else family_of({**policy.family.task, "backend": backend})
    name = family.task["env"] if env is None else name_of_factory(env)
    vec_env = family.make_vec_env(name, episodes, seed, held_out=True)
    was_training = policy.training
    policy.eval()
    try:
        returns, lengths = _first_episodes(policy, vec_env, generator_for(seed, "held-out", 0, "cpu"), greedy)
    finally:
        vec_env.close()
        policy.train(was_training)
    success = {"success": (returns > 0).double().mean().item()} if family.has_success else {}
    return {"score": returns.mean().item(), **success, "length": lengths.double().mean().item()}


def _first_episodes(
    policy: Policy, env: VectorEnv, generator: torch.Generator, greedy: bool
) -> tuple[Tensor, Tensor]:
    """Return the return and the length of every environment's first episode."""
    device, actions = next(policy.parameters()).device, policy.actions
    timestep, state = env.reset(), None
    returns = torch.zeros(env.num_envs, dtype=torch.float64)
    lengths = torch.zeros(env.num_envs, dtype=torch.int64)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    while bool(running.any()):
        noise = actions.noise((_NOISE_STEPS, env.num_envs), generator)
        for step in range(_NOISE_STEPS):
            observation = timestep.observation.map(lambda part: part.unsqueeze(0).to(device))
            reset = timestep.episode_start.unsqueeze(0).to(device)
            logits, _, state = policy(observation, state, reset=reset)
            outputs = logits[0].float().cpu()
            timestep = env.step(actions.mode(outputs) if greedy else actions.sample(outputs, noise[step]))
            returns += timestep.reward * running
            lengths += running
            running &= ~timestep.done
            if not bool(running.any()):
                break
        state = policy.detach_state(state)
        if int(lengths.max()) > _MAX_EPISODE:
            raise EnvError(
                f"{env.name}: an episode has not ended after {_MAX_EPISODE:,} steps; give it a limit "
                "(--time-limit)"
            )
    return returns, lengths
