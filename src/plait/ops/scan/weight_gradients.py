"""The part of the backward pass that is not a recurrence: one large matrix product per weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.ops.scan.contract import Inputs, ReverseWalk, Scanned
from plait.ops.scan.kinds import CellScan, Scan
from plait.ops.scan.usage import usage_gradient

__all__ = ["Outer", "collect_gradients", "outer", "prev_states_without_memory"]

Outer = Callable[[Tensor, Tensor], Tensor]


def outer(left: Tensor, right: Tensor) -> Tensor:
    """Return the sum over all rows of left ⊗ right: (R, M), (R, N) → (M, N)."""
    return left.t() @ right


class StackedGrads(NamedTuple):
    """Gradients that a backend leaves side by side, so that one product gives several weights' gradients.

    `rows` (T, B, ·) has dz, for a GRU dL/d(V_n s + b'_n), and dq, whose product gives dV and dW_a; `sums` has
    the sums of these columns, then dL/dv_a; `keyed`, whose product gives dU_a and dg, has dk and, where
    relevance is learned, dp with the usage term, plus padding columns; `initial` has dp of the initial slots.
    Or the backend has computed the `products` itself: dV, dW_a, dU_a, dg, concatenated.
    """

    rows: Tensor
    sums: Tensor
    keyed: Tensor
    initial: Tensor | None
    products: Tensor | None = None


def collect_gradients(
    walked: ReverseWalk,
    inputs: Inputs,
    scanned: Scanned,
    scan: CellScan,
    nudged: bool,
    arrived: Tensor | None = None,
    stacked: StackedGrads | None = None,
    outer: Outer = outer,
) -> Inputs:
    """Turn the results of a reverse walk into every gradient, in the layer's type.

    All but that of `projected` are contiguous. A backend may pass its own function for an `outer` product.

    dV = Σ_t dz_t s_{t−1}ᵀ, dW_a = Σ_t dq_t s_{t−1}ᵀ, dU_a = Σ_j dk_j h_jᵀ over all states h_j, the initial
    slots among them, whose own gradient gains U_aᵀ dk_j; dg = Σ_j dp_j h_j with p_j = gᵀh_j likewise, plus
    the usage term, for which the gradient that `arrived` at the outputs is needed, unless a backend has added
    it to its results `stacked`.
    """
    dtype, wide = scanned.output.dtype, walked.projected.dtype
    prev_states = _flat(scanned.prev_states, wide)
    recurred, of_state, of_query = _of_state(walked, scanned, scan, prev_states, stacked, outer)
    gradients: dict[str, Tensor | None] = {
        "recurrent": of_state,
        "hidden": walked.hidden,
        "cell_state": walked.cell_state,
        "nudge": walked.states if nudged else None,
        **_biases(walked.projected, recurred, inputs, scanned, scan, stacked),
    }
    if "memory" in scan.traits:
        if stacked is not None:
            walked = walked._replace(energy=stacked.sums[-scanned.output.shape[2] :])
        attention = _attention(walked, inputs, scanned, of_query, stacked, outer)
        if isinstance(scan, Scan) and inputs.usage is not None and stacked is None:
            attention["worth"] += usage_gradient(walked.energies, arrived, inputs, scanned, scan.window)
        gradients |= attention
    if dtype is not wide:
        gradients = {name: None if x is None else x.to(dtype) for name, x in gradients.items()}
    kept: dict[str, Any] = {name: None if x is None else x.contiguous() for name, x in gradients.items()}
    bias = None if stacked is None else stacked.sums[: walked.projected.shape[2]].to(dtype)
    return Inputs(projected=walked.projected.to(dtype), bias=bias, **kept)


def prev_states_without_memory(inputs: Inputs, scanned: Scanned) -> Tensor:
    """Return s_{t−1} = h_{t−1} as step t used it, after a reset: (T, B, H)."""
    before = torch.cat([inputs.hidden.unsqueeze(0), scanned.output[:-1]])
    return before if inputs.reset is None else before.masked_fill_(inputs.reset.unsqueeze(2), 0)


def _of_state(
    walked: ReverseWalk,
    scanned: Scanned,
    scan: CellScan,
    prev_states: Tensor,
    stacked: StackedGrads | None,
    outer: Outer,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return dL/d(V s_{t−1}) for all steps, dV and, with a memory, dW_a; `prev_states` is flat."""
    if stacked is None:
        recurred = _recurred(walked.projected, scanned, scan)
        of_query = (
            outer(_flat(walked.queries, prev_states.dtype), prev_states) if "memory" in scan.traits else None
        )
        return recurred, outer(_flat(recurred, prev_states.dtype), prev_states), of_query
    size = scanned.output.shape[2]
    if stacked.products is not None:
        end = scan.gates * size
        return walked.projected, stacked.products[:end], stacked.products[end : end + size]
    product = outer(_flat(stacked.rows, prev_states.dtype), prev_states)
    of_state, of_query = product[:-size], product[-size:]
    if scan.cell != "gru":
        return walked.projected, of_state, of_query
    return walked.projected, torch.cat([of_state[: 2 * size], of_state[3 * size :]]), of_query


def _attention(
    walked: ReverseWalk,
    inputs: Inputs,
    scanned: Scanned,
    of_query: Tensor | None,
    stacked: StackedGrads | None,
    outer: Outer,
) -> dict[str, Any]:
    """Return the gradients of the memory's reads; without an initial state there were no initial slots."""
    wide, size = walked.keys.dtype, scanned.output.shape[2]
    states = _flat(scanned.output, wide)
    if stacked is not None and stacked.products is not None:
        product = stacked.products[-size - (inputs.worth is not None) :]
    else:
        product = outer(_flat(walked.keys if stacked is None else stacked.keyed, wide), states)
    gradients: dict[str, Any] = {"query": of_query, "key": product[:size], "energy": walked.energy}
    initial = walked.initial_scores if stacked is None else stacked.initial
    if inputs.worth is not None:
        gradients["worth"] = (
            outer(walked.scores.reshape(-1, 1), states)[0] if stacked is None else product[size]
        )
    if not inputs.is_new:
        slots, d_keys = _flat(inputs.slots, wide), _flat(walked.initial_keys, wide)
        if len(slots):
            gradients["key"] = gradients["key"] + outer(d_keys, slots)
        gradients["slots"] = walked.initial_states + walked.initial_keys @ inputs.key.to(wide)
        if inputs.worth is not None:
            assert initial is not None
            gradients["worth"] = gradients["worth"] + outer(initial.reshape(-1, 1), slots)[0]
            gradients["slots"] += walked.initial_scores.unsqueeze(2) * inputs.worth.to(wide)
    return gradients


def _recurred(d_projected: Tensor, scanned: Scanned, scan: CellScan) -> Tensor:
    """Return dL/d(V s_{t−1}) for all steps."""
    if scan.cell != "gru":
        return d_projected
    # Only the candidate's part differs: V_n s + b'_n enters through the product with r.
    size = scanned.output.shape[2]
    candidate = d_projected[..., 2 * size :] * scanned.gates[..., :size].to(d_projected.dtype)
    return torch.cat([d_projected[..., : 2 * size], candidate], dim=-1)


def _biases(
    d_projected: Tensor,
    recurred: Tensor,
    inputs: Inputs,
    scanned: Scanned,
    scan: CellScan,
    stacked: StackedGrads | None,
) -> dict[str, Tensor]:
    """Return the gradients of the cell's own biases, None for those it does not have."""
    size, gradients = scanned.output.shape[2], {}
    if inputs.candidate_bias is not None:
        gradients["candidate_bias"] = (
            recurred[..., 2 * size :].sum(dim=(0, 1))
            if stacked is None
            else stacked.sums[3 * size : 4 * size]
        )
    if inputs.modrelu_bias is not None:
        at = slice(2 * size, 3 * size) if scan.cell == "gru" else slice(None)
        sign = torch.sign(scanned.activated[..., at].to(d_projected.dtype))
        gradients["modrelu_bias"] = (d_projected[..., at] * sign).sum(dim=(0, 1))
    return gradients


def _flat(x: Tensor, wide: torch.dtype) -> Tensor:
    """Reshape (..., N) to (all the others, N), in the type of the sums."""
    flat = x.flatten(0, -2)
    return flat if flat.dtype is wide else flat.to(wide)
