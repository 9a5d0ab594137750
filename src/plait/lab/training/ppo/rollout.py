"""Rollouts of a policy in its environments, their advantages, and evaluation on held-out episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import DivergedError, WorldError
from plait.lab.own_code import name_of
from plait.lab.tasks.worlds.base import Moment, Snapshot, Worlds
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.families import family_of
from plait.lab.training.ppo.policy import Policy
from plait.lab.training.stop import CutShort, Stop

__all__ = ["Collector", "CollectorState", "Episode", "Rollout", "advantages", "evaluate_policy"]

_STRETCH = 64  # steps whose noise is drawn in one call
_LONGEST = 100_000  # steps after which an episode counts as endless


class Episode(NamedTuple):
    """A finished episode: the undiscounted sum of its rewards, and its number of steps."""

    reward: float
    length: int


class Rollout(NamedTuple):
    """T steps of B environments.

    `observation` (T, B, …); `begins` (T, B) bool, where the policy's state was cleared; `counted` (T, B)
    bool, False where the episode had ended and the action was ignored; `actions` (T, B, …); `logits`
    (T, B, outputs); `old`, `values`, `rewards` (T, B) float: log-probabilities of the actions, the critic's
    values, the rewards; `terminated`, `ended` (T, B) bool; `state` before the first step; `last_values` (B,)
    of the observation after the last step; `episodes` that ended.
    """

    observation: Any
    begins: Tensor
    counted: Tensor
    actions: Tensor
    logits: Tensor
    old: Tensor
    values: Tensor
    rewards: Tensor
    terminated: Tensor
    ended: Tensor
    state: Any
    last_values: Tensor
    episodes: list[Episode]


class CollectorState(NamedTuple):
    """State of a collector; `gained` and `lasted` (B,) are return and length of the unfinished episodes."""

    worlds: Snapshot
    moment: Moment
    state: Any
    gained: Tensor
    lasted: Tensor


class Collector:
    """Environments with the policy's state in them: last observation, recurrent state, rewards so far."""

    def __init__(self, worlds: Worlds, device: torch.device) -> None:
        self.worlds, self.device = worlds, device
        self.moment = worlds.reset()
        self.state: Any = None
        self.gained = torch.zeros(worlds.envs, dtype=torch.float64)
        self.lasted = torch.zeros(worlds.envs, dtype=torch.int64)
        self._aborted_from: CollectorState | None = None

    def checkpoint_state(self) -> CollectorState:
        """Return the checkpoint state; after an aborted rollout, the state at its start."""
        return self._aborted_from or CollectorState(
            self.worlds.snapshot(), self.moment, self.state, self.gained.clone(), self.lasted.clone()
        )

    @torch.no_grad()
    def collect(
        self, policy: Policy, steps: int, generator: torch.Generator, stop: Stop | None = None
    ) -> Rollout:
        """Play `steps` steps of every environment; everything random comes from `generator`.

        Args:
            stop: once it is overdue, the rollout is aborted with `CutShort`.
        """
        do = policy.actions
        noise = do.noise((steps, self.worlds.envs), generator)
        first, begin, episodes = self.checkpoint_state(), self.state, []
        played: list[tuple[Tensor, ...]] = []
        for step in range(steps):
            if stop is not None and stop.overdue:
                self._aborted_from = first
                raise CutShort
            before = self.moment
            logits, values, self.state = self._act(policy)
            actions = do.sample(logits, noise[step])
            self.moment = self.worlds.step(actions)
            after = self.moment
            episodes += self._finished()
            played.append(
                (*before.observation, before.begins, ~before.ended, actions, logits, values, after.reward,
                 after.terminated, after.ended)
            )  # fmt: skip
        last_values = self._act(policy)[1]
        self.state = policy.carried(self.state)
        columns = [torch.stack(column) for column in zip(*played, strict=True)]
        observation = self.worlds.observed(columns[:-8])
        begins, counted, actions, logits, values, rewards, terminated, ended = columns[-8:]
        rollout = Rollout(
            observation, begins, counted, actions, logits, do.chosen(logits, actions)[0], values, rewards,
            terminated, ended, begin, last_values, episodes,
        )  # fmt: skip
        _check(rollout)
        return rollout

    def _act(self, policy: Policy) -> tuple[Tensor, Tensor, Any]:
        """Return logits (B, actions), values (B,) on the CPU and the state after the current observation."""
        observation = self.moment.observation.map(lambda part: part.unsqueeze(0).to(self.device))
        reset = self.moment.begins.unsqueeze(0).to(self.device)
        logits, values, state = policy(observation, self.state, reset=reset)
        return logits[0].float().cpu(), values[0].float().cpu(), state

    def _finished(self) -> list[Episode]:
        """Add up the rewards of the current step; return the episodes that ended with it."""
        moment = self.moment
        self.gained += moment.reward
        self.lasted += (~moment.begins).long()
        ended = moment.ended
        episodes = [
            Episode(*pair)
            for pair in zip(self.gained[ended].tolist(), self.lasted[ended].tolist(), strict=True)
        ]
        self.gained[ended] = 0
        self.lasted[ended] = 0
        return episodes


def advantages(
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: float,
    decay: float,
) -> Tensor:
    """Return the generalised advantage estimates, (T, B).

    δ_t = r_t + γ V_{t+1} [not terminated at t] − V_t,  A_t = δ_t + γ λ A_{t+1} [not ended at t].

    A truncated episode did not terminate: V_{t+1}, the value of its last observation, replaces the rewards
    that would have followed. The step that begins the next episode is no transition; its A is meaningless and
    does not reach earlier steps, because the step before it ended. The caller must leave it out.

    Args:
        rewards, values: (T, B) r_t and V_t.
        last_values: (B,) V_T, of the observation after the last step.
        terminated, ended: (T, B) bool, whether step t ended its episode by the rules, and at all.

    >>> rewards, values = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [0.5]])
    >>> no = torch.zeros(2, 1, dtype=torch.bool)
    >>> advantages(rewards, values, torch.tensor([2.0]), no, no, discount=0.5, decay=0.5).flatten().tolist()
    [0.125, 1.5]
    """
    following = torch.cat([values[1:], last_values[None]])
    delta = rewards + discount * following.masked_fill(terminated, 0) - values
    kept = (~ended).to(delta.dtype) * (discount * decay)
    result = torch.empty_like(delta)
    running = torch.zeros_like(last_values)
    for step in reversed(range(len(delta))):
        running = delta[step] + kept[step] * running
        result[step] = running
    return result


def _check(rollout: Rollout) -> None:
    for name, tensor in (("logits", rollout.logits), ("values", rollout.values)):
        wrong = ~torch.isfinite(tensor).flatten(2).all(-1) if tensor.dim() > 2 else ~torch.isfinite(tensor)
        if bool(wrong.any()):
            step, world = wrong.nonzero()[0].tolist()
            raise DivergedError(
                f"the policy's {name} are not finite from step {step + 1} of the rollout on, in world "
                f"{world + 1}"
            )


@torch.no_grad()
def evaluate_policy(
    policy: Policy,
    world: str,
    episodes: int = 64,
    seed: int = 0,
    backend: str | None = None,
    greedy: bool = False,
) -> dict[str, float]:
    """Return the mean return (`score`) and mean steps (`length`) of held-out episodes.

    In grid worlds `success` is the share of episodes with a positive return. Every environment plays one
    episode, so that short episodes do not count more often than long ones.

    Args:
        world: an environment of the policy's family.
        seed: decides the episodes and the draws; the same at every evaluation.
        backend: of grid worlds; left out, the policy's own.
        greedy: take the most likely action instead of sampling.
    """
    family = policy.family if backend is None else family_of({**policy.family.task, "backend": backend})
    worlds = family.open(name_of(world), episodes, seed, held_out=True)
    was_training = policy.training
    policy.eval()
    try:
        gained, lasted = _first_episodes(policy, worlds, generator_for(seed, "held-out", 0, "cpu"), greedy)
    finally:
        worlds.close()
        policy.train(was_training)
    success = {"success": (gained > 0).double().mean().item()} if family.succeeds else {}
    return {"score": gained.mean().item(), **success, "length": lasted.double().mean().item()}


def _first_episodes(
    policy: Policy, worlds: Worlds, draw: torch.Generator, greedy: bool
) -> tuple[Tensor, Tensor]:
    """Return the return and the length of every environment's first episode."""
    device, do = next(policy.parameters()).device, policy.actions
    moment, state = worlds.reset(), None
    gained = torch.zeros(worlds.envs, dtype=torch.float64)
    lasted = torch.zeros(worlds.envs, dtype=torch.int64)
    playing = torch.ones(worlds.envs, dtype=torch.bool)
    while bool(playing.any()):
        noise = do.noise((_STRETCH, worlds.envs), draw)
        for step in range(_STRETCH):
            observation = moment.observation.map(lambda part: part.unsqueeze(0).to(device))
            logits, _, state = policy(observation, state, reset=moment.begins.unsqueeze(0).to(device))
            outputs = logits[0].float().cpu()
            moment = worlds.step(do.likeliest(outputs) if greedy else do.sample(outputs, noise[step]))
            gained += moment.reward * playing
            lasted += playing
            playing &= ~moment.ended
            if not bool(playing.any()):
                break
        state = policy.carried(state)
        if int(lasted.max()) > _LONGEST:
            raise WorldError(
                f"{worlds.name}: an episode has not ended after {_LONGEST:,} steps; give it a limit "
                "(--time-limit)"
            )
    return gained, lasted
