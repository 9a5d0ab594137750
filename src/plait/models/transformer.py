"""A causal Transformer with the interface of the recurrent models."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ShapeError, check_int
from plait.estimates import FLOAT, check_fits, check_weights
from plait.memory import Memory, WindowMemory
from plait.models.attention_layer import AttentionLayer
from plait.models.attention_memory import bounded_memory, checked_positions, memory_options
from plait.models.block import linear_layer
from plait.models.bounded_attention_layer import BoundedAttentionLayer
from plait.models.layer import LAYER, Layer
from plait.models.positions import DIGITS
from plait.models.recurrent import Recurrent
from plait.models.state import State
from plait.ops.walk import Trace

__all__ = ["Transformer"]

_SIZES = ("hidden_size", "num_layers", "bias", "dropout", "heads")
_OF_MEMORY = ("window", "capacity", "relevance", "noise", "sinks", "every")


class Transformer(Recurrent):
    """x_t through a linear map, `num_layers` causal pre-norm blocks and a last norm: h_t (T, B, hidden_size).

    A block adds softmax attention over all steps so far and a gelu network four times as wide. Positions
    enter by rotating queries and keys, counted from the row's last reset, so there is no maximum length. The
    state is the key/value cache, so a sequence can be run whole, in pieces or step by step; it grows by
    2·hidden_size numbers per step and layer. Gradient records and `nudge` apply to the blocks' outputs,
    before the last norm; a trace's weights are means over the heads.

    With `memory` every head reads at most `slots` states and the state has a fixed size: `RelevancyMemory(…,
    relevance="learned")` keeps a few sinks, a window, and of the states that left it those of highest score
    r_j = g·norm(x_j), which is also a term of the energy q·k/√d + r_j, so that reading trains g. All
    steps are computed in one pass, in chunks or one by one; `relevance="earned"` takes one step a call.
    A trace has the slots of all heads side by side, their weights divided by the number of heads.

    Args:
        input_size: features of the input.
        hidden_size: features of h_t.
        num_layers: blocks one above the other.
        bias: of the linear maps and norms.
        batch_first: input and output are (B, T, feature).
        dropout: applied to the output of every block but the last, while training.
        bidirectional: False alone; it is causal.
        proj_size: 0 alone; project the output with `torch.nn.Linear`.
        device: of the weights.
        dtype: of the weights.
        heads: a divisor of hidden_size; left out, the largest that leaves each head 32 features or more.
        backend: "auto" (torch's scaled_dot_product_attention), or "reference" (the same written out).
        memory: which states can be read: None or `FullMemory` for all of them, `WindowMemory`,
            `RelevancyMemory`, `UniformMemory`; or full, window, relevancy, uniform, with the options below.
        window: of a memory given by its name: the latest states.
        capacity: the same: states kept beyond the window.
        relevance: the same: "learned" if left out, or "earned".
        noise: the same: scale of the Gumbel noise on the scores while training; 0.0 where it is None.
        sinks: the same: the first states, kept for good.
        every: the same: of uniform writing, keep every n-th state.
        positions: with a memory: "rotary" if left out, true distances, as without a memory: learned soon
            where what is read is always equally far, and lost at other distances. "counted": beyond the
            window a distance counts the states that the memory admitted since, so that a stream may be
            longer than the sequences of training. "clamped": distances up to the window and no further,
            which leaves no order among older states.

    >>> model = Transformer(10, 32, num_layers=2, heads=4)
    >>> output, state = model(torch.randn(20, 3, 10))
    >>> step, state = model(torch.randn(1, 3, 10), state)
    >>> step.shape, state.memory[0].slots.shape
    (torch.Size([1, 3, 32]), torch.Size([3, 21, 64]))
    >>> bounded = Transformer(10, 32, heads=4, memory="relevancy", window=4, capacity=4)
    >>> output, state = bounded(torch.randn(20, 3, 10))
    >>> bounded.slots, state.memory[0].slots.shape
    (8, torch.Size([3, 32, 17]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        heads: int | None = None,
        backend: str = "auto",
        memory: Memory | str | None = None,
        window: int | None = None,
        capacity: int | None = None,
        relevance: str | None = None,
        noise: float | None = None,
        sinks: int | None = None,
        every: int | None = None,
        positions: str | None = None,
    ) -> None:
        if bidirectional:
            raise ConfigError("bidirectional: expected False, got True; it is causal")
        if proj_size:
            raise ConfigError(
                f"proj_size: expected 0, got {proj_size}; project the output with torch.nn.Linear"
            )
        check_int(1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_weights(input_size * hidden_size + num_layers * (LAYER + 12 * hidden_size**2), device)
        heads = _usual_heads(hidden_size) if heads is None else heads
        check_int(1, heads=heads)
        if hidden_size % heads:
            raise ConfigError(f"heads: expected a divisor of hidden_size {hidden_size}, got {heads}")
        self.memory = bounded_memory(
            memory,
            window=window,
            capacity=capacity,
            relevance=relevance,
            noise=noise,
            sinks=sinks,
            every=every,
        )
        layers: Iterable[Layer] = (
            AttentionLayer(hidden_size, heads, num_layers, bias, device, dtype, backend=backend)
            for _ in range(num_layers)
        )
        positions = checked_positions(positions, self.memory)
        if (kept := self.memory) is not None:
            beside = 3 + DIGITS * (positions == "counted")  # score, rank and birth of a slot, and its digits
            numbers = num_layers * kept.initial_width * (2 * hidden_size + beside * heads)
            check_fits(FLOAT * numbers, "take a smaller window or capacity, or fewer sinks")
            layers = (
                BoundedAttentionLayer(
                    hidden_size,
                    heads,
                    num_layers,
                    kept,
                    bias,
                    device,
                    dtype,
                    positions=positions,
                    backend=backend,
                )
                for _ in range(num_layers)
            )
        super().__init__(layers, batch_first, dropout)
        self.input_size, self.heads, self.bias, self.positions = input_size, heads, bias, positions
        self.embedding = linear_layer(input_size, hidden_size, 1.0, bias, device, dtype)
        self.norm = nn.LayerNorm(hidden_size, bias=bias, device=device, dtype=dtype)
        if self.memory is not None and positions != "clamped":
            # Copy is learned faster from torch's initialisation, except with clamped positions.
            # Without a memory the weights keep their initialisation, so that stored runs stay reproducible.
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    module.reset_parameters()

    def options(self) -> dict[str, Any]:
        """Return the constructor arguments that rebuild this Transformer, ready for JSON."""
        return self._described({name: getattr(self, name) for name in _SIZES}, self.memory, self.positions)

    @classmethod
    def complete_options(cls, hidden_size: int, **options: Any) -> dict[str, Any]:
        """Return `options()` of the Transformer that these arguments build, without building it.

        The values of the memory are validated; the others when the Transformer is built.

        >>> Transformer.complete_options(64) == Transformer(3, 64).options()
        True
        """
        parameters = inspect.signature(cls).parameters.values()
        values = {p.name: p.default for p in parameters} | options | {"hidden_size": hidden_size}
        memory = bounded_memory(**{name: values[name] for name in ("memory", *_OF_MEMORY)})
        values["dropout"] = float(values["dropout"])
        if values["heads"] is None:
            check_int(1, hidden_size=hidden_size)
            values["heads"] = _usual_heads(hidden_size)
        return cls._described(values, memory, checked_positions(values["positions"], memory))

    @staticmethod
    def _described(values: dict[str, Any], memory: WindowMemory | None, positions: str) -> dict[str, Any]:
        """Return constructor arguments in the form of a description."""
        options = {name: values[name] for name in _SIZES} | memory_options(memory)
        return options if memory is None else {**options, "positions": positions}

    @property
    def slots(self) -> int | None:
        """The most states a head reads in a step, None without a bound."""
        return None if self.memory is None else self.memory.initial_width

    def states_read(self, traces: Sequence[Trace]) -> int:
        """Return the most states that a head read in a step of a call with `need_trace`: at most `slots`.

        >>> model = Transformer(3, 8, heads=2, memory="relevancy", window=2, capacity=1)
        >>> model.states_read(model(torch.randn(9, 2, 3), need_trace=True)[2])
        3
        """
        heads = 1 if self.memory is None else self.heads  # without a bound, all heads read the same states
        return max(int((t.born >= 0).unflatten(-1, (heads, -1)).sum(-1).max()) for t in traces)

    def _run(
        self,
        x: Tensor,
        state: State | None,
        reset: Tensor | None,
        nudge: Sequence[Tensor | None] | None,
        need_trace: bool,
    ) -> tuple[Tensor, State, tuple[Trace, ...]]:
        x = self.embedding(x)
        output, after, traces = super()._run(x, state, reset, nudge, need_trace)
        return self.norm(output).to(x.dtype), after, traces

    def _from_torch_state(self, state: Any, batch_size: int, unbatched: bool) -> State:
        raise ShapeError("state: expected the state this model returned, or None: a Transformer has no h_0")


def _usual_heads(hidden_size: int) -> int:
    return next(heads for heads in range(max(1, hidden_size // 32), 0, -1) if hidden_size % heads == 0)
