"""One held-out episode, step by step, with the states in the policy's memory and their read weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from plait.errors import ConfigError
from plait.lab.training.learner import generator_for
from plait.lab.training.ppo.policy import Policy
from plait.lab.training.ppo.stage import Stage

__all__ = ["Scene", "Slot", "play_episode"]


class Slot(NamedTuple):
    """A past step in the memory, counted from 0, and its attention weight."""

    step: int
    weight: float


class Scene(NamedTuple):
    """One step: the environment before it (`frame`, `view` and `text`), the memory, and the action.

    `action` is empty in the last scene, which shows the end of the episode; `probability` is None for a
    continuous action; `gained` is the return so far.
    """

    step: int
    frame: np.ndarray[Any, Any] | None
    view: np.ndarray[Any, Any] | None
    text: str
    mission: str
    slots: tuple[Slot, ...]
    action: str
    probability: float | None
    gained: float


@torch.no_grad()
def play_episode(
    policy: Policy, world: str, seed: int = 0, greedy: bool = False, layer: int = 1, tile: int = 32,
    drawn: bool = True,
) -> list[Scene]:  # fmt: skip
    """Play one held-out episode.

    Args:
        seed: decides the episode.
        greedy: take the most likely action instead of sampling.
        layer: the layer whose memory is shown; a policy without memory has no slots.
        tile: pixels of a cell of a grid world in `frame`.
        drawn: render pictures of the environment; without, `frame` and `view` may be None.

    >>> from plait.lab.training.ppo.policy import build_policy, describe_policy
    >>> scenes = play_episode(build_policy(describe_policy("Empty-5x5", hidden_size=8)), "Empty-5x5")
    >>> scenes[3].step, [slot.step for slot in scenes[3].slots]
    (3, [0, 1, 2, 3])
    """
    layers = 0 if policy.recurrent is None else policy.recurrent.num_layers
    if layers and not 1 <= layer <= layers:
        raise ConfigError(f"layer: expected 1 to {layers}, got {layer}")
    stage = policy.family.stage(world, seed, drawn, tile)
    try:
        return _played(policy, stage, seed, greedy, layer if layers else 0)
    finally:
        stage.worlds.close()


def _played(policy: Policy, stage: Stage, seed: int, greedy: bool, layer: int) -> list[Scene]:
    worlds, do = stage.worlds, policy.actions
    moment, state = worlds.reset(), None
    draw = generator_for(seed, "held-out", 1, "cpu")
    scenes: list[Scene] = []
    gained = 0.0
    while True:
        options = {"need_trace": True} if layer else {}
        observation = moment.observation.map(lambda part: part.unsqueeze(0))
        logits, _, state, *rest = policy(observation, state, reset=moment.begins.unsqueeze(0), **options)
        slots = _slots(rest[0][layer - 1].merged()) if rest else ()
        shown = stage.show(moment.observation)
        if bool(moment.ended):
            scenes.append(Scene(len(scenes), *shown, slots, "", 1.0, gained))
            return scenes
        outputs = logits[0]
        action = do.likeliest(outputs) if greedy else do.sample(outputs, do.noise((1,), draw))
        name, chance = do.describe(outputs[0], action[0])
        scenes.append(Scene(len(scenes), *shown, slots, name, chance, gained))
        moment = worlds.step(action)
        gained += moment.reward.item()


def _slots(trace: Any) -> tuple[Slot, ...]:
    """Return the slots in the trace of one step, the oldest first."""
    pairs = zip(trace.born[0, 0].tolist(), trace.weights[0, 0].tolist(), strict=True)
    return tuple(sorted(Slot(step, weight) for step, weight in pairs if step >= 0))
