"""A Transformer block in which every head reads a bounded memory, at most `slots` states per step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ShapeError, check_choice
from plait.memory import RelevancyMemory, WindowMemory
from plait.models.block import Block
from plait.models.layer import Layer, cast_state, gumbel_noise
from plait.models.positions import DIGITS, POSITIONS, Far, after_call, far_positions, from_digits, to_digits
from plait.models.reading import Readable, Reading, read_by_positions, readings
from plait.models.torch_tools import needs_reference
from plait.ops.attention import accumulation_dtype
from plait.ops.lifetimes import LifetimeState, gather_kept
from plait.ops.slots import MemoryState, ages_before, empty_memory, latest
from plait.ops.state_check import has_values, is_known, remember
from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["BoundedAttentionLayer"]


class BoundedAttentionLayer(Layer):
    """A causal pre-norm block over (T, B, width) in which each head keeps the states chosen by its memory.

    The memory's `slots` (B, heads·κ, 2·d + 1) hold key, value and score of a state, head after head, each
    head's κ states in the order of birth, empty slots first; `relevance` holds the keys by which they were
    ranked. With counted positions a slot has `DIGITS` more entries, the number of admissions since its own.
    `hidden` is h_T, which no later step reads. A trace has the same slots, and the weights in it are divided
    by the number of heads, so that those of a step add up to 1.

    Args:
        width: features of x_t and h_t.
        heads: a divisor of the width.
        depth: number of blocks in the stack.
        memory: which states can be read; with a learned relevance the layer scores every state once.
        bias: whether linear maps and norms have biases.
        device: device of the weights.
        dtype: dtype of the weights.
        positions: "rotary" (true distances), "clamped" (up to the window) or "counted" (beyond the window
            only admitted states count).
        backend: "auto", or "reference" (the definition, all pairs of steps at once).

    >>> layer = BoundedAttentionLayer(8, 2, 1, RelevancyMemory(2, 1, relevance="learned"))
    >>> walked = layer(torch.randn(5, 3, 8))
    >>> walked.output.shape, walked.state.memory.slots.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 6, 9]))
    """

    def __init__(
        self,
        width: int,
        heads: int,
        depth: int,
        memory: WindowMemory,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        positions: str = POSITIONS[0],
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.positions = check_choice(positions, POSITIONS, "positions")
        self.input_size = self.hidden_size = width
        self.heads, self.memory = heads, memory
        self.slots = memory.initial_width
        self.initial_width = heads * self.slots
        self.block = Block(width, heads, depth, bias, device, dtype)
        self.backend = check_choice(backend, ("auto", "reference"), "backend")
        self.worth: nn.Parameter | None = None
        if memory.learns:
            self.worth = nn.Parameter(torch.empty(heads, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the score to zero, so that all states are ranked equally."""
        if self.worth is not None:
            nn.init.zeros_(self.worth)

    @property
    def slot_size(self) -> int:
        return 2 * (self.hidden_size // self.heads) + 1 + DIGITS * self._counts

    def initial_state(
        self, batch_size: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> LayerState:
        """Return the state with all slots allocated and empty."""
        weight = self.block.into_heads.weight
        dtype, device = dtype or weight.dtype, device or weight.device
        return LayerState(
            torch.zeros(batch_size, self.hidden_size, dtype=dtype, device=device),
            None,
            empty_memory(batch_size, self.initial_width, self.slot_size, dtype=dtype, device=device),
        )

    def check_state(self, state: LayerState, batch_size: int) -> None:
        is_new = not is_known(state.memory, None)
        super().check_state(state, batch_size)
        if is_new and has_values(state.memory.relevance):
            _check_scores(state.memory)

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        *,
        reset: Tensor | None = None,
        nudge: Tensor | None = None,
        need_trace: bool = False,
    ) -> LayerResult:
        """Run through `x` (T, B, width).

        `reset` (T, B) empties a row's memory before a step, `nudge` (T, B, width) is added to h_t.
        """
        steps, rows = x.shape[:2]
        if self._earns and steps > 1:
            raise ConfigError(
                f"relevance: 'earned' depends on what else was read, so a call takes one step, got {steps}; "
                "use relevance='learned', or pass one step at a time with the state"
            )
        age = torch.zeros(rows, dtype=torch.int64, device=x.device)
        cached = carried = None
        if state is not None:
            self.check_state(state, rows)
            memory = cast_state(state, x.dtype).memory
            age, cached, carried = memory.age, *self._unpacked(memory)
        stream = x.transpose(0, 1)
        normed = self.block.before_attention(stream)
        query, key, value = self.block.projected(normed)
        scores, ranks = self._scored(normed)
        life = self.memory.lifetimes(ranks, age=age, reset=reset, state=carried)
        entries = torch.cat([key, value, scores.to(key.dtype).unsqueeze(-1)], dim=-1).to(x.dtype)
        births = torch.arange(steps, device=x.device).expand(ranks.shape)
        own = Readable(entries, births, births, ranks, torch.zeros_like(births))
        every = (own if cached is None else cached.joined(own))._replace(deaths=life.deaths)
        far = far_positions(
            self.positions, every.births, every.deaths, every.places, self.memory.window, steps
        )
        if far is not None:
            every = every._replace(places=far.states)
        parts: list[Reading] = []
        if need_trace or self._earns or needs_reference():
            parts = list(readings(query, every, self.memory.window, far, self.slots, self.backend))
            read = torch.cat([part.output for part in parts], dim=2)
        else:
            read = self._read(query, every, far)
        if self._earns:
            every = every._replace(ranks=self._credited(every, parts[0].weights))
            parts = [parts[0]._replace(states=every)]
        read = read.to(query.dtype)
        output = self.block.after(stream, read).transpose(0, 1).to(x.dtype)
        if nudge is not None:
            output = output + nudge
        if far is not None and self._counts:
            every = every._replace(places=after_call(far, every.births, self.memory.window))
        ages = ages_before(age, reset, steps)
        after = self._packed(every.select(life.sources), ages[-1] + 1, steps)
        remember(after, None)
        trace = self._trace(parts, ages) if need_trace else None
        return LayerResult(output, LayerState(output[-1], None, after), trace)

    @property
    def _counts(self) -> bool:
        return self.positions == "counted"

    @property
    def _earns(self) -> bool:
        memory = self.memory
        return isinstance(memory, RelevancyMemory) and memory.relevance == "earned" and memory.capacity > 0

    def _scored(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the score of each state (B, heads, T) and its rank, the score with noise while training.

        Both are 0 without a learned relevance.
        """
        wide = accumulation_dtype(normed.dtype)
        if self.worth is None:
            zeros = normed.new_zeros(len(normed), self.heads, normed.shape[1], dtype=wide)
            return zeros, zeros
        worth = self.worth.detach()
        if not worth.is_cuda and has_values(worth) and not bool(worth.isfinite().all()):  # no synchronisation
            raise ConfigError(
                "worth: expected finite weights of the score, got some that are not; load a checkpoint from "
                "before the run diverged"
            )
        with torch.autocast(normed.device.type, enabled=False):
            scores = (normed.to(wide) @ self.worth.to(wide).t()).transpose(1, 2)
        ranks = scores.detach()
        # reading trains the score of every state in the window, so low scores are explored without noise
        noise = getattr(self.memory, "noise", None) or 0.0
        if noise and self.training:
            ranks = ranks + gumbel_noise(noise, ranks.shape, ranks)
        return scores, ranks.float()

    def _unpacked(self, memory: MemoryState) -> tuple[Readable, LifetimeState]:
        """Return the slots of a memory as states, and the state with which `lifetimes` continues."""
        slots, relevance, born, age = memory
        by_head = (self.heads, self.slots)
        born, ranks = born.unflatten(1, by_head), relevance.unflatten(1, by_head).float()
        births = torch.where(born >= 0, born - age[:, None, None], 0)
        entries, places = slots.unflatten(1, by_head), torch.zeros_like(births)
        if self._counts:
            entries, places = entries[..., :-DIGITS], from_digits(entries[..., -DIGITS:])
        return Readable(entries, births, births, ranks, places), LifetimeState(ranks, births)

    def _packed(self, kept: Readable, age: Tensor, steps: int) -> MemoryState:
        """Return the states kept after `steps` as a memory; the inverse of `_unpacked`."""
        is_empty = kept.deaths <= 0
        born = torch.where(is_empty, -1, age[:, None, None] + kept.births - steps)
        relevance = kept.ranks.to(accumulation_dtype(kept.entries.dtype))
        entries = kept.entries
        if self._counts:
            entries = torch.cat([entries, to_digits(kept.places, entries.dtype)], dim=-1)
        return MemoryState(entries.flatten(1, 2), relevance.flatten(1), born.flatten(1), age)

    def _credited(self, states: Readable, weights: Tensor) -> Tensor:
        """Return the ranks after one step: states in the window earn the weight with which they were read."""
        in_window = states.births > -self.memory.window
        return states.ranks + torch.where(in_window, weights[:, :, 0].detach(), 0).float()

    def _read(self, query: Tensor, states: Readable, far: Far | None) -> Tensor:
        """Return the outputs without the attention weights."""
        memory = self.memory
        sinks = getattr(memory, "sinks", 0)
        capacity = self.slots - memory.window - sinks
        return read_by_positions(query, states, memory.window, capacity, sinks, far, self.backend)

    def _trace(self, readings: list[Reading], ages: Tensor) -> Trace:
        """Return the trace: which state each slot of each head holds at each step."""
        parts, begin = [], 0
        for reading in readings:
            readable, states = reading.readable, reading.states
            now = torch.arange(begin, begin + readable.shape[2], device=ages.device)
            begin += len(now)
            # counted from the row's last reset, as `age` is: (B, H, T, S)
            born = (ages[now].t() - now)[:, None, :, None] + states.births.unsqueeze(2)
            most = int(readable.sum(-1).max())
            if most > self.slots:
                raise RuntimeError(f"a head read {most} states at a step, and it has {self.slots} slots")
            sources = latest(readable.flatten(1, 2), self.slots)
            fields = (
                born + 1,  # an empty slot becomes 0, and then −1
                reading.weights.detach() / self.heads,
                states.ranks.unsqueeze(2).expand_as(readable),
            )
            kept = (gather_kept(field.flatten(1, 2), sources) for field in fields)
            parts.append([field.unflatten(1, readable.shape[1:3]).permute(2, 0, 1, 3) for field in kept])
        born, weights, relevance = (torch.cat(field).flatten(2) for field in zip(*parts, strict=True))
        return Trace(born - 1, weights, relevance)

    def extra_repr(self) -> str:
        size = f"{self.hidden_size}, heads={self.heads}, memory={self.memory}"
        return f"{size}, positions={self.positions!r}, backend={self.backend!r}"


def _check_scores(memory: MemoryState) -> None:
    """Refuse a memory with a non-finite rank."""
    broken = ~memory.relevance.isfinite() & (memory.born >= 0)
    if bool(broken.any()):
        row, slot = (int(index) for index in broken.nonzero()[0])
        raise ShapeError(
            f"state.memory.relevance: expected finite scores, got {float(memory.relevance[row, slot])} "
            f"in row {row}; begin anew with state None"
        )
