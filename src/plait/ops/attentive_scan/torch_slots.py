"""The slot memory of a whole batch, changed in place: forward, and undone step by step in reverse.

A slot holds a state and twice its key, (B·κ, 2H): tanh(x) = 2 σ(2x) − 1, and σ is torch's faster
function of the two. Slots are addressed flat, slot j of row b at b·κ + j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.ops.scan.contract import Inputs, Scanned
from plait.ops.scan.kinds import Scan
from plait.ops.slots import ages_before

__all__ = ["SlotTable", "SlotsInReverse"]

NOTHING = -1


class SlotTable:
    """The state id, relevance and content of every slot.

    `ids` (B·κ,) as in `Scanned.ids`; `standing` (B·κ,) is the relevance, −∞ where a slot is empty, so that
    one comparison decides between a free slot and a full one.
    """

    def __init__(self, inputs: Inputs, scan: Scan, wide: torch.dtype) -> None:
        rows, width, size = inputs.slots.shape
        self.scan = scan
        empty = inputs.born < 0
        numbers = torch.arange(width, dtype=torch.int32, device=inputs.born.device)
        self.ids = numbers.expand(rows, width).masked_fill(empty, NOTHING).view(-1)
        self.standing = inputs.relevance.masked_fill(empty, -torch.inf).view(-1)
        # gᵀh of each slot's state, where relevance is learned
        self.scores = None if inputs.worth is None else inputs.relevance.flatten().clone()
        self.contents = _with_doubled_keys(inputs.slots.to(wide), inputs.key.to(wide)).flatten(0, 1)
        self.ages = ages_before(inputs.age, inputs.reset, len(inputs.projected))
        self.born_of = torch.cat([inputs.born, self.ages.t()], dim=1)
        offsets = torch.arange(rows, device=inputs.born.device) * width
        self.first_kept = offsets + scan.window
        self.ring_slots = (self.ages % scan.window + offsets).unbind()
        # views, so they follow changes in place
        pairs = self.contents.view(rows, width, 2 * size)
        self.states, self.doubled_keys = pairs.split(size, dim=2)
        self.standing_ring = self.standing.view(rows, width)[:, : scan.window]
        self.standing_kept = self.standing.view(rows, width)[:, scan.window :]

    def clear(self, reset: Tensor) -> None:
        """Empty the rows where `reset` (B,) is true."""
        slots = reset.repeat_interleave(self.scan.width)
        self.ids.masked_fill_(slots, NOTHING)
        self.standing.masked_fill_(slots, -torch.inf)
        self.contents.masked_fill_(slots.unsqueeze(1), 0)

    def write(self, t: int, pair: Tensor, score: Tensor | None = None, noise: Tensor | None = None) -> None:
        """Move the oldest state of the ring to a kept slot or drop it, and write `pair` (B, 2H) in its place.

        Its relevance is `score` (B,) plus `noise` (B,), or 0 if relevance is earned.
        """
        ring = self.ring_slots[t]
        if self.scan.capacity:
            standing = self.standing.index_select(0, ring)
            target = self._target(ring, standing)
            self.standing.index_copy_(0, target, standing)
            self.ids.index_copy_(0, target, self.ids.index_select(0, ring))
            self.contents.index_copy_(0, target, self.contents.index_select(0, ring))
            if self.scores is not None:
                self.scores.index_copy_(0, target, self.scores.index_select(0, ring))
        if self.scores is None or score is None:
            self.standing.index_fill_(0, ring, 0)
        else:
            self.scores.index_copy_(0, ring, score)
            self.standing.index_copy_(0, ring, score if noise is None else score + noise)
        self.ids.index_fill_(0, ring, self.scan.width + t)
        self.contents.index_copy_(0, ring, pair)

    def _target(self, ring: Tensor, standing: Tensor) -> Tensor:
        """Return the slot that the leaving state goes to; its own, to be overwritten, if it is not kept."""
        if self.scan.every is None:
            # An empty ring slot has −∞ and replaces nothing, an empty kept slot is replaced by any state.
            least, kept_slot = self.standing_kept.min(dim=1)
            return torch.where(standing > least, kept_slot + self.first_kept, ring)
        leaving = self.ids.index_select(0, ring).long()
        born = self.born_of.gather(1, leaving.clamp_min(0).unsqueeze(1)).squeeze(1)
        admitted = (leaving >= 0) & (born % self.scan.every == 0)
        kept_slot = torch.div(born, self.scan.every, rounding_mode="floor") % self.scan.capacity
        return torch.where(admitted, kept_slot + self.first_kept, ring)

    def born(self, ids: Tensor) -> Tensor:
        """Return the step at which each of `ids` (..., B, κ) was born, −1 for an empty slot."""
        table = self.born_of.expand(*ids.shape[:-2], *self.born_of.shape)
        return table.gather(-1, ids.long().clamp_min(0)).masked_fill_(ids < 0, -1)


class SlotsInReverse:
    """The slots as step t read them, and the gradients of their contents, walked back from the last step.

    Between two steps only two slots change: the one h_t was written to, and the one the leaving state was
    moved to; `ids` show both. A dropped state has no gradient yet when the walk back restores it.
    """

    def __init__(self, inputs: Inputs, scanned: Scanned, wide: torch.dtype) -> None:
        steps, rows, width = scanned.ids.shape
        size = scanned.output.shape[2]
        # every state by id, with its doubled key; id −1, the last row, is empty
        before = _with_doubled_keys(inputs.slots.to(wide), inputs.key.to(wide)).transpose(0, 1)
        since = torch.cat([scanned.output.to(wide), 2 * scanned.keys], dim=2)
        nothing = since.new_zeros(1, rows, 2 * size)
        self.history = torch.cat([before, since, nothing]).flatten(0, 1)
        row = torch.arange(rows, device=scanned.ids.device)
        self.places = torch.remainder(scanned.ids.long(), width + steps + 1) * rows + row.unsqueeze(1)
        self.reset = inputs.reset
        self.is_cut = [False] * steps if inputs.reset is None else inputs.reset.any(dim=1).tolist()
        self.own, self.target, self.moved = _changes(scanned.ids, inputs.reset)
        earlier = torch.cat([self.places[:1], self.places[:-1]]).flatten(1)
        both = torch.cat([self.own, self.target], dim=1)
        self.restored, self.restored_from = both, earlier.gather(1, both)
        self.learned, self.d_score = inputs.worth is not None, scanned.weights.new_zeros(rows)
        self.contents = self.history.index_select(0, self.places[-1].flatten())
        self.d_contents = torch.zeros_like(self.contents)
        self.states, self.doubled_keys = self.contents.view(rows, width, 2 * size).split(size, dim=2)
        self.d_states, self.d_keys = self.d_contents.view(rows, width, 2 * size).split(size, dim=2)
        self.d_scores = self.d_contents.new_zeros(rows * width)  # for a learned relevance; otherwise zero

    def step_back(self, t: int, d_pair: Tensor) -> Tensor:
        """Move the gradients of h_t and its key from the slots into `d_pair` (B, 2H), and undo step t.

        The gradient of its score is added to `d_score` (B,).
        """
        own, target = self.own[t], self.target[t]
        torch.index_select(self.d_contents, 0, own, out=d_pair)
        leaving = self.d_contents.index_select(0, target).masked_fill_(~self.moved[t], 0)
        self.d_contents.index_fill_(0, target, 0).index_copy_(0, own, leaving)
        if self.learned:
            torch.index_select(self.d_scores, 0, own, out=self.d_score)
            gone = self.d_scores.index_select(0, target).masked_fill_(~self.moved[t].squeeze(1), 0)
            self.d_scores.index_fill_(0, target, 0).index_copy_(0, own, gone)
        if self.is_cut[t]:
            assert self.reset is not None
            slots = self.reset[t].repeat_interleave(self.places.shape[2])
            self.d_contents.masked_fill_(slots.unsqueeze(1), 0)
            torch.index_select(self.history, 0, self.places[max(t - 1, 0)].flatten(), out=self.contents)
        else:
            self.contents.index_copy_(
                0, self.restored[t], self.history.index_select(0, self.restored_from[t])
            )
        return d_pair


def _changes(ids: Tensor, reset: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the changes of every step by flat slot.

    They are: the slot h_t was written to, (T, B); the slot the leaving state was moved to, or the same slot
    if it was dropped, (T, B); whether it was moved, (T, B, 1).
    """
    steps, rows, width = ids.shape
    written = width + torch.arange(steps, device=ids.device, dtype=ids.dtype).view(-1, 1, 1)
    own = (ids == written).to(torch.int8).argmax(dim=2, keepdim=True)
    first = torch.arange(width, device=ids.device, dtype=ids.dtype).expand(1, rows, width)
    leaving = torch.cat([first, ids[:-1]]).gather(2, own)
    if reset is not None:
        leaving = leaving.masked_fill(reset.unsqueeze(2), NOTHING)
    match = (ids == leaving) & (leaving >= 0)
    moved = match.any(dim=2, keepdim=True)
    target = torch.where(moved, match.to(torch.int8).argmax(dim=2, keepdim=True), own)
    offsets = torch.arange(rows, device=ids.device) * width
    return own.squeeze(2) + offsets, target.squeeze(2) + offsets, moved


def _with_doubled_keys(states: Tensor, key: Tensor) -> Tensor:
    """Return each state concatenated with twice its key: (..., H) → (..., 2H)."""
    return torch.cat([states, states @ (2 * key).t()], dim=-1)
