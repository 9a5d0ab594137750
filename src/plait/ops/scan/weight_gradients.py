"""The part of the backward pass that is not a recurrence: one large matrix product per weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from plait.ops.scan.contract import Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import CellScan, Scan
from plait.ops.scan.usage import usage_gradient

__all__ = ["asked_without_memory", "collect_gradients", "outer"]


def outer(left: Tensor, right: Tensor) -> Tensor:
    """Σ over all leading dimensions of left ⊗ right: (..., M), (..., N) → (M, N)."""
    return left.flatten(0, -2).t() @ right.flatten(0, -2)


def collect_gradients(
    walked: ReverseWalk,
    inputs: Inputs,
    made: Scanned,
    scan: CellScan,
    nudged: bool,
    outer: Callable[[Tensor, Tensor], Tensor] = outer,
) -> Inputs:
    """Turn what a reverse walk leaves into every gradient, in the layer's type, contiguous; a backend may have
    its own way to take an `outer` product.

    dV = Σ_t dz_t s_{t−1}ᵀ, dW_a = Σ_t dq_t s_{t−1}ᵀ, dU_a = Σ_j dk_j h_jᵀ over all states h_j, the initial
    slots among them, whose own gradient gains U_aᵀ dk_j; dg = Σ_j dp_j h_j with p_j = gᵀh_j likewise,
    and what `usage` adds.
    """
    dtype, wide = made.output.dtype, walked.projected.dtype
    asked, recurred = made.asked.to(wide), _recurred(walked.projected, made, scan)
    found: dict[str, Tensor | None] = {
        "projected": walked.projected,
        "recurrent": outer(recurred, asked),
        "hidden": walked.hidden,
        "cell_state": walked.cell_state,
        "nudge": walked.states if nudged else None,
        **_biases(walked.projected, recurred, inputs, made, scan),
    }
    if "memory" in scan.traits:
        attention = _attention(walked, inputs, made, asked, outer)
        if isinstance(scan, Scan) and inputs.usage is not None:
            attention["worth"] += usage_gradient(walked.energies, inputs, made, scan.window)
        found |= attention
    # each its own storage, whatever a backend returns twice
    converted: dict[str, Any] = {
        name: None if x is None else x.to(dtype).contiguous() for name, x in found.items()
    }
    return Inputs(**converted)


def asked_without_memory(inputs: Inputs, made: Scanned) -> Tensor:
    """s_{t−1} = h_{t−1} as step t used it, after a reset: (T, B, H)."""
    before = torch.cat([inputs.hidden.unsqueeze(0), made.output[:-1]])
    return before if inputs.reset is None else before.masked_fill_(inputs.reset.unsqueeze(2), 0)


def _attention(
    walked: ReverseWalk,
    inputs: Inputs,
    made: Scanned,
    asked: Tensor,
    outer: Callable[[Tensor, Tensor], Tensor],
) -> dict[str, Tensor]:
    """What reading a memory adds."""
    wide = asked.dtype
    states, slots = made.output.to(wide), inputs.slots.to(wide)
    found = {
        "query": outer(walked.queries, asked),
        "key": outer(walked.keys, states),
        "energy": walked.energy,
        "slots": walked.initial_states + walked.initial_keys @ inputs.key.to(wide),
    }
    if slots.numel():
        found["key"] += outer(walked.initial_keys, slots)
    if inputs.worth is not None:
        d_new, d_old = walked.scores.unsqueeze(2), walked.initial_scores.unsqueeze(2)
        found["worth"] = (outer(d_new, states) + outer(d_old, slots)).squeeze(0)
        found["slots"] += d_old * inputs.worth.to(wide)
    return found


def _recurred(d_projected: Tensor, made: Scanned, scan: CellScan) -> Tensor:
    """dL/d(V s_{t−1}) for all steps."""
    if scan.cell != "gru":
        return d_projected
    # Only the candidate's part differs: V_n s + b'_n enters through the product with r.
    size = made.output.shape[2]
    candidate = d_projected[..., 2 * size :] * made.gates[..., :size].to(d_projected.dtype)
    return torch.cat([d_projected[..., : 2 * size], candidate], dim=-1)


def _biases(
    d_projected: Tensor, recurred: Tensor, inputs: Inputs, made: Scanned, scan: CellScan
) -> dict[str, Tensor]:
    """The gradients of the cell's own biases, those it has."""
    size, found = made.output.shape[2], {}
    if inputs.candidate_bias is not None:
        found["candidate_bias"] = recurred[..., 2 * size :].sum(dim=(0, 1))
    if inputs.modrelu_bias is not None:
        at = slice(2 * size, 3 * size) if scan.cell == "gru" else slice(None)
        sign = torch.sign(made.activated[..., at].to(d_projected.dtype))
        found["modrelu_bias"] = (d_projected[..., at] * sign).sum(dim=(0, 1))
    return found
