"""Lists of the older states that each block of queries can read, from births and deaths alone.

Queries are cut into blocks. A block reads the states that are older than the window at its first step and
still alive then: sinks + capacity at most. Over the blocks such a state is alive in an unbroken range, and
has one slot for all of it. Sort the ranges by their beginnings, and again by their ends. When range i begins,
at most slots − 1 others are active, so at least i − slots + 1 have ended; it takes the slot of the range that
was number i − slots to end. Following these links by pointer doubling gives every slot without a loop over
blocks, and no two active ranges share one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.errors import ShapeError

__all__ = ["older_states"]


def older_states(deaths: Tensor, births: Tensor, steps: int, window: int, block: int, width: int) -> Tensor:
    """Return (B, H, blocks, width): the index of the state in each slot during each block, or −1.

    Args:
        deaths: (B, H, C + T).
        births: (B, H, C + T); carried ones are negative and belong to the first block, even if they are still
            in the window.
        steps: T, the number of queries.
        window: latest states kept, which are not part of the list.
        block: number of queries per block.
        width: largest number of states alive at the same time.

    >>> deaths = torch.tensor([[[9, 3, 4, 9, 9, 9]]])  # window 1, capacity 2
    >>> older_states(deaths, torch.arange(6).view(1, 1, 6), 6, 1, 2, 2).tolist()
    [[[[-1, -1], [0, 1], [0, 3]]]]
    """
    blocks = -(-steps // block)
    begin = torch.where(births < 0, 0, births + window + block - 1).div(block, rounding_mode="floor")
    end = ((deaths.long() + block - 1).div(block, rounding_mode="floor")).clamp(0, blocks)
    begin = torch.where(end > begin, begin, blocks)  # never active: sorted behind all others
    end = torch.where(begin < blocks, end, blocks + 1)
    if not deaths.is_cuda and not torch.compiler.is_compiling():
        _check_width(begin, end, blocks, width)

    # births ascend, so the beginnings of the active ranges do: they are sorted without a sort
    active = begin < blocks
    earlier = active.cumsum(dim=2)
    rank = torch.where(active, earlier - 1, earlier[..., -1:] + _counting(begin) - earlier)
    by_begin = torch.empty_like(rank).scatter_(2, rank, _counting(rank))
    by_end = end.int().argsort(dim=2, stable=True)
    ended = rank.gather(2, by_end)  # for the ranges sorted by their ends, the rank by their beginnings
    number = _counting(rank)
    link = torch.where(
        number < width, number, torch.nn.functional.pad(ended, (width, 0))[..., : rank.shape[2]]
    )
    # ranges that share a slot do not overlap, so a chain has at most as many links as there are blocks
    for _ in range(min(blocks, rank.shape[2]).bit_length()):
        link = link.gather(2, link)

    begin = begin.gather(2, by_begin)
    position = torch.where(begin < blocks, begin * width + link, blocks * width).clamp_max(blocks * width)
    table: Tensor = begin.new_full((*deaths.shape[:2], blocks * width + 1), -1)
    table = table.scatter_(2, position, number)[..., :-1].unflatten(2, (blocks, width))
    if not table.numel() or not rank.shape[2]:
        return table
    table = table.cummax(dim=2).values  # a slot's states follow each other in the order they begin
    index = by_begin.gather(2, table.clamp_min(0).flatten(2))
    over = end.gather(2, index).view_as(table) <= torch.arange(blocks, device=table.device).unsqueeze(1)
    states: Tensor = index.view_as(table)
    return states.masked_fill((table < 0) | over, -1)


def _counting(like: Tensor) -> Tensor:
    return torch.arange(like.shape[2], device=like.device).expand_as(like)


def _check_width(begin: Tensor, end: Tensor, blocks: int, width: int) -> None:
    """Refuse deaths with more states alive than there are slots, as those of another memory."""
    changes = torch.zeros(*begin.shape[:2], blocks + 2, dtype=torch.int64, device=begin.device)
    changes.scatter_add_(2, begin, torch.ones_like(begin)).scatter_add_(2, end, -torch.ones_like(end))
    alive = changes[..., :blocks].cumsum(dim=2)
    if alive.numel() and (most := int(alive.max())) > width:
        raise ShapeError(
            f"deaths: expected at most {width} older states alive together, got {most}; "
            "take them from lifetimes with the same window, capacity and sinks"
        )
