"""A stack of self-attentive layers with the interface of `torch.nn.LSTM`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from plait.errors import BackendError, ConfigError, EmptyMemoryWarning, ShapeError
from plait.models.directions import Direction, reversal, reversed_reset, reversed_trace
from plait.models.graphed import Graphs
from plait.models.layer import Layer, autocast_dtype
from plait.models.state import State, join_rows, join_traces
from plait.models.torch_tools import TorchTools
from plait.ops.slots import MemoryState
from plait.ops.walk import LayerResult, LayerState, Trace

__all__ = ["Recurrent"]

StateLike = State | Tensor | tuple[Tensor, Tensor] | None
# runs consecutive steps with the same rows: (T, B, F), state before → output, state after, traces
Run = Callable[[Tensor, State | None], tuple[Tensor, State, tuple[Trace, ...]]]


class Recurrent(TorchTools):
    """A stack of layers, each reading the h_t of the one below.

    To build one from a cell and a memory by name, use a named model such as `plait.RelLSTM`.

    Args:
        layers: `Layer`s, most often `SelfAttentive`; the hidden sizes must agree.
        batch_first: input and output are (B, T, feature) instead of (T, B, feature).
        dropout: probability of dropout on the output of every layer but the last, while training.
        bidirectional: layers come in pairs, forward and backward, each with its own memory; the outputs of a
            pair are concatenated. Such a model reads whole sequences: it cannot be continued.

    Attributes:
        hidden_size: H, of one direction; `output_size` is that of the output.
        bias: whether the cells have one.
        proj_size: 0, for code written for `torch.nn.LSTM`.
        warns_of_empty_memory: whether to warn when a model with a memory gets a state without one; false once
            it has warned.

    >>> from plait import GRUCell, SelfAttentive, WindowMemory
    >>> model = Recurrent([SelfAttentive(GRUCell(3, 8), WindowMemory(5))], batch_first=True)
    >>> output, state = model(torch.randn(2, 7, 3))
    >>> output.shape, state.hidden.shape
    (torch.Size([2, 7, 8]), torch.Size([1, 2, 8]))
    """

    _graphs: Graphs | None = None

    def __init__(
        self,
        layers: Iterable[Layer],
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if isinstance(dropout, bool) or not (isinstance(dropout, int | float) and 0 <= dropout <= 1):
            raise ConfigError(f"dropout: expected a probability between 0 and 1, got {dropout!r}")
        self.bidirectional = bool(bidirectional)
        _check_sizes(self._layers(), self._directions)
        first = self._layers()[0]
        self.input_size, self.hidden_size = first.input_size, first.hidden_size
        self.num_layers = len(self.layers) // self._directions
        self.batch_first = batch_first
        self.dropout = float(dropout)
        cells = [getattr(layer, "cell", None) for layer in self._layers()]
        self.bias = all(getattr(cell, "bias", None) is not None for cell in cells)
        self.proj_size = 0
        # a backward direction starts with an empty memory in any case
        self.warns_of_empty_memory = not bidirectional and any(layer.has_memory for layer in self._layers())

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """The number of output features: H, or 2H in both directions."""
        return self.hidden_size * self._directions

    def forward(
        self,
        input: Tensor | PackedSequence,
        state: StateLike = None,
        *,
        reset: Tensor | None = None,
        nudge: Sequence[Tensor | None] | None = None,
        need_trace: bool = False,
    ) -> Any:
        """Run the stack.

        Args:
            input: (T, B, F), (B, T, F) with `batch_first`, (T, F), or a `PackedSequence`.
            state: the state returned by the last call, or (h_0, c_0) or h_0 as in `torch.nn`: a memory
                then starts empty, with an `EmptyMemoryWarning` the first time.
            reset: bool, shaped like the input without F; clears a row's state before that step. A backward
                direction, which runs the other way, is cleared after that step.
            nudge: one tensor (T, B, H) or None per layer, added to that layer's h_t. A zero tensor that
                requires gradients receives the total dL/dh_t. Always time first.
            need_trace: also return a tuple with one `Trace` per layer, time first; a backward direction
                counts its steps (`born`) from its own start, the end of the sequence.

        Layers of a bidirectional model are ordered as in torch: 1 forward, 1 backward, 2 forward, …

        Returns:
            output (h_t of the last layer, laid out like the input) and state; with `need_trace` the traces.
        """
        if isinstance(input, PackedSequence):
            if reset is not None or nudge is not None:
                raise ShapeError("reset and nudge need a padded input, got a PackedSequence; unpack it first")
            return self._forward_packed(input, state, need_trace)
        if self._graphs is not None and nudge is None and not need_trace:
            replayed = self._graphs.call(self, input, state, reset)
            if replayed is not None:
                return replayed
        if input.dim() not in (2, 3):
            raise ShapeError(f"input: expected 2 or 3 dimensions, got {_shape(input)}")
        unbatched = input.dim() == 2
        x = input.unsqueeze(1) if unbatched else input.transpose(0, 1) if self.batch_first else input
        if reset is not None:
            reset = reset.unsqueeze(1) if unbatched else reset.t() if self.batch_first else reset
        self._check(x, reset, nudge)
        begin = self._begin(state, x.shape[1], unbatched)
        output, end, traces = self._run(x, begin, reset, nudge, need_trace)
        if unbatched:
            output, end = output.squeeze(1), end.unbatched()
        elif self.batch_first:
            output = output.transpose(0, 1)
        return (output, end, traces) if need_trace else (output, end)

    def check_state(self, state: StateLike, batch_size: int) -> None:
        """Raise a `ShapeError` if `state` is not one that this model could return for such a batch.

        Every call checks its own state; use this for a state that comes from outside and is used later.
        """
        self.checked_state(state, batch_size)

    def checked_state(self, state: StateLike, batch_size: int) -> State | None:
        """Return `state` in this model's own form, None for none; a `ShapeError` as `check_state`."""
        begin = self._begin(state, batch_size, unbatched=False)
        for layer, part in zip(self._layers(), [] if begin is None else begin.layers(), strict=False):
            layer.check_state(part, batch_size)
        return begin

    def graphed(self, enabled: bool = True) -> Self:
        """Run this model by CUDA graphs from now on, or with False no longer; return the model itself.

        Use it where short sequences wait for Python. Results are bit for bit the same. Forward and backward
        are captured the second time that a call of the same shapes comes; later calls replay the capture, of
        which the last 8 kinds are kept with their activations. Weights may be trained, loaded and moved;
        other settings of the model, and hooks of its layers, are those at the time of the capture: call
        `graphed()` again after changing them. Eager as before: calls with `nudge` or `need_trace`, packed and
        unbatched inputs, `torch.compile`, and a forward pass of which an earlier one of the same shapes still
        waits for its backward pass. There is no second derivative.

        Args:
            enabled: False to drop the graphs.
        """
        if enabled and not torch.cuda.is_available():
            raise BackendError("graphed: it needs a CUDA device, got none; leave it out on a CPU")
        self._graphs = Graphs() if enabled else None
        return self

    def _layers(self) -> list[Layer]:
        # Used several times per call: a ModuleList's own iterator takes 3 µs, a thirtieth of a streamed step.
        return [*self._modules["layers"]._modules.values()]  # type: ignore[union-attr]

    def _run(
        self,
        x: Tensor,
        state: State | None,
        reset: Tensor | None,
        nudge: Sequence[Tensor | None] | None,
        need_trace: bool,
    ) -> tuple[Tensor, State, tuple[Trace, ...]]:
        layers = self._layers()
        nudges = [None] * len(layers) if nudge is None else nudge
        if self.bidirectional:
            resets = (None, None) if reset is None else (reset, reversed_reset(reset))

            def walk(index: int, x: Tensor, begin: LayerState | None) -> LayerResult:
                part = nudges[index]
                turned = part.flip(0) if part is not None and index % 2 else part
                result = layers[index](x, begin, reset=resets[index % 2], nudge=turned, need_trace=need_trace)
                return cast(LayerResult, result)

            return self._both_ways(x, state, Direction(walk, lambda part: part.flip(0), None))
        begin = [None] * len(layers) if state is None else state.layers()
        ends, traces = [], []
        for index, layer in enumerate(layers):
            walked = layer(x, begin[index], reset=reset, nudge=nudges[index], need_trace=need_trace)
            ends.append(walked.state)
            traces.append(walked.trace)
            x = self._dropped(walked.output, index)
        return x, State.of_layers(ends), tuple(traces)

    def _dropped(self, x: Tensor, level: int) -> Tensor:
        """Apply dropout to a level's output unless it is the last."""
        if self.dropout and level + 1 < self.num_layers:
            return nn.functional.dropout(x, self.dropout, self.training)
        return x

    def _both_ways(
        self, x: Tensor, state: State | None, way: Direction
    ) -> tuple[Tensor, State, tuple[Trace, ...]]:
        """Run level by level, both directions over the whole sequence."""
        begin = [None] * len(self.layers) if state is None else state.layers()
        ends, traces = [], []
        for level in range(self.num_layers):
            there, back = 2 * level, 2 * level + 1
            ahead = way.walk(there, x, begin[there])
            behind = way.walk(back, way.turned(x), begin[back])
            ends += [ahead.state, behind.state]
            traces += [ahead.trace, reversed_trace(behind.trace, way.lengths)]
            x = self._dropped(torch.cat([ahead.output, way.turned(behind.output)], dim=-1), level)
        return x, State.of_layers(ends), tuple(cast("list[Trace]", traces))

    def _forward_packed(self, packed: PackedSequence, state: StateLike, need_trace: bool) -> Any:
        self._check(packed.data.unsqueeze(1), None, None)
        sizes = packed.batch_sizes.tolist()
        begin = self._begin(state, sizes[0], unbatched=False)
        if begin is not None and packed.sorted_indices is not None:
            begin = begin.rows(packed.sorted_indices)
        if self.bidirectional:
            data, end, traces = self._packed_both_ways(packed, begin, need_trace)
        else:
            run = lambda x, begin: self._run(x, begin, None, None, need_trace)  # noqa: E731
            data, end, traces = self._stretches(packed.data, sizes, begin, run)
        if packed.unsorted_indices is not None:
            end = end.rows(packed.unsorted_indices)
        repacked = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        if not need_trace:
            return repacked, end
        unsorted = packed.unsorted_indices
        ordered = (
            trace if unsorted is None else Trace(*(part[:, unsorted] for part in trace)) for trace in traces
        )
        return repacked, end, tuple(ordered)

    def _packed_both_ways(
        self, packed: PackedSequence, begin: State | None, need_trace: bool
    ) -> tuple[Tensor, State, tuple[Trace, ...]]:
        layers, sizes = self._layers(), packed.batch_sizes.tolist()
        turned, lengths = reversal(packed.batch_sizes, packed.data.device)

        def walk(index: int, data: Tensor, begin: LayerState | None) -> LayerResult:
            def run(x: Tensor, state: State | None) -> tuple[Tensor, State, tuple[Trace, ...]]:
                walked = layers[index](x, None if state is None else state.layers()[0], need_trace=need_trace)
                return walked.output, State.of_layers([walked.state]), (walked.trace,)

            start = None if begin is None else State.of_layers([begin])
            output, end, traces = self._stretches(data, sizes, start, run)
            return LayerResult(output, end.layers()[0], traces[0])

        return self._both_ways(packed.data, begin, Direction(walk, lambda part: part[turned], lengths))

    def _stretches(
        self, data: Tensor, sizes: list[int], begin: State | None, run: Run
    ) -> tuple[Tensor, State, tuple[Trace, ...]]:
        """Run each span of steps that has the same rows; the state of a row that has ended is kept."""
        rows = sizes[0]
        outputs, done, traces = [], [], []
        position = step = 0
        while step < len(sizes):
            length = sum(size == sizes[step] for size in sizes)
            if sizes[step] < rows and begin is not None:
                done.append(begin.rows(slice(sizes[step], rows)))
                begin = begin.rows(slice(0, sizes[step]))
            rows = sizes[step]
            x = data[position : position + length * rows].view(length, rows, -1)
            output, begin, trace = run(x, begin)
            outputs.append(output.reshape(length * rows, -1))
            traces.append(trace)
            position, step = position + length * rows, step + length
        assert begin is not None
        traced = traces[0][0] is not None
        joined = join_traces(traces, sizes[0], None) if traced else traces[0]
        return torch.cat(outputs), join_rows([begin, *reversed(done)]), joined

    def _begin(self, state: StateLike, batch_size: int, unbatched: bool) -> State | None:
        """Return the initial state from any form that a caller may pass."""
        if state is None:
            return None
        layers = self._layers()
        if isinstance(state, State):
            if self.bidirectional:
                raise ShapeError(
                    "state: expected none, h_0 or (h_0, c_0), got a State: a bidirectional model reads whole "
                    "sequences and cannot be continued or streamed; use bidirectional=False for that"
                )
            self._check_kind(state, 1 if unbatched else 2)
            begin = state.batched() if unbatched else state
            widths = [memory.born.shape[1] for memory in begin.memory]
            bounded = [layer.initial_width for layer in layers]
            if len(widths) != len(bounded) or any(b and w != b for w, b in zip(widths, bounded, strict=True)):
                raise ShapeError(
                    f"state: expected a memory of {bounded} slots by layer, got {widths}; "
                    "pass the state this model returned"
                )
        else:
            begin = self._from_torch_state(state, batch_size, unbatched)
        shape = (len(self.layers), batch_size, self.hidden_size)
        has_cell = layers[0].has_cell_state
        if (begin.cell_state is not None) != has_cell:
            raise ShapeError(
                "state: expected "
                + ("(h_0, c_0) for an LSTM" if has_cell else "h_0 alone: this cell has no cell state")
            )
        for name, part in (("hidden", begin.hidden), ("cell_state", begin.cell_state)):
            if part is not None and tuple(part.shape) != shape:
                raise ShapeError(f"state.{name}: expected {shape}, got {_shape(part)}")
        if self.warns_of_empty_memory and not isinstance(state, State) and not torch.compiler.is_compiling():
            self.warns_of_empty_memory = False
            warnings.warn(
                f"{type(self).__name__} was given h_0 without a memory, and begins with an empty one; pass "
                "the state it returned, as a whole, to continue from it (said once)",
                EmptyMemoryWarning,
                stacklevel=5,  # past torch's __call__, at the line that called the model
            )
        return begin

    def _check_kind(self, state: State, dim: int) -> None:
        """Raise a `ShapeError` unless a state has the right structure and is batched as the input is."""
        parts = [state.hidden, state.hidden if state.cell_state is None else state.cell_state]
        layers = state.memory if isinstance(state.memory, tuple) else (None,)
        for memory in layers:
            parts += [*memory] if isinstance(memory, MemoryState) and len(memory) == 4 else [None]
        for part in parts:
            if not isinstance(part, Tensor):
                raise ShapeError(
                    "state: expected tensors, and a tuple with one MemoryState by layer, got "
                    f"{type(part).__name__} among them; pass the state this model returned"
                )
        for memory in layers:
            if memory.born.dim() != dim:
                raise ShapeError(
                    f"state.memory.born: expected {dim} dimensions, as the input is "
                    f"{'not ' if dim == 1 else ''}batched, got {memory.born.dim()}"
                )

    def _from_torch_state(self, state: Any, batch_size: int, unbatched: bool) -> State:
        """Convert h_0, or (h_0, c_0), as `torch.nn` takes them, to a state with an empty memory."""
        parts = (state, None) if isinstance(state, Tensor) else state
        if (
            not isinstance(parts, tuple | list)
            or len(parts) != 2
            or not isinstance(parts[0], Tensor)
            or not isinstance(parts[1], Tensor | None)
        ):
            of = (
                f" of {', '.join(type(p).__name__ for p in parts)}" if isinstance(parts, tuple | list) else ""
            )
            raise ShapeError(
                f"state: expected what this model returned, h_0 or (h_0, c_0), got {type(state).__name__}{of}"
            )
        hidden, cell_state = parts
        if unbatched:
            hidden = hidden.unsqueeze(1)
            cell_state = None if cell_state is None else cell_state.unsqueeze(1)
        memory = tuple(
            layer.initial_state(batch_size, hidden.dtype, hidden.device).memory for layer in self._layers()
        )
        return State(hidden, cell_state, memory)

    def _check(self, x: Tensor, reset: Tensor | None, nudge: Sequence[Tensor | None] | None) -> None:
        if x.shape[-1] != self.input_size:
            raise ShapeError(f"input: expected {self.input_size} features, got {x.shape[-1]}")
        if x.shape[0] == 0:
            raise ShapeError("input: expected at least one step, got a sequence of length 0")
        dtype = self._layers()[0].dtype
        if not x.is_floating_point():
            raise ShapeError(f"input: expected floating point, got {x.dtype}; one-hot or embed it first")
        if x.dtype != dtype and autocast_dtype(x.device.type) is None:
            raise ShapeError(f"input: expected {dtype} as the weights, got {x.dtype}")
        if reset is not None and (reset.dtype != torch.bool or reset.shape != x.shape[:2]):
            raise ShapeError(
                f"reset: expected bool (T, B) = {tuple(x.shape[:2])}, got {reset.dtype} {_shape(reset)}"
            )
        for name, part in (("reset", reset), *(("nudge", n) for n in nudge or ())):
            if part is not None and part.device != x.device:
                raise ShapeError(f"{name}: expected on {x.device} as the input, got {part.device}")
        shape = (*x.shape[:2], self.hidden_size)
        if nudge is not None and (
            len(nudge) != len(self.layers) or any(n is not None and n.shape != shape for n in nudge)
        ):
            raise ShapeError(f"nudge: expected {len(self.layers)} tensors {shape} or None")


def _check_sizes(layers: list[Layer], directions: int) -> None:
    if not layers or len(layers) % directions:
        expected = "at least one" if directions == 1 else "a forward and a backward one for each level"
        raise ConfigError(f"layers: expected {expected}, got {len(layers) or 'none'}")
    width = layers[0].hidden_size
    for index, layer in enumerate(layers):
        input_size = layers[0].input_size if index < directions else width * directions
        if layer.hidden_size != width or layer.input_size != input_size:
            raise ConfigError(
                f"layers: expected every layer to be {width} wide, got one that maps "
                f"{layer.input_size} to {layer.hidden_size}"
            )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
