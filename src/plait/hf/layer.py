"""One layer of a bounded cache: a fixed number of slots for each KV head, filled by a policy.

A chunk of several tokens is read by lifetimes (`plait.ops.bounded_attention`), a single token in place; both
keep at every step what the definition keeps, `plait.ops.lifetimes.naive`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from plait.errors import ConfigError, ShapeError, require
from plait.hf.attention import LAYER, is_attached
from plait.hf.policies import Policy, Slots, Token
from plait.ops.bounded_attention import bounded_attention
from plait.ops.lifetimes import LifetimeState, gather_kept, lifetimes

__all__ = ["BoundedLayer", "Limits"]

cache_utils: Any = require("transformers.cache_utils", "hf")


class Limits(NamedTuple):
    """States that a head keeps: the first `sinks`, the latest `window`, and `capacity` others."""

    window: int
    capacity: int
    sinks: int

    @property
    def slots(self) -> int:
        return self.sinks + self.window + self.capacity

    def times(self, factor: float) -> Limits:
        """Return limits of another size, with the same sinks.

        >>> Limits(window=64, capacity=188, sinks=4).times(0.5)
        Limits(window=32, capacity=92, sinks=4)
        """
        slots, window = round(self.slots * factor), max(1, round(self.window * factor))
        return Limits(window, max(0, slots - window - self.sinks), self.sinks)


class BoundedLayer(cache_utils.CacheLayerMixin):
    """Slots of one layer, all allocated with the first token.

    `keys` and `values` are (B, H, slots, D); `births` (B, H, slots) the step at which a state came, −1 in an
    empty slot; `ranks` (B, H, slots) float32 what the policy orders by; `is_sink` (B, H, slots). `count` (B,)
    is the number of tokens of a row without its padding, `seen` the number of steps with it.
    """

    is_compileable = False
    is_sliding = False
    is_croppable = False
    supports_early_init = False

    births: Tensor
    ranks: Tensor
    is_sink: Tensor
    count: Tensor

    def __init__(self, index: int, limits: Limits, policy: Policy, config: Any) -> None:
        super().__init__()
        self.index, self.limits, self.policy, self.config = index, limits, policy, config
        self.longest = getattr(config, "max_position_embeddings", None)
        self.below: BoundedLayer | None = None  # the bounded layer that the model reads before this one
        self.seen = 0
        self.hidden: Tensor | None = None  # input of the model's layer, where the policy needs it
        self._is_waiting = False
        self._is_sorted = True
        self._is_padded = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate every slot."""
        rows, heads = key_states.shape[:2]
        shape, device = (rows, heads, self.limits.slots), key_states.device
        self.dtype, self.device = key_states.dtype, device
        self.keys = key_states.new_zeros(*shape, key_states.shape[3])
        self.values = value_states.new_zeros(*shape, value_states.shape[3])
        self.births = torch.full(shape, -1, device=device)
        self.ranks = torch.zeros(shape, device=device)
        self.is_sink = torch.zeros(shape, dtype=torch.bool, device=device)
        self.count = torch.zeros(rows, dtype=torch.int64, device=device)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the new states alone; the attention function calls `read`, which takes them in."""
        if not is_attached(self.config):
            raise ConfigError(
                "attention: expected the function that BoundedCache(model) sets, got "
                f"{self.config._attn_implementation!r}; make the cache after the last set_attn_implementation"
            )
        if self._is_waiting or (self.below is not None and self.below._is_waiting):
            raise ConfigError(
                "cache: expected the model it was made for, and calls that end, got another model or a call "
                "after one that failed; call reset() or make a new BoundedCache"
            )
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if len(key_states) != len(self.keys):
            raise ShapeError(
                f"batch: expected {len(self.keys)} rows as in the calls before, got {len(key_states)}; "
                "call reset() or make a new BoundedCache"
            )
        total = self.seen + key_states.shape[2]
        if self.longest is not None and total > self.longest:
            raise ConfigError(
                f"length: expected at most {self.longest:,} tokens, the positions this model was trained on, "
                f"got {total:,}; the cache keeps a state's own position and does not renumber"
            )
        key_states = key_states.view_as(key_states)
        setattr(key_states, LAYER, self)
        self._is_waiting = True
        return key_states, value_states

    def read(
        self, query: Tensor, key: Tensor, value: Tensor, *, valid: Tensor | None, scaling: float | None
    ) -> Tensor:
        """Take in n states and return what their queries (B, heads, n, D) read, each at its own step."""
        self._is_waiting = False
        steps = key.shape[2]
        factor = 1.0 if scaling is None else scaling * query.shape[3] ** 0.5
        if factor != 1:
            query = query * factor
        self._is_padded |= valid is not None
        is_full = self.seen >= self.limits.slots and not self._is_padded
        if is_full and steps == 1 and self.policy.move is None:
            ranks = self._birth_ranks(key, value, self.count.unsqueeze(1))
            output = self._replace_one(query, key, value, ranks)
            self.count = self.count + 1
            return output
        if valid is None:
            valid = torch.ones(len(key), steps, dtype=torch.bool, device=key.device)
        number = self.count.unsqueeze(1) + valid.cumsum(dim=1) - 1
        ranks = self._birth_ranks(key, value, number)
        if self.policy.move is None and steps > 1:
            output = self._read_chunk(query, key, value, ranks, valid)
        else:
            parts = (x.split(1, dim=2) for x in (query, key, value, ranks))
            flags = (x.split(1, dim=1) for x in (valid, number))
            output = torch.cat([self._read_one(*step) for step in zip(*parts, *flags, strict=True)], dim=2)
        self.count = number[:, -1] + 1
        return output

    def _birth_ranks(self, key: Tensor, value: Tensor, number: Tensor) -> Tensor:
        hidden, self.hidden = self.hidden, None
        ranks = self.policy.birth(Token(key, value, number, self.index, hidden)).detach().float()
        return ranks.masked_fill(ranks.isnan(), -torch.inf)

    def _read_chunk(self, query: Tensor, key: Tensor, value: Tensor, ranks: Tensor, valid: Tensor) -> Tensor:
        state = births = None
        if self.seen:
            self._sort()
            births = torch.where(self.births >= 0, self.births - self.seen, 0)
            state = LifetimeState(self.ranks, births)
            key = torch.cat([self.keys, key], dim=2)
            value = torch.cat([self.values, value], dim=2)
        limits = self.limits._asdict()
        life = lifetimes(ranks, valid=valid, state=state, **limits)
        output = bounded_attention(query, key, value, life.deaths, births=births, **limits)
        self.seen += query.shape[2]
        self.keys.copy_(gather_kept(key.detach(), life.sources))
        self.values.copy_(gather_kept(value.detach(), life.sources))
        self.ranks.copy_(life.state.keys)
        self.births.copy_(torch.where(life.state.births < 0, life.state.births + self.seen, -1))
        occupied = self.births >= 0
        self.is_sink.copy_(occupied & (occupied.cumsum(dim=2) <= self.limits.sinks))
        return output

    def _sort(self) -> None:
        """Put the slots into the order of birth, empty ones first, as `lifetimes` takes them."""
        if self._is_sorted:
            return
        order = self.births.argsort(dim=2)
        for name in ("keys", "values", "births", "ranks", "is_sink"):
            slots = getattr(self, name)
            index = order if slots.dim() == 3 else order.unsqueeze(-1).expand_as(slots)
            slots.copy_(slots.gather(2, index))
        self._is_sorted = True

    def _read_one(
        self, query: Tensor, key: Tensor, value: Tensor, rank: Tensor, valid: Tensor, number: Tensor
    ) -> Tensor:
        """Read one step, its state in the slot of the one that dies; all others stay where they are."""
        slot = self._free_slot()
        valid, number = valid.unsqueeze(1), number.unsqueeze(1)  # (B, 1, 1)
        self.births.scatter_(2, slot, torch.where(valid, self.seen, -1).expand_as(slot))
        self.ranks.scatter_(2, slot, rank)
        self.is_sink.scatter_(2, slot, (valid & (number < self.limits.sinks)).expand_as(slot))
        index = slot.unsqueeze(-1)
        self.keys.scatter_(2, index.expand_as(key), key.detach())
        self.values.scatter_(2, index.expand_as(value), value.detach())
        self._is_sorted = False
        occupied = self.births >= 0
        # A padding step in an empty cache has no result that is used, but no mask may be all False.
        readable = (occupied | ~occupied.any(dim=2, keepdim=True)).unsqueeze(2)
        grouped = query.view(*key.shape[:2], -1, query.shape[3])
        if self.policy.move is None:
            read = scaled_dot_product_attention(grouped, self.keys, self.values, attn_mask=readable)
        else:
            energies = (grouped.float() * query.shape[3] ** -0.5) @ self.keys.float().mT
            weights = energies.masked_fill(~readable, -torch.inf).softmax(dim=-1)
            read = (weights @ self.values.float()).to(query.dtype)
            received = torch.where(valid, weights.detach().sum(dim=2), 0)
            in_window = self.births > self.seen - self.limits.window
            slots = Slots(self.keys, self.ranks, received, occupied, in_window)
            self.ranks.copy_(torch.where(valid & occupied, self.policy.move(slots), self.ranks))
        self.seen += 1
        return read.view_as(query)

    def _replace_one(self, query: Tensor, key: Tensor, value: Tensor, rank: Tensor) -> Tensor:
        """Read one step as `_read_one` does, where no slot is empty: the sinks are known, one state dies."""
        older = self.births <= self.seen - self.limits.window
        older &= ~self.is_sink
        slot = self._lowest(older)
        self.births.scatter_(2, slot, self.seen)
        self.ranks.scatter_(2, slot, rank)
        index = slot.unsqueeze(-1)
        self.keys.scatter_(2, index.expand_as(key), key.detach())
        self.values.scatter_(2, index.expand_as(value), value.detach())
        self._is_sorted = False
        self.seen += 1
        grouped = query.view(*key.shape[:2], -1, query.shape[3])
        # with a mask as in `_read_one`, so that the same kernel gives the same bits
        readable = torch.ones_like(self.is_sink).unsqueeze(2)
        read = scaled_dot_product_attention(grouped, self.keys, self.values, attn_mask=readable)
        return read.view_as(query)

    def _lowest(self, older: Tensor) -> Tensor:
        """Return (B, H, 1): the slot of the older state that ranks lowest, of equal ones the latest."""
        ranks = self.ranks.masked_fill(~older, torch.inf)
        lowest = older & (ranks == ranks.amin(dim=2, keepdim=True))
        return torch.where(lowest, self.births, -1).argmax(dim=2, keepdim=True)

    def _free_slot(self) -> Tensor:
        """Drop the state that ranks lowest of too many older ones; return (B, H, 1), a slot that is free.

        One state leaves the window at a step, so one is too many at most; otherwise an empty slot is left.
        """
        occupied = self.births >= 0
        older = occupied & ~self.is_sink & (self.births <= self.seen - self.limits.window)
        too_many = older.sum(dim=2, keepdim=True) > self.limits.capacity
        empty = (~occupied).to(torch.uint8).argmax(dim=2, keepdim=True)
        return torch.where(too_many, self._lowest(older), empty)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the size and the offset of the chunk's own mask, which marks padding."""
        return query_length, self.seen

    def get_seq_length(self) -> int:
        """Return the number of tokens seen, from which the model counts positions."""
        return self.seen

    def get_max_length(self) -> int:
        """Return −1: any number of tokens passes through the slots."""
        return -1

    def reset(self) -> None:
        """Forget everything; the slots stay allocated."""
        self.seen, self._is_waiting, self._is_sorted, self._is_padded = 0, False, True, False
        if self.is_initialized:
            self.births.fill_(-1)
            self.is_sink.fill_(False)
            for slots in (self.keys, self.values, self.ranks, self.count):
                slots.zero_()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Put the rows of beam search into a new order."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order."""
        self._change_rows(lambda slots: slots.index_select(0, indices.to(slots.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        self._change_rows(lambda slots: slots.repeat_interleave(repeats, dim=0))

    def _change_rows(self, change: Any) -> None:
        if self.is_initialized:
            for name in ("keys", "values", "births", "ranks", "is_sink", "count"):
                setattr(self, name, change(getattr(self, name)))

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: a state that was dropped cannot be brought back."""
        raise ConfigError(
            "crop: a bounded cache cannot take tokens back, so prompt lookup and assisted decoding do not "
            "work with it; generate without them"
        )

    def activate_past_recording(self) -> None:
        """Refuse, as `crop` does, before anything is generated."""
        self.crop(0)

    def offload(self) -> None:
        """Refuse: the slots are few enough to stay."""
        raise ConfigError("offloading: a bounded cache stays on its device; take fewer slots instead")

    prefetch = offload

    def __repr__(self) -> str:
        return f"BoundedLayer(slots={self.limits.slots}, seen={self.seen})"
