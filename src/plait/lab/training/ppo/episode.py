"""One held-out episode, step by step, with the states in the policy's memory and their attention weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from plait.errors import ConfigError
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.policy import Policy
from plait.lab.training.ppo.viewer import Viewer

__all__ = ["EpisodeStep", "Slot", "play_episode"]


class Slot(NamedTuple):
    """A past step in the memory, counted from 0, and its attention weight."""

    step: int
    weight: float


class EpisodeStep(NamedTuple):
    """One step: the environment before it (`frame`, `view` and `text`), the memory, and the action.

    `action` is empty at the last step, which shows the end of the episode; `probability` is None for a
    continuous action; `total_reward` is the return so far.
    """

    step: int
    frame: np.ndarray[Any, Any] | None
    view: np.ndarray[Any, Any] | None
    text: str
    mission: str
    slots: tuple[Slot, ...]
    action: str
    probability: float | None
    total_reward: float


@torch.no_grad()
def play_episode(
    policy: Policy,
    env_name: str,
    seed: int = 0,
    greedy: bool = False,
    layer: int = 1,
    tile: int = 32,
    pictures: bool = True,
) -> list[EpisodeStep]:
    """Play one held-out episode.

    Args:
        seed: decides the episode.
        greedy: take the most likely action instead of sampling.
        layer: the layer whose memory is shown; a policy without memory has no slots.
        tile: pixels of a cell of a grid world in `frame`.
        pictures: render pictures of the environment; without, `frame` and `view` may be None.

    >>> from plait.lab.training.ppo.policy import build_policy, describe_policy
    >>> steps = play_episode(build_policy(describe_policy("Empty-5x5", hidden_size=8)), "Empty-5x5")
    >>> steps[3].step, [slot.step for slot in steps[3].slots]
    (3, [0, 1, 2, 3])
    """
    layers = 0 if policy.recurrent is None else policy.recurrent.num_layers
    if layers and not 1 <= layer <= layers:
        raise ConfigError(f"layer: expected 1 to {layers}, got {layer}")
    viewer = policy.family.viewer(env_name, seed, pictures, tile)
    try:
        return _play(policy, viewer, seed, greedy, layer if layers else 0)
    finally:
        viewer.env.close()


def _play(policy: Policy, viewer: Viewer, seed: int, greedy: bool, layer: int) -> list[EpisodeStep]:
    env, actions = viewer.env, policy.actions
    timestep, state = env.reset(), None
    generator = generator_for(seed, "held-out", 1, "cpu")
    steps: list[EpisodeStep] = []
    total_reward = 0.0
    while True:
        options = {"need_trace": True} if layer else {}
        observation = timestep.observation.map(lambda part: part.unsqueeze(0))
        logits, _, state, *rest = policy(
            observation, state, reset=timestep.episode_start.unsqueeze(0), **options
        )
        slots = _slots(rest[0][layer - 1].merged()) if rest else ()
        rendering = viewer.render(timestep.observation)
        if bool(timestep.done):
            steps.append(EpisodeStep(len(steps), *rendering, slots, "", 1.0, total_reward))
            return steps
        outputs = logits[0]
        noise = None if greedy else actions.noise((1,), generator)
        action = actions.mode(outputs) if noise is None else actions.sample(outputs, noise)
        name, probability = actions.describe(outputs[0], action[0])
        steps.append(EpisodeStep(len(steps), *rendering, slots, name, probability, total_reward))
        timestep = env.step(action)
        total_reward += timestep.reward.item()


def _slots(trace: Any) -> tuple[Slot, ...]:
    """Return the slots in the trace of one step, the oldest first."""
    pairs = zip(trace.born[0, 0].tolist(), trace.weights[0, 0].tolist(), strict=True)
    return tuple(sorted(Slot(step, weight) for step, weight in pairs if step >= 0))
