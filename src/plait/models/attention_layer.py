"""A Transformer block as a layer that can be called chunk by chunk: its state is the KV cache."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from plait.errors import check_choice
from plait.models.block import Block, causal
from plait.models.layer import Layer, cast_state
from plait.models.rotation import rotated
from plait.models.state import join_traces
from plait.ops.slots import MemoryState, clear, empty_memory
from plait.ops.state_check import remember
from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["AttentionLayer"]


class AttentionLayer(Layer):
    """A causal pre-norm block over (T, B, width): h_t reads the keys and values of steps 1 … t.

    The memory has one slot of 2·width for every past step: its key, rotated to its position, then its value.
    `hidden` is h_T, which no later step reads. Positions are counted from the row's last reset and enter by
    rotation alone, so there is no maximum length.

    >>> layer = AttentionLayer(8, heads=2, depth=1)
    >>> walked = layer(torch.randn(5, 3, 8))
    >>> walked.output.shape, walked.state.memory.slots.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 5, 16]))
    """

    def __init__(
        self,
        width: int,
        heads: int,
        depth: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.input_size = self.hidden_size = width
        self.block = Block(width, heads, depth, bias, device, dtype)
        self.backend = check_choice(backend, ("auto", "reference"), "backend")

    @property
    def slot_size(self) -> int:
        return 2 * self.hidden_size  # a key and a value

    def initial_state(
        self, batch_size: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> LayerState:
        """Return the state with an empty cache."""
        weight = self.block.into_heads.weight
        dtype, device = dtype or weight.dtype, device or weight.device
        return LayerState(
            torch.zeros(batch_size, self.hidden_size, dtype=dtype, device=device),
            None,
            empty_memory(batch_size, 0, 2 * self.hidden_size, dtype=dtype, device=device),
        )

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

        `reset` (T, B) empties a row's cache before a step, `nudge` (T, B, width) is added to h_t.
        """
        if state is None:
            state = self.initial_state(x.shape[1], x.dtype, x.device)
        else:
            self.check_state(state, x.shape[1])
        memory = cast_state(state, x.dtype).memory
        # Caches are cleared at resets only, so the steps between two of them take one call of the block.
        begins = [0] if reset is None else [0, *(reset[1:].any(1).nonzero().flatten() + 1).tolist()]
        outputs, traces = [], []
        for begin, end in zip(begins, [*begins[1:], len(x)], strict=True):
            if reset is not None:
                memory = clear(reset[begin], memory)
            output, memory, trace = self._stretch(x[begin:end], memory, need_trace)
            outputs.append(output)
            traces.append((trace,))
        output = torch.cat(outputs)
        if nudge is not None:
            output = output + nudge
        joined = join_traces(traces, x.shape[1], None)[0] if need_trace else None
        remember(memory, None)
        return LayerResult(output, LayerState(output[-1], None, memory), joined)

    def _stretch(self, x: Tensor, memory: MemoryState, need_trace: bool) -> tuple[Tensor, MemoryState, Trace]:
        steps, width = len(x), memory.born.shape[1]
        positions = memory.age[:, None] + torch.arange(steps, device=x.device)  # (B, T)
        born = torch.cat([memory.born, positions], dim=1)
        # (B, T, κ): readable are occupied slots from before the call, and no later step of the call
        earlier = torch.ones(steps, width + steps, dtype=torch.bool, device=x.device).tril(width)
        readable = earlier & (born >= 0)[:, None]
        results: dict[str, Tensor] = {}

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            heads = query.shape[1]
            query, key = rotated(query, positions), rotated(key, positions)
            results["slots"] = torch.cat([memory.slots, _joint(key, value).to(memory.slots.dtype)], dim=1)
            if need_trace or self.backend == "reference":
                key, value = _apart(results["slots"], heads, query.dtype)
                read, results["weights"] = _explicit(query, key, value, readable)
                return read
            if width == 0:
                return causal(query, key, value)
            key, value = _apart(results["slots"], heads, query.dtype)
            return scaled_dot_product_attention(query, key, value, attn_mask=readable[:, None])

        output = self.block(x.transpose(0, 1), attend).transpose(0, 1).to(x.dtype)
        relevance = pad(memory.relevance, (0, steps))
        after = MemoryState(results["slots"], relevance, born, memory.age + steps)
        weights = results.get("weights", relevance.new_zeros(0)).detach()
        trace = Trace(born[:, None].where(readable, -1).transpose(0, 1), weights, torch.zeros_like(weights))
        return output, after, trace

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, heads={self.block.heads}, backend={self.backend!r}"


def _explicit(query: Tensor, key: Tensor, value: Tensor, readable: Tensor) -> tuple[Tensor, Tensor]:
    """Compute attention without a fused kernel; its weights (T, B, κ) are the mean over the heads."""
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        energies = (query.to(wide) @ key.to(wide).transpose(-1, -2)) / query.shape[-1] ** 0.5
        weights = energies.masked_fill(~readable[:, None], -torch.inf).softmax(-1)
        read = (weights @ value.to(wide)).to(query.dtype)
    return read, weights.mean(1).transpose(0, 1)


def _joint(key: Tensor, value: Tensor) -> Tensor:
    """Join keys and values (B, heads, T, d) to (B, T, 2·heads·d)."""
    return torch.cat([part.transpose(1, 2).flatten(2) for part in (key, value)], dim=-1)


def _apart(slots: Tensor, heads: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Split joined slots into keys and values, the inverse of `_joint`."""
    key, value = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in slots.to(dtype).chunk(2, dim=-1))
    return key, value
