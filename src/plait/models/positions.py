"""Positions of the states in a bounded memory: distances from the query that reads them.

- "rotary": true distances, as in full attention.
- "clamped": true distances up to the window, and the window for every state that left it.
- "counted": true distances up to the window; beyond it, the window plus the number of states that the memory
  has admitted since. A state is admitted if it is still readable when it has left the window.

With the last two a state that left the window is read in the same way after any number of steps in which
nothing was admitted, so a stream may be longer than the training sequences. "counted" keeps the order of the
states, too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["DIGITS", "POSITIONS", "Far", "after_call", "far_positions", "from_digits", "to_digits"]

POSITIONS = ("rotary", "clamped", "counted")  # the first is the default
# In a state, the number of admissions since a state's own is a base-256 number with one entry for each digit,
# because every type of float holds a digit exactly.
DIGITS = 3
_BASE = 256


class Far(NamedTuple):
    """Positions of `queries` (1, T) or (B, H, T) and of `states` (B, H, S) that have left the window.

    The position of a state is 0 where it does not matter, because the state is in the window throughout.
    """

    queries: Tensor
    states: Tensor


def far_positions(
    positions: str, births: Tensor, deaths: Tensor, carried: Tensor, window: int, steps: int
) -> Far | None:
    """Return the positions for states outside the window; None where they are those inside.

    Args:
        positions: one of `POSITIONS`.
        births: (B, H, S), counted from the first query.
        deaths: (B, H, S).
        carried: (B, H, S), the positions of states that left the window before the first query: minus the
            number of admissions since their own.
        window: latest states, whose distances are true.
        steps: T, the number of queries.

    >>> births, deaths = torch.arange(5).view(1, 1, 5), torch.tensor([[[9, 2, 4, 9, 9]]])
    >>> far = far_positions("counted", births, deaths, torch.zeros_like(births), 1, 5)
    >>> (far.queries - 1).tolist(), far.states.tolist()  # states 0 and 2 are admitted, at steps 1 and 3
    ([[[0, 1, 1, 2, 3]]], [[[1, 1, 2, 3, 0]]])
    """
    if positions == "rotary":
        return None
    if positions == "clamped":
        return Far(births.new_full((1, steps), window), torch.zeros_like(births))
    leaves = births + window
    leaves_now = (leaves >= 0) & (leaves < steps)
    admitted = leaves_now & (deaths > leaves)
    step = leaves.clamp(0, max(steps - 1, 0))
    total = births.new_zeros(*births.shape[:2], max(steps, 1)).scatter_add(2, step, admitted.long()).cumsum(2)
    return Far(total[..., :steps] + window, torch.where(leaves_now, total.gather(2, step), carried))


def after_call(far: Far, births: Tensor, window: int) -> Tensor:
    """Return the positions of the states for the next call, counted from its first query."""
    steps = far.queries.shape[-1]
    if not steps:
        return far.states
    return torch.where(births + window < steps, far.states - (far.queries[..., -1:] - window), 0)


def to_digits(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Return positions of 0 or less, (…), as (…, DIGITS).

    >>> to_digits(torch.tensor([0, -300]), torch.bfloat16).tolist()
    [[0.0, 0.0, 0.0], [44.0, 1.0, 0.0]]
    """
    count = (-positions).clamp(0, _BASE**DIGITS - 1)
    return torch.stack([count // _BASE**n % _BASE for n in range(DIGITS)], dim=-1).to(dtype)


def from_digits(digits: Tensor) -> Tensor:
    """Return the positions that `to_digits` wrote.

    >>> from_digits(torch.tensor([[44.0, 1.0, 0.0]])).tolist()
    [-300]
    """
    values = digits.detach().nan_to_num(0, 0, 0).long()
    return -sum((values[..., n] * _BASE**n for n in range(DIGITS)), torch.zeros_like(values[..., 0]))
