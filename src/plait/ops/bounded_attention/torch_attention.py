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
    cut = _Cut(window, block, score_from == "leaving")
    output: Tensor = _Attention.apply(query, key, value, scores, deaths, births, older, cut)
    return output


def block_length(steps: int, slots: int) -> int:
    """Return how many queries are a block: more of them cost fewer gathers, and more masked pairs.

    Measured on a CPU with 16 to 512 slots and heads of 16 and 64 features.
    """
    return min(max(steps, 1), 64 if slots < 128 else 128)


class _Cut(NamedTuple):
    window: int
    block: int
    from_leaving: bool


class _States(NamedTuple):
    """What can be read, rows and heads flattened to R: `keys` and `values` (R, C + T, D).

    `scores`, `deaths` and `births` are (R, C + T), `older` (R, blocks, K) is the table of `older_states`.
    """

    keys: Tensor
    values: Tensor
    scores: Tensor | None
    deaths: Tensor
    births: Tensor
    older: Tensor

    @classmethod
    def of(
        cls,
        key: Tensor,
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
    ) -> _States:
        wide = accumulation_dtype(key.dtype)
        keys, values = (x.to(wide).flatten(0, 1).contiguous() for x in (key, value))
        rated = None if scores is None else scores.to(wide).flatten(0, 1).contiguous()
        return cls(keys, values, rated, *(x.flatten(0, 1) for x in (deaths, births, older)))

    def blind(self, steps: int) -> Tensor:
        """Return (R, T): the steps that can read nothing, between as many births as deaths before them."""
        born = self.births.clamp_min(0)
        dead = self.deaths.long().clamp(max=steps).maximum(born)  # padding dies at its birth
        changes = born.new_zeros(len(born), steps + 1).scatter_add_(1, born, torch.ones_like(born))
        changes.scatter_add_(1, dead, -torch.ones_like(dead))
        return changes[:, :steps].cumsum(dim=1).eq(0)


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
        states = _States.of(key, value, scores, deaths, births, older)
        output = torch.empty_like(q)
        for number in range(older.shape[2]):
            block = _block(number, states, cut, *q.shape[1:3])
            here = (q[:, :, block.steps] * scale).flatten(1, 2)
            weights = _weights(here, block.load(states.keys), states, block)
            read = torch.bmm(weights, block.load(states.values))
            output[:, :, block.steps] = read.unflatten(1, (q.shape[1], -1))
        output.masked_fill_(states.blind(q.shape[2])[:, None, :, None], 0)
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
        states = _States.of(key, value, scores, deaths, births, older)
        output, arriving = (_grouped(x, key.shape[1]) for x in (output, d_output))
        arriving = arriving.masked_fill(states.blind(q.shape[2])[:, None, :, None], 0)
        d_q = torch.empty_like(q)
        d_keys, d_values = torch.zeros_like(states.keys), torch.zeros_like(states.values)
        d_scores = None if states.scores is None else torch.zeros_like(states.scores)
        for number in range(older.shape[2]):
            block = _block(number, states, ctx.cut, *q.shape[1:3])
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
        grads = (None if x is None else x.view(given.shape).to(given.dtype) for x, given in totals)
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


def _block(number: int, states: _States, cut: _Cut, group: int, steps: int) -> _Block:
    total = states.deaths.shape[1]
    carried, start = total - steps, number * cut.block
    length = min(cut.block, steps - start)
    recent = slice(carried + max(0, start - cut.window + 1), carried + start + length)
    older = states.older[:, number]
    # an empty slot is a dead copy of a state that is read in any case: no other can leave a NaN here
    empty = older < 0
    rows = total * torch.arange(len(older), device=older.device).unsqueeze(1)
    older = (older.masked_fill(empty, carried + start) + rows).flatten()
    block = _Block(slice(start, start + length), older, recent, states.keys, None)

    # Comparisons that give numbers: several times as fast as those that give booleans. Counted from the
    # block's start the steps are exact in any type.
    dtype, device = states.keys.dtype, older.device
    times = torch.arange(length, dtype=dtype, device=device).repeat(group).unsqueeze(1)
    dies = block.load(states.deaths)
    dies[:, : empty.shape[1]].masked_fill_(empty, 0)
    dies = (dies.long() - start).clamp_(0, length).to(dtype).unsqueeze(1)
    bias = times.new_empty(len(dies), *times.shape[:1], dies.shape[2])
    torch.ge(times, dies, out=bias)
    bias[:, :, -length:] += (times < times[:length, 0]).to(dtype)
    counts = None
    if states.scores is not None and cut.from_leaving:
        born = (block.load(states.births) - start).clamp_(-cut.window, length).to(dtype).unsqueeze(1)
        counts = torch.ge(times - cut.window, born, out=torch.empty_like(bias))
    return block._replace(bias=bias, counts=counts)
