"""The part of the backward pass that is not a recurrence: one large matrix product per weight."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attentive_scan.contract import CellScan, Gradients, SavedStates

__all__ = ["Walked", "collect_gradients"]


class Walked(NamedTuple):
    """What a reverse walk leaves, all wide.

    `projected` (T, B, G·H) dL/dz_t; `queries` (T, B, H) dL/dq_t; `keys` (T, B, H) dL/dk of h_t; `states`
    (T, B, H) the total dL/dh_t; `initial_keys`, `initial_states` (B, κ, H) the same for the initial slots;
    `energy` (H,); `hidden` (B, H) and `cell_state` (B, H) or None.
    """

    projected: Tensor
    queries: Tensor
    keys: Tensor
    states: Tensor
    initial_keys: Tensor
    initial_states: Tensor
    energy: Tensor
    hidden: Tensor
    cell_state: Tensor | None


def collect_gradients(walked: Walked, saved: SavedStates, scan: CellScan, nudged: bool) -> Gradients:
    """Turn what a reverse walk leaves into every gradient, in the layer's type.

    dV = Σ_t dz_t s_{t−1}ᵀ, dW_a = Σ_t dq_t s_{t−1}ᵀ, dU_a = Σ_j dk_j h_jᵀ over all states h_j, the initial
    slots among them, whose own gradient gains U_aᵀ dk_j.
    """
    dtype, wide = saved.output.dtype, walked.projected.dtype
    asked, output = saved.asked.to(wide), saved.output.to(wide)
    recurred, cell_bias = _recurred(walked.projected, saved, scan)
    d_key = _outer(walked.keys, output) + _outer(walked.initial_keys, saved.slots.to(wide))
    d_slots = walked.initial_states + walked.initial_keys @ saved.key.to(wide)
    nothing = output.new_empty(0)
    return Gradients(
        *(
            tensor.to(dtype).contiguous()
            for tensor in (
                walked.projected,
                _outer(recurred, asked),
                _outer(walked.queries, asked),
                d_key,
                walked.energy,
                cell_bias,
                walked.hidden,
                nothing if walked.cell_state is None else walked.cell_state,
                d_slots,
                walked.states if nudged else walked.states.new_empty((0, *walked.states.shape[1:])),
            )
        )
    )


def _recurred(d_projected: Tensor, saved: SavedStates, scan: CellScan) -> tuple[Tensor, Tensor]:
    """dL/d(V s_{t−1}) for all steps, and the gradient of the cell's own bias."""
    none = d_projected.new_empty(0)
    size = saved.energy.shape[0]
    if scan.cell == "gru":
        # Only the candidate's part differs: V_n s + b'_n enters through the product with r.
        r = saved.gates[..., :size].to(d_projected.dtype)
        candidate = d_projected[..., 2 * size :] * r
        recurred = torch.cat([d_projected[..., : 2 * size], candidate], dim=-1)
        return recurred, none if saved.cell_bias is None else candidate.sum(dim=(0, 1))
    if saved.cell_bias is None:
        return d_projected, none
    activated = saved.gates if saved.gates.shape[-1] else saved.output
    return d_projected, (d_projected * torch.sign(activated.to(d_projected.dtype))).sum(dim=(0, 1))


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Σ over all leading dimensions of left ⊗ right: (..., M), (..., N) → (M, N)."""
    return left.flatten(0, -2).t() @ right.flatten(0, -2)
