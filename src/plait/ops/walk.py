"""The only loop over time: a cell times a memory, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.ops.attention import Read
from plait.ops.incoming_gradient import IncomingGradient
from plait.ops.slots import MemoryState, clear

__all__ = ["LayerResult", "LayerState", "Trace", "walk"]


class LayerState(NamedTuple):
    """The state of one layer between two steps: `hidden` is s_t (B, H), `cell_state` (B, H) or None."""

    hidden: Tensor
    cell_state: Tensor | None
    memory: MemoryState


class Trace(NamedTuple):
    """A record of the reads of every step: row t is A_t with its weights.

    `born` (T, B, κ) int64, −1 where a slot is empty; `weights` (T, B, κ), 0 where nothing was read;
    `relevance` (T, B, κ) after the step's credit. O(T·κ) numbers, enough for every heat map. No gradient
    flows through it. The heads of a Transformer with a bounded memory are concatenated, κ = heads · slots: a
    state kept by several heads occurs several times, and each head's weights add up to 1 / heads.
    """

    born: Tensor
    weights: Tensor
    relevance: Tensor

    def merged(self) -> Trace:
        """Return the trace with every state once: weights are summed, of relevances the largest is taken.

        >>> born, weights = torch.tensor([[[0, 1, 1]]]), torch.tensor([[[0.5, 0.25, 0.25]]])
        >>> Trace(born, weights, weights).merged().weights
        tensor([[[0.5000, 0.5000]]])
        """
        born, order = self.born.sort(dim=-1, descending=True)
        is_first = torch.ones_like(born, dtype=torch.bool)
        is_first[..., 1:] = born[..., 1:] != born[..., :-1]
        is_first &= born >= 0
        width = int(is_first.sum(-1).max()) if born.numel() else 0
        if not bool(((born >= 0) & ~is_first).any()):
            return self
        column = (is_first.cumsum(-1) - 1).masked_fill(born < 0, width)  # the last column is dropped
        shape = (*born.shape[:2], width + 1)
        weights = self.weights.new_zeros(shape).scatter_add_(2, column, self.weights.gather(2, order))
        lowest = self.relevance.new_full(shape, -torch.inf)
        relevance = lowest.scatter_reduce_(2, column, self.relevance.gather(2, order), "amax")
        born = born.new_full(shape, -1).scatter_(2, column, born)
        relevance = relevance.masked_fill(born < 0, 0)
        # flipped, so that the oldest state comes first
        return Trace(*(part[..., :width].flip(-1) for part in (born, weights, relevance)))


class LayerResult(NamedTuple):
    """The result of a layer: `output` (T, B, H) holds h_t; `trace` is None unless requested."""

    output: Tensor
    state: LayerState
    trace: Trace | None


def walk(
    projected: Tensor,
    state: LayerState,
    *,
    step: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]],
    write: Callable[..., MemoryState],
    read: Callable[[Tensor, MemoryState], tuple[Read | None, MemoryState]],
    mix: Callable[[Tensor, Tensor], Tensor],
    reset: Tensor | None = None,
    nudge: Tensor | None = None,
    noise: Tensor | None = None,
    incoming: IncomingGradient | None = None,
    truncate: int | None = None,
    need_trace: bool = False,
) -> LayerResult:
    """Walk through `projected` (T, B, G·H) from `state`.

    At each step: h_t from the cell, h_t written to the memory (a candidate at once), the memory read with
    the query s_{t−1}, s_t = mix(h_t, c_t); s_t = h_t where there is no memory.

    Args:
        reset: (T, B) bool; a row's state is cleared before a step where it is true.
        nudge: (T, B, H), added to h_t. A zero tensor that requires gradients receives the total dL/dh_t.
        noise: (T, B), passed to `write` after h_t and the memory, one row per step.
        incoming: receives the gradients of the results when a backward pass begins; with its `grad_limit` no
            element of dL/ds_t gets larger than that multiple of their largest element.
        truncate: cut the recurrent gradient every `truncate` steps; attention still carries it further.
    """
    hidden, cell_state, memory = state
    outputs: list[Tensor] = []
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for t, z in enumerate(projected.unbind(0)):
        if incoming is not None:
            incoming.step, hidden = t, incoming.below_limit(hidden)
        if reset is not None:
            hidden, cell_state, memory = _clear(reset[t], LayerState(hidden, cell_state, memory))
        if truncate is not None:
            hidden, cell_state = _cut(memory.age % truncate == 0, hidden, cell_state)
        h, cell_state = step(z, hidden, cell_state)
        if nudge is not None:
            h = h + nudge[t]
        memory = write(h, memory) if noise is None else write(h, memory, noise[t])
        seen, memory = read(hidden, memory)
        hidden = h if seen is None else mix(h, seen.context)
        outputs.append(h)
        if need_trace:
            weights = memory.relevance if seen is None else seen.weights
            rows.append((memory.born, weights.detach(), memory.relevance.detach()))
    output, after = torch.stack(outputs), LayerState(hidden, cell_state, memory)
    if incoming is not None:
        output, after = incoming.at(output, after)
    return LayerResult(output, after, _trace(rows) if need_trace else None)


def _clear(rows: Tensor, state: LayerState) -> LayerState:
    column = rows.unsqueeze(-1)
    return LayerState(
        state.hidden.masked_fill(column, 0),
        None if state.cell_state is None else state.cell_state.masked_fill(column, 0),
        clear(rows, state.memory),
    )


def _cut(rows: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, Tensor | None]:
    column = rows.unsqueeze(-1)
    hidden = torch.where(column, hidden.detach(), hidden)
    if cell_state is not None:
        cell_state = torch.where(column, cell_state.detach(), cell_state)
    return hidden, cell_state


def _trace(rows: list[tuple[Tensor, Tensor, Tensor]]) -> Trace:
    """Stack the steps; a memory that grows is padded with empty slots to its final width."""
    width = rows[-1][0].shape[1]

    def stacked(index: int, empty: int) -> Tensor:
        return torch.stack([pad(row[index], (0, width - row[index].shape[1]), value=empty) for row in rows])

    return Trace(stacked(0, -1), stacked(1, 0), stacked(2, 0))
