"""Playing: a stretch of every world under one policy, what it was worth, and held-out episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.errors import DivergedError, WorldError
from plait.tasks.worlds.base import Moment, Snapshot, Worlds
from plait.tasks.worlds.names import name_of
from plait.training.learner import generator_for
from plait.training.ppo.families import family_of
from plait.training.ppo.policy import Policy
from plait.training.stop import CutShort, Stop

__all__ = ["Collector", "Episode", "Place", "Rollout", "advantages", "evaluate_policy"]

_STRETCH = 64  # steps whose noise is drawn at once
_LONGEST = 100_000  # steps of an episode that is waited for


class Episode(NamedTuple):
    """One that ended: the sum of its rewards (undiscounted), and its steps."""

    reward: float
    length: int


class Rollout(NamedTuple):
    """T steps of B worlds.

    `observation` (T, B, …); `begins` (T, B) bool, where the policy's state was cleared; `counted` (T, B)
    bool, False where the episode had ended and the action was ignored; `actions` (T, B, …); `logits`
    (T, B, outputs); `old`, `values`, `rewards` (T, B) float, log-probabilities of the actions and what the
    critic thought; `terminated`, `ended` (T, B) bool; `state` before the first step; `last_values` (B,) of
    the observation after the last step; `episodes` that ended.
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


class Place(NamedTuple):
    """Where a policy stands in its worlds: `gained` and `lasted` (B,) are of the episodes that are open."""

    worlds: Snapshot
    moment: Moment
    state: Any
    gained: Tensor
    lasted: Tensor


class Collector:
    """Worlds, and where the policy stands in them: the last moment, its state, rewards gathered so far."""

    def __init__(self, worlds: Worlds, device: torch.device) -> None:
        self.worlds, self.device = worlds, device
        self.moment = worlds.reset()
        self.state: Any = None
        self.gained = torch.zeros(worlds.envs, dtype=torch.float64)
        self.lasted = torch.zeros(worlds.envs, dtype=torch.int64)
        self._left: Place | None = None

    def place(self) -> Place:
        """To be saved; after a stretch that was left, where that began."""
        return self._left or Place(
            self.worlds.snapshot(), self.moment, self.state, self.gained.clone(), self.lasted.clone()
        )

    @torch.no_grad()
    def collect(
        self, policy: Policy, steps: int, generator: torch.Generator, stop: Stop | None = None
    ) -> Rollout:
        """Play `steps` steps of every world; everything random comes from `generator`.

        Args:
            stop: once it is overdue, the stretch is left: `CutShort`.
        """
        do = policy.actions
        noise = do.noise((steps, self.worlds.envs), generator)
        first, begin, episodes = self.place(), self.state, []
        played: list[tuple[Tensor, ...]] = []
        for step in range(steps):
            if stop is not None and stop.overdue:
                self._left = first
                raise CutShort
            before = self.moment
            logits, values, self.state = self._look(policy)
            actions = do.sample(logits, noise[step])
            self.moment = self.worlds.step(actions)
            after = self.moment
            episodes += self._count()
            played.append(
                (*before.observation, before.begins, ~before.ended, actions, logits, values, after.reward,
                 after.terminated, after.ended)
            )  # fmt: skip
        last_values = self._look(policy)[1]
        self.state = policy.carried(self.state)
        columns = [torch.stack(column) for column in zip(*played, strict=True)]
        seen = self.worlds.observed(columns[:-8])
        begins, counted, actions, logits, values, rewards, terminated, ended = columns[-8:]
        rollout = Rollout(
            seen, begins, counted, actions, logits, do.chosen(logits, actions)[0], values, rewards,
            terminated, ended, begin, last_values, episodes,
        )  # fmt: skip
        _check(rollout)
        return rollout

    def _look(self, policy: Policy) -> tuple[Tensor, Tensor, Any]:
        """Logits (B, actions), values (B,) on the CPU and the state after the present observation."""
        observation = self.moment.observation.map(lambda part: part.unsqueeze(0).to(self.device))
        reset = self.moment.begins.unsqueeze(0).to(self.device)
        logits, values, state = policy(observation, self.state, reset=reset)
        return logits[0].float().cpu(), values[0].float().cpu(), state

    def _count(self) -> list[Episode]:
        """Add the present moment's rewards up; hand out the episodes that ended with it."""
        moment = self.moment
        self.gained += moment.reward
        self.lasted += (~moment.begins).long()
        ended = moment.ended
        found = [
            Episode(*pair)
            for pair in zip(self.gained[ended].tolist(), self.lasted[ended].tolist(), strict=True)
        ]
        self.gained[ended] = 0
        self.lasted[ended] = 0
        return found


def advantages(
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: float,
    decay: float,
) -> Tensor:
    """δ_t = r_t + γ V_{t+1} [not terminated at t] − V_t,  A_t = δ_t + γ λ A_{t+1} [not ended at t].

    An episode whose time was up did not terminate: V_{t+1}, of its last observation, stands for what would
    have come. The step that begins the next episode is no transition; its A is whatever it is, and nothing
    before it sees it, because the step before it ended. Who uses A must leave it out.

    Args:
        rewards, values: (T, B) r_t and V_t.
        last_values: (B,) V_T, of the observation after the last step.
        terminated, ended: (T, B) bool, whether step t ended its episode by the world's rules, and at all.

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
    """Mean return over held-out episodes (`score`), in grid worlds the share of them that gained something
    (`success`), mean steps (`length`).

    Every world plays one episode, so that short ones do not count more often than long ones.

    Args:
        world: one of the policy's family.
        seed: decides the episodes and the draws; the same at every evaluation.
        backend: of grid worlds; left out, the policy's own.
        greedy: take the likeliest action instead of drawing.
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
    """Return and length of every world's first episode."""
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
