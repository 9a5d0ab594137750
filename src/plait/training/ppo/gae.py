"""Generalised advantage estimation, with episodes that end or are cut off in the middle of a rollout."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["advantages"]


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
