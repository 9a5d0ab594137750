"""Total dL/ds_m and dL/dh_m for all m in one backward sweep, with the rank-one structure of attention.

    q_m = ∂L/∂s_m + g_{m+1} J_m + q_{m+1} ∂s_{m+1}/∂s_m          g_m = ∂L/∂h_m + Σ_{r>=m} q_r ∂s_r/∂h_m

No n × n matrix of attention is formed: O(T n² + T κ n) once the energies' derivatives are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import ConfigError, ShapeError
from plait.gradients.paths.dynamics import Blocks
from plait.gradients.paths.lemmas import Attention

__all__ = ["Sweep", "reverse_sweep", "reverse_sweep_blocks"]


@dataclass(frozen=True)
class Sweep:
    """Total derivatives, as rows: `by_mixed` (T, N) dL/ds_1..dL/ds_T, `by_state` (T, N) dL/dh_1..dL/dh_T."""

    by_mixed: Tensor
    by_state: Tensor


def reverse_sweep(
    attentions: Sequence[Attention],
    supports: Sequence[Sequence[int]],
    jumps: Tensor,
    directs: Tensor,
    throughs: Tensor,
    loss_by_mixed: Tensor,
    loss_by_state: Tensor,
) -> Sweep:
    """Run the backward sweep for any mixing f and any energy.

    Args:
        attentions: the attention of every step 1..T.
        supports: A_1..A_T, times counted from 1, in the order of each attention's states.
        jumps: J_1..J_{T−1} as (T − 1, n, n): J_m = ∂h_{m+1}/∂s_m.
        directs, throughs: ∂_1 f and ∂_2 f at every step, (T, n, n).
        loss_by_mixed, loss_by_state: the partial ∂L/∂s_m and ∂L/∂h_m, (T, n).
    """
    length = len(attentions)
    if length == 0:
        raise ConfigError("sweep: expected at least one step, got none")
    if loss_by_mixed.shape != loss_by_state.shape or loss_by_mixed.shape[0] != length:
        raise ShapeError(f"loss: expected two (T, n) with T = {length}, got {tuple(loss_by_mixed.shape)}")
    q, g = loss_by_mixed.clone(), loss_by_state.clone()
    for m in range(length - 1, -1, -1):
        # q[m] is complete: later steps have already added to it. Distribute it over the inputs of s_m.
        row = q[m] @ throughs[m]
        g[torch.tensor(supports[m], dtype=torch.long) - 1] += attentions[m].pull_state(row)
        g[m] += q[m] @ directs[m]
        if m > 0:
            q[m - 1] += g[m] @ jumps[m - 1] + attentions[m].pull_query(row)
    return Sweep(q, g)


def reverse_sweep_blocks(blocks: Blocks, loss_by_mixed: Tensor, loss_by_state: Tensor) -> Sweep:
    """Run the backward sweep on full Jacobian blocks (first = 1), for any width, LSTM pairs included."""
    if blocks.first != 1 or loss_by_mixed.shape != (blocks.last, blocks.width):
        raise ShapeError(
            f"loss: expected two ({blocks.last}, {blocks.width}) and blocks from 1, "
            f"got {tuple(loss_by_mixed.shape)} and blocks from {blocks.first}"
        )
    q, g = loss_by_mixed.clone(), loss_by_state.clone()
    for m in range(blocks.last, 0, -1):
        row = q[m - 1] @ blocks.through[m]
        for i, read in zip(blocks.supports[m - 1], blocks.reads[m], strict=True):
            g[i - 1] += row @ read
        g[m - 1] += q[m - 1] @ blocks.direct[m]
        if m > 1:
            q[m - 2] += g[m - 1] @ blocks.jump[m - 1] + row @ blocks.query[m]
    return Sweep(q, g)
