"""One held-out episode, step by step, with what the policy's memory held and how strongly it was read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from plait.errors import ConfigError
from plait.training.learner import generator_for
from plait.training.ppo.policy import Policy
from plait.training.ppo.stage import Stage

__all__ = ["Scene", "Slot", "play_episode"]


class Slot(NamedTuple):
    """A past step that the memory holds, counted from 0, and the weight it was read with."""

    step: int
    weight: float


class Scene(NamedTuple):
    """One step: the world before it (`frame`, `view` and `text`), the memory, and what was done.

    `action` is empty in the last scene, which shows how the episode ended; `probability` is None where it was
    an amount and not a choice; `gained` is the return so far.
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
        seed: which episode.
        greedy: take the likeliest action instead of drawing.
        layer: whose memory is looked at; a policy without one has no slots.
        tile: pixels of a cell of a grid world in `frame`.
        drawn: with pictures of the world; without, `frame` and `view` may be None.

    >>> from plait.training.ppo import build_policy, describe_policy
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
        likely = logits[0]
        action = do.likeliest(likely) if greedy else do.sample(likely, do.noise((1,), draw))
        name, chance = do.told(likely[0], action[0])
        scenes.append(Scene(len(scenes), *shown, slots, name, chance, gained))
        moment = worlds.step(action)
        gained += moment.reward.item()


def _slots(trace: Any) -> tuple[Slot, ...]:
    """What a trace of one step says was held, the oldest first."""
    pairs = zip(trace.born[0, 0].tolist(), trace.weights[0, 0].tolist(), strict=True)
    return tuple(sorted(Slot(step, weight) for step, weight in pairs if step >= 0))
