"""Playing: a stretch of every world under one policy, what it was worth, and held-out episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from plait.errors import DivergedError
from plait.tasks.minigrid import ACTIONS, Observation, Worlds, open_worlds
from plait.training.learner import generator_for
from plait.training.ppo.policy import Policy

__all__ = ["Collector", "Episode", "Rollout", "advantages", "chosen", "evaluate_policy", "sample"]

_STRETCH = 64  # steps whose noise is drawn at once


class Episode(NamedTuple):
    """One that ended: the sum of its rewards (undiscounted), and its steps."""

    reward: float
    length: int


class Rollout(NamedTuple):
    """T steps of B worlds.

    `observation` (T, B, …); `begins` (T, B) bool, where the policy's state was cleared; `counted` (T, B)
    bool, False where the episode had ended and the action was ignored; `actions` (T, B); `logits`
    (T, B, actions); `old`, `values`, `rewards` (T, B) float, log-probabilities of the actions and what the
    critic thought; `terminated`, `ended` (T, B) bool; `state` before the first step; `last_values` (B,) of
    the observation after the last step; `episodes` that ended.
    """

    observation: Observation
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


class Collector:
    """Worlds, and where the policy stands in them: the last moment, its state, rewards gathered so far."""

    def __init__(self, worlds: Worlds, device: torch.device) -> None:
        self.worlds, self.device = worlds, device
        self.moment = worlds.reset()
        self.state: Any = None
        self.gained = torch.zeros(worlds.envs, dtype=torch.float64)
        self.lasted = torch.zeros(worlds.envs, dtype=torch.int64)

    @torch.no_grad()
    def collect(self, policy: Policy, steps: int, generator: torch.Generator) -> Rollout:
        """Play `steps` steps of every world; everything random comes from `generator`."""
        noise = gumbel((steps, self.worlds.envs, len(ACTIONS)), generator)
        begin, episodes = self.state, []
        played: list[tuple[Tensor, ...]] = []
        for step in range(steps):
            before = self.moment
            logits, values, self.state = self._look(policy)
            actions = sample(logits, noise[step])
            self.moment = self.worlds.step(actions)
            after = self.moment
            episodes += self._count()
            played.append(
                (*before.observation, before.begins, ~before.ended, actions, logits, values, after.reward,
                 after.terminated, after.ended)
            )  # fmt: skip
        last_values = self._look(policy)[1]
        self.state = policy.carried(self.state)
        image, direction, mission, begins, counted, actions, logits, values, rewards, terminated, ended = (
            torch.stack(column) for column in zip(*played, strict=True)
        )
        rollout = Rollout(
            Observation(image, direction, mission), begins, counted, actions, logits,
            chosen(logits, actions)[0], values, rewards, terminated, ended, begin, last_values, episodes,
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


def chosen(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each action, and the entropy of its distribution; both shaped like `actions`."""
    logarithms = log_softmax(logits, dim=-1)
    entropy = -(logarithms.exp() * logarithms).sum(-1)
    return logarithms.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy


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


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Noise to draw with: the largest of logits + noise is a draw from softmax(logits)."""
    uniform = torch.rand(shape, generator=generator, device=generator.device)
    return -(-uniform.clamp_min(1e-20).log()).clamp_min(1e-20).log()


def sample(logits: Tensor, noise: Tensor) -> Tensor:
    """One action a row, (B,) int64. Logits that are not numbers still name one; who collects looks later."""
    return (logits + noise).argmax(-1)


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
    backend: str = "minigrid",
    greedy: bool = False,
) -> dict[str, float]:
    """Mean return over held-out episodes (`score`), share of them that gained something (`success`), mean
    steps (`length`).

    Every world plays one episode, so that short ones do not count more often than long ones.

    Args:
        seed: decides the episodes and the draws; the same at every evaluation.
        greedy: take the likeliest action instead of drawing.
    """
    worlds = open_worlds(world, episodes, seed, held_out=True, backend=backend)
    draw = generator_for(seed, "held-out", 0, "cpu")
    device = next(policy.parameters()).device
    moment, state = worlds.reset(), None
    gained, lasted = torch.zeros(episodes, dtype=torch.float64), torch.zeros(episodes, dtype=torch.int64)
    playing = torch.ones(episodes, dtype=torch.bool)
    was_training = policy.training
    policy.eval()
    while bool(playing.any()):
        noise = gumbel((_STRETCH, episodes, len(ACTIONS)), draw)
        for step in range(_STRETCH):
            observation = moment.observation.map(lambda part: part.unsqueeze(0).to(device))
            logits, _, state = policy(observation, state, reset=moment.begins.unsqueeze(0).to(device))
            actions = logits[0].float().cpu()
            moment = worlds.step(actions.argmax(-1) if greedy else sample(actions, noise[step]))
            gained += moment.reward * playing
            lasted += playing
            playing &= ~moment.ended
            if not bool(playing.any()):
                break
        state = policy.carried(state)
    policy.train(was_training)
    return {
        "score": gained.mean().item(),
        "success": (gained > 0).double().mean().item(),
        "length": lasted.double().mean().item(),
    }
