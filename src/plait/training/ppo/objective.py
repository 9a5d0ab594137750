"""What an update of PPO ascends: the clipped objective, the critic's error, the policy's entropy."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from plait.training.ppo.settings import Settings

__all__ = ["Losses", "chosen", "clipped_objective", "ppo_loss"]


class Losses(NamedTuple):
    """Scalars: the loss that is descended, its three parts, the share of steps that were clipped, and an
    estimate of how far the policy moved (Kullback–Leibler divergence, in nats)."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    clipped: Tensor
    moved: Tensor


def clipped_objective(new: Tensor, old: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A), ρ = exp(new − old), element by element.

    `new` and `old` are log-probabilities of the action that was taken.

    >>> new = torch.tensor([2.0, 0.5, 2.0]).log()
    >>> clipped_objective(new, torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), clip=0.2).tolist()
    [1.2000000476837158, 0.5, -2.0]
    """
    ratio = (new - old).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def chosen(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each action, and the entropy of its distribution; both shaped like `actions`."""
    logarithms = log_softmax(logits, dim=-1)
    entropy = -(logarithms.exp() * logarithms).sum(-1)
    return logarithms.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy


def ppo_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old: Tensor,
    advantage: Tensor,
    returns: Tensor,
    counted: Tensor,
    settings: Settings,
) -> Losses:
    """−mean(clipped objective) + value · mean((V − R)²) / 2 − entropy · mean(H), over the counted steps.

    All but `logits` (T, B, actions) are (T, B); `counted` is False on the steps whose action was ignored.
    """
    weight = counted.to(values.dtype) / counted.sum().clamp_min(1)
    new, entropy = chosen(logits, actions)
    ratio = (new - old).exp()
    policy = -(clipped_objective(new, old, advantage, settings.clip) * weight).sum()
    value = ((values - returns).square() * weight).sum() / 2
    mean_entropy = (entropy * weight).sum()
    with torch.no_grad():
        clipped = (((ratio - 1).abs() > settings.clip) * weight).sum()
        moved = ((ratio - 1 - (new - old)) * weight).sum()
    total = policy + settings.value * value - settings.entropy * mean_entropy
    return Losses(total, policy, value, mean_entropy, clipped, moved)
