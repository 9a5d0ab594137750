"""How well a policy does on episodes it never trained on."""

from __future__ import annotations

import torch

from plait.tasks.minigrid import ACTIONS, open_worlds
from plait.training.ppo.policy import Policy
from plait.training.ppo.rollout import gumbel, sample
from plait.training.streams import generator_for

__all__ = ["evaluate_policy"]

_STRETCH = 64  # steps whose noise is drawn at once


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
        seed: decides the episodes and the draws; the same at every look.
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
