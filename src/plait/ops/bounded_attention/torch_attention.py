"""Bounded attention in plain torch, block by block of queries: any device, work and memory linear in T.

The queries of a block read the older states that were alive at its first step (gathered, `older.py`) and the
slice of states from that step's window to the block's end; deaths decide within the block. The backward pass
computes the weights again and adds up in the order of the blocks, so that it always gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plait.ops.attention import accumulation_dtype
from plait.ops.bounded_attention.older import older_states

__all__ = ["block_length", "bounded_attention"]


def bounded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    deaths: Tensor,
    births: Tensor,
    scores: Tensor | None,
    far: tuple[Tensor, Tensor] | None,
    *,
    window: int,
    score_from: str,
    width: int,
) -> Tensor:
    """Return (B, heads, T, D); the definition is `naive.bounded_attention`, `width` is `older_states`'s."""
    block = block_length(query.shape[2], window + width)
    older = older_states(deaths, births, query.shape[2], window, block, width)
    cut = _Cut(query.shape[2], window, block, score_from == "leaving")
    far_query, far_key = far or (None, None)
    output: Tensor = _Attention.apply(
        query, far_query, key, far_key, value, scores, deaths, births, older, cut
    )
    return output


def block_length(steps: int, slots: int) -> int:
    """Return the number of queries per block: larger blocks need fewer gathers and mask more pairs.

    Measured on a CPU with 16 to 512 slots and heads of 16 and 64 features.
    """
    return min(max(steps, 1), 32 if slots < 48 else 64 if slots < 128 else 128)


class _Cut(NamedTuple):
    """Sizes: T steps, the window, queries per block; whether scores count only after leaving the window."""

    steps: int
    window: int
    block: int
    from_leaving: bool


class _Block(NamedTuple):
    """The queries `steps` and the M states they read: gathered ones, then the slice `recent`.

    `older` (R·K,) are indices into the states with R flattened, too. The G heads of a group are stacked, L
    steps each. `bias` (R, G·L, M) is 0 where a state can be read and 1 or more where it cannot. `counts` (R,
    G·L, M) is 1 where a score enters and 0 where it does not; None: it enters everywhere. With a far pair of
    queries and keys `left` (R, G·L, M) is 1 where a state has left the window and 0 where it has not, and
    the states before index `near` have left it at all steps; otherwise they are None and 0.
    """

    steps: slice
    older: Tensor
    recent: slice
    bias: Tensor
    counts: Tensor | None
    left: Tensor | None
    near: int

    def load(self, states: Tensor, first: int = 0) -> Tensor:
        """Return the states that the block reads, (R, M − first, …), of all (R, C + T, …).

        `first` is the index of the first one: 0, or `near`, which leaves out the older ones.
        """
        if first:
            return states[:, self.recent]
        older = states.flatten(0, 1).index_select(0, self.older).view(len(states), -1, *states.shape[2:])
        return torch.cat([older, states[:, self.recent]], dim=1)

    def load_keys(self, keys: Sequence[Tensor]) -> list[Tensor]:
        """Return the keys that energies need: those of the window, and with a far pair of all states."""
        return [self.load(x, first) for x, first in zip(keys, (self.near, 0), strict=False)]

    def add(self, total: Tensor, part: Tensor, first: int = 0) -> None:
        """Add `part` (R, M − first, …) to the entries that `load` returns."""
        width = 0 if first else len(self.older) // max(len(total), 1)
        if not first:
            # An index occurs once, except those of empty slots, which add zero: the order of additions does
            # not matter.
            total.flatten(0, 1).index_add_(0, self.older, part[:, :width].flatten(0, 1))
        total[:, self.recent] += part[:, width:]

    def split(self, d_energies: Tensor) -> list[Tensor]:
        """Return the gradients of query·key for the states from index `near` on, and for all states.

        The latter overwrites `d_energies`.
        """
        if self.left is None:
            return [d_energies]
        part, left = d_energies[:, :, self.near :], self.left[:, :, self.near :]
        near = part * (1 - left)
        part.mul_(left)
        return [near, d_energies]


class _States:
    """Readable states, rows and heads flattened to R, and the list that each block reads.

    `keys` are one or, with a far pair, two tensors (R, C + T, D); `values` are (R, C + T, D), `scores`
    (R, C + T); `older` is the table of `older_states`.
    """

    def __init__(
        self,
        keys: Sequence[Tensor],
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
        cut: _Cut,
        group: int,
    ) -> None:
        wide, device = accumulation_dtype(value.dtype), value.device
        *self.keys, self.values = (x.to(wide).flatten(0, 1).contiguous() for x in (*keys, value))
        self.scores = None if scores is None else scores.to(wide).flatten(0, 1).contiguous()
        self.deaths, self.births, older = (x.flatten(0, 1) for x in (deaths, births, older))
        self.cut, self.group, self.total = cut, group, value.shape[2]
        self.starts = cut.block * torch.arange(older.shape[1], device=device).unsqueeze(1)
        # An empty slot is a dead copy of a state that is read anyway, so it cannot add a NaN of its own.
        empty = older < 0
        older = torch.where(empty, self.total - cut.steps + self.starts, older)
        rows = torch.arange(len(older), device=device).view(-1, 1, 1)
        self.older = older + self.total * rows
        self.older_deaths = self._since(self._older(self.deaths).masked_fill(empty, 0), self.starts, 0)
        self.older_births = self._since(self._older(self.births), self.starts, -cut.window)
        self.times = torch.arange(cut.block, dtype=wide, device=device)

    def __len__(self) -> int:
        return self.older.shape[1]

    def __getitem__(self, number: int) -> _Block:
        cut, start = self.cut, number * self.cut.block
        length = min(cut.block, cut.steps - start)
        carried = self.total - cut.steps
        recent = slice(carried + max(0, start - cut.window + 1), carried + start + length)
        # Comparisons with numeric results, which are several times as fast as boolean ones.
        times = self.times[:length].repeat(self.group).unsqueeze(1)
        dies = self._since(self.deaths[:, recent], start, 0)
        dies = torch.cat([self.older_deaths[:, number], dies], dim=1).unsqueeze(1)
        bias = torch.ge(times, dies, out=times.new_empty(len(dies), len(times), dies.shape[2]))
        bias[:, :, -length:] += (times < self.times[:length]).to(times.dtype)
        left = None
        counted, two = self.scores is not None and cut.from_leaving, len(self.keys) > 1
        if counted or two:
            born = self._since(self.births[:, recent], start, -cut.window)
            born = torch.cat([self.older_births[:, number], born], dim=1).unsqueeze(1)
            left = torch.ge(times - cut.window, born, out=torch.empty_like(bias))
        # carried states are among the older ones even while they are in the window
        near = self.older.shape[2] if two and (not carried or start >= cut.window - 1) else 0
        steps, older = slice(start, start + length), self.older[:, number].flatten()
        return _Block(steps, older, recent, bias, left if counted else None, left if two else None, near)

    def _older(self, steps: Tensor) -> Tensor:
        return steps.flatten().index_select(0, self.older.flatten()).view(self.older.shape)

    def _since(self, steps: Tensor, start: int | Tensor, least: int) -> Tensor:
        """Return steps counted from a block's start, clamped so that they are exact in any type."""
        return (steps.long() - start).clamp_(least, self.cut.block).to(self.values.dtype)

    def blind(self) -> Tensor:
        """Return a mask (R, T) of the steps without readable states: as many deaths as births so far."""
        steps = self.cut.steps
        born = self.births.clamp_min(0)
        dead = self.deaths.long().clamp(max=steps).maximum(born)  # padding dies at its birth
        changes = born.new_zeros(len(born), steps + 1).scatter_add_(1, born, torch.ones_like(born))
        changes.scatter_add_(1, dead, -torch.ones_like(dead))
        return changes[:, :steps].cumsum(dim=1).eq(0)


class _Attention(torch.autograd.Function):
    """The loop over blocks, forward and in reverse."""

    @staticmethod
    def forward(
        query: Tensor,
        far_query: Tensor | None,
        key: Tensor,
        far_key: Tensor | None,
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
        cut: _Cut,
    ) -> Tensor:
        queries = [_grouped(x, key.shape[1]) for x in _present(query, far_query)]
        group, scale = queries[0].shape[1], query.shape[3] ** -0.5
        states = _States(_present(key, far_key), value, scores, deaths, births, older, cut, group)
        output = torch.empty_like(queries[0])
        for number in range(len(states)):
            block = states[number]
            here = [(q[:, :, block.steps] * scale).flatten(1, 2) for q in queries]
            weights = _weights(here, block.load_keys(states.keys), states, block)
            read = torch.bmm(weights, block.load(states.values))
            output[:, :, block.steps] = read.unflatten(1, (group, -1))
        output.masked_fill_(states.blind()[:, None, :, None], 0)
        return output.to(query.dtype).view(query.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.cut = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, far_query, key, far_key, value, scores, deaths, births, older, output = ctx.saved_tensors
        queries = [_grouped(x, key.shape[1]) for x in _present(query, far_query)]
        group, scale = queries[0].shape[1], query.shape[3] ** -0.5
        states = _States(_present(key, far_key), value, scores, deaths, births, older, ctx.cut, group)
        output, arriving = (_grouped(x, key.shape[1]) for x in (output, d_output))
        arriving = arriving.masked_fill(states.blind()[:, None, :, None], 0)
        d_queries = [torch.empty_like(q) for q in queries]
        d_keys = [torch.zeros_like(k) for k in states.keys]
        d_values = torch.zeros_like(states.values)
        d_scores = None if states.scores is None else torch.zeros_like(states.scores)
        for number in range(len(states)):
            block = states[number]
            here = [(q[:, :, block.steps] * scale).flatten(1, 2) for q in queries]
            keys = block.load_keys(states.keys)
            weights = _weights(here, keys, states, block)
            came, read = (x[:, :, block.steps].flatten(1, 2) for x in (arriving, output))
            block.add(d_values, torch.bmm(weights.transpose(1, 2), came))
            d_energies = torch.bmm(came, block.load(states.values).transpose(1, 2))
            d_energies.sub_((came * read).sum(dim=2, keepdim=True)).mul_(weights)
            if d_scores is not None:
                block.add(d_scores, _times(d_energies, block.counts).sum(dim=1))
            for n, (part, first) in enumerate(zip(block.split(d_energies), (block.near, 0), strict=False)):
                block.add(d_keys[n], torch.bmm(part.transpose(1, 2), here[n]), first)
                d_here = torch.bmm(part, keys[n]).mul_(scale)
                d_queries[n][:, :, block.steps] = d_here.unflatten(1, (group, -1))
        none = [None] if far_query is None else []
        grads = *d_queries, *none, *d_keys, *none, d_values, d_scores
        inputs = query, far_query, key, far_key, value, scores
        totals = (
            None if x is None or like is None else x.view(like.shape).to(like.dtype)
            for x, like in zip(grads, inputs, strict=True)
        )
        return *totals, None, None, None, None


def _present(*tensors: Tensor | None) -> list[Tensor]:
    return [x for x in tensors if x is not None]


def _grouped(query: Tensor, heads: int) -> Tensor:
    """Return (R, G, T, D) in the accumulation type, for R rows and heads of keys, with G of queries each."""
    rows, of_queries, steps, size = query.shape
    wide = query.to(accumulation_dtype(query.dtype))
    return wide.reshape(rows * heads, of_queries // heads, steps, size)


def _weights(queries: list[Tensor], keys: list[Tensor], states: _States, block: _Block) -> Tensor:
    """Return the softmax of the energies, (R, G·L, M); `keys` as `_Block.load_keys` gives them."""
    # Half of the smallest number makes any energy's weight 0 and is finite: a step without readable states
    # has weights that are not NaN, and no gradient reaches them.
    masked = torch.finfo(block.bias.dtype).min / 2
    if block.left is None:
        energies = block.bias.baddbmm_(queries[0], keys[0].transpose(1, 2), beta=masked)
    else:
        part, left = (x[:, :, block.near :] for x in (block.bias, block.left))
        near = torch.baddbmm(part, queries[0], keys[0].transpose(1, 2), beta=masked)
        energies = block.bias.baddbmm_(queries[1], keys[1].transpose(1, 2), beta=masked)
        torch.lerp(near, part, left, out=part)  # exact: `left` is 0 or 1
    if states.scores is not None:
        energies.add_(_times(block.load(states.scores).unsqueeze(1), block.counts))
    weights: Tensor = energies.softmax(dim=2)
    return weights


def _times(x: Tensor, counts: Tensor | None) -> Tensor:
    return x if counts is None else x * counts
