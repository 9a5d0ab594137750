"""Bounded attention in plain torch, block by block of queries: any device, work and memory linear in T.

The queries of a block read the older states that were alive at its first step (gathered, `older.py`) and the
slice of states from that step's window to the block's end; deaths decide within the block. The backward pass
computes the weights again and adds up in the order of the blocks, so that it always gives the same bits.
"""

from __future__ import annotations

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
    *,
    window: int,
    score_from: str,
    width: int,
) -> Tensor:
    """Return (B, heads, T, D); the definition is `naive.bounded_attention`, `width` is `older_states`'s."""
    block = block_length(query.shape[2], window + width)
    older = older_states(deaths, births, query.shape[2], window, block, width)
    cut = _Cut(query.shape[2], window, block, score_from == "leaving")
    output: Tensor = _Attention.apply(query, key, value, scores, deaths, births, older, cut)
    return output


def block_length(steps: int, slots: int) -> int:
    """Return how many queries are a block: more of them cost fewer gathers, and more masked pairs.

    Measured on a CPU with 16 to 512 slots and heads of 16 and 64 features.
    """
    return min(max(steps, 1), 32 if slots < 48 else 64 if slots < 128 else 128)


class _Cut(NamedTuple):
    """Sizes: T steps, the window, queries of a block; whether a score enters on leaving the window."""

    steps: int
    window: int
    block: int
    from_leaving: bool


class _Block(NamedTuple):
    """The queries `steps` and the M states they read: gathered ones, then the slice `recent`.

    `older` (R·K,) are indices into the states with R flattened, too. The G heads of a group stand below each
    other, L steps of each. `bias` (R, G·L, M) is 0 where a state can be read and 1 or more where it cannot.
    `counts` (R, G·L, M) is 1 where a score enters and 0 where it does not; None: it enters everywhere.
    """

    steps: slice
    older: Tensor
    recent: slice
    bias: Tensor
    counts: Tensor | None

    def load(self, states: Tensor) -> Tensor:
        """Return the states that the block reads, (R, M, …), of all (R, C + T, …)."""
        older = states.flatten(0, 1).index_select(0, self.older).view(len(states), -1, *states.shape[2:])
        return torch.cat([older, states[:, self.recent]], dim=1)

    def add(self, total: Tensor, part: Tensor) -> None:
        """Add `part` (R, M, …) to where `load` read it."""
        width = len(self.older) // max(len(total), 1)
        # An index occurs once, but for the empty slots', which add zero: no order of additions matters.
        total.flatten(0, 1).index_add_(0, self.older, part[:, :width].flatten(0, 1))
        total[:, self.recent] += part[:, width:]


class _States:
    """Readable states, rows and heads flattened to R, and the list that each block reads.

    `keys` and `values` are (R, C + T, D), `scores` (R, C + T); `older` is the table of `older_states`.
    """

    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
        cut: _Cut,
        group: int,
    ) -> None:
        wide, device = accumulation_dtype(key.dtype), key.device
        self.keys, self.values = (x.to(wide).flatten(0, 1).contiguous() for x in (key, value))
        self.scores = None if scores is None else scores.to(wide).flatten(0, 1).contiguous()
        self.deaths, self.births, older = (x.flatten(0, 1) for x in (deaths, births, older))
        self.cut, self.group, self.total = cut, group, key.shape[2]
        self.starts = cut.block * torch.arange(older.shape[1], device=device).unsqueeze(1)
        # An empty slot is a dead copy of a state that is read in any case: no other can leave a NaN here.
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
        # Comparisons that give numbers: several times as fast as those that give booleans.
        times = self.times[:length].repeat(self.group).unsqueeze(1)
        dies = self._since(self.deaths[:, recent], start, 0)
        dies = torch.cat([self.older_deaths[:, number], dies], dim=1).unsqueeze(1)
        bias = torch.ge(times, dies, out=times.new_empty(len(dies), len(times), dies.shape[2]))
        bias[:, :, -length:] += (times < self.times[:length]).to(times.dtype)
        counts = None
        if self.scores is not None and cut.from_leaving:
            born = self._since(self.births[:, recent], start, -cut.window)
            born = torch.cat([self.older_births[:, number], born], dim=1).unsqueeze(1)
            counts = torch.ge(times - cut.window, born, out=torch.empty_like(bias))
        return _Block(slice(start, start + length), self.older[:, number].flatten(), recent, bias, counts)

    def _older(self, steps: Tensor) -> Tensor:
        return steps.flatten().index_select(0, self.older.flatten()).view(self.older.shape)

    def _since(self, steps: Tensor, start: int | Tensor, least: int) -> Tensor:
        """Return steps counted from a block's start, as far as they matter: exact in any type."""
        return (steps.long() - start).clamp_(least, self.cut.block).to(self.keys.dtype)

    def blind(self) -> Tensor:
        """Return (R, T): the steps that can read nothing, between as many births as deaths before them."""
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
        key: Tensor,
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
        cut: _Cut,
    ) -> Tensor:
        q, scale = _grouped(query, key.shape[1]), query.shape[3] ** -0.5
        states = _States(key, value, scores, deaths, births, older, cut, q.shape[1])
        output = torch.empty_like(q)
        for number in range(len(states)):
            block = states[number]
            here = (q[:, :, block.steps] * scale).flatten(1, 2)
            weights = _weights(here, block.load(states.keys), states, block)
            read = torch.bmm(weights, block.load(states.values))
            output[:, :, block.steps] = read.unflatten(1, (q.shape[1], -1))
        output.masked_fill_(states.blind()[:, None, :, None], 0)
        return output.to(query.dtype).view(query.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.cut = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, scores, deaths, births, older, output = ctx.saved_tensors
        q, scale = _grouped(query, key.shape[1]), query.shape[3] ** -0.5
        states = _States(key, value, scores, deaths, births, older, ctx.cut, q.shape[1])
        output, arriving = (_grouped(x, key.shape[1]) for x in (output, d_output))
        arriving = arriving.masked_fill(states.blind()[:, None, :, None], 0)
        d_q = torch.empty_like(q)
        d_keys, d_values = torch.zeros_like(states.keys), torch.zeros_like(states.values)
        d_scores = None if states.scores is None else torch.zeros_like(states.scores)
        for number in range(len(states)):
            block = states[number]
            keys, here = block.load(states.keys), (q[:, :, block.steps] * scale).flatten(1, 2)
            weights = _weights(here, keys, states, block)
            came, read = (x[:, :, block.steps].flatten(1, 2) for x in (arriving, output))
            block.add(d_values, torch.bmm(weights.transpose(1, 2), came))
            d_energies = torch.bmm(came, block.load(states.values).transpose(1, 2))
            d_energies.sub_((came * read).sum(dim=2, keepdim=True)).mul_(weights)
            block.add(d_keys, torch.bmm(d_energies.transpose(1, 2), here))
            d_here = torch.bmm(d_energies, keys).mul_(scale)
            d_q[:, :, block.steps] = d_here.unflatten(1, (q.shape[1], -1))
            if d_scores is not None:
                block.add(d_scores, _times(d_energies, block.counts).sum(dim=1))
        totals = zip((d_q, d_keys, d_values, d_scores), (query, key, value, scores), strict=True)
        grads = (None if x is None else x.view(like.shape).to(like.dtype) for x, like in totals)
        return *grads, None, None, None, None


def _grouped(query: Tensor, heads: int) -> Tensor:
    """Return (R, G, T, D) in the accumulation type, for R rows and heads of keys, with G of queries each."""
    rows, of_queries, steps, size = query.shape
    wide = query.to(accumulation_dtype(query.dtype))
    return wide.reshape(rows * heads, of_queries // heads, steps, size)


def _weights(query: Tensor, keys: Tensor, states: _States, block: _Block) -> Tensor:
    """Return the softmax of the energies, (R, G·L, M)."""
    # Half of the smallest number takes any energy's weight to 0 and is finite itself: a step that can
    # read nothing has weights, which are no NaN and are multiplied by no gradient.
    masked = torch.finfo(query.dtype).min / 2
    energies = block.bias.baddbmm_(query, keys.transpose(1, 2), beta=masked)
    if states.scores is not None:
        energies.add_(_times(block.load(states.scores).unsqueeze(1), block.counts))
    weights: Tensor = energies.softmax(dim=2)
    return weights


def _times(x: Tensor, counts: Tensor | None) -> Tensor:
    return x if counts is None else x * counts
