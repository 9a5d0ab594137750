"""A recurrent layer that attends over its own past: a cell times a memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from plait.cells import Cell, ElmanCell, GRUCell, LSTMCell
from plait.errors import LARGEST_NUMBER, BackendError, ConfigError, check_choice, check_float32, check_int
from plait.estimates import check_slots
from plait.memory import FullMemory, Memory, NoMemory, RelevancyMemory, UniformMemory, WindowMemory
from plait.models.layer import Layer, autocast_dtype, cast_state, gumbel_noise
from plait.models.scorer import AdditiveScorer
from plait.models.torch_tools import needs_reference
from plait.ops.attention import Read, accumulation_dtype, scores
from plait.ops.attentive_scan import attentive_scan
from plait.ops.attentive_scan.cpu_step import step
from plait.ops.full_scan import full_scan
from plait.ops.incoming_gradient import IncomingGradient
from plait.ops.native import NATIVE, native_scan
from plait.ops.plain_scan import plain_scan
from plait.ops.scan import BACKENDS, FullScan, PlainScan, PlainWeights, Scan, ScanWeights
from plait.ops.scan.contract import Projection
from plait.ops.scan.usage import with_usage
from plait.ops.slots import MemoryState, rated
from plait.ops.state_check import remember
from plait.ops.walk import LayerResult, LayerState, walk

__all__ = ["Mix", "SelfAttentive"]

# combines h_t and the context c_t to s_t: a factor γ for γ(h + c), or any function of the two
Mix = float | Callable[[Tensor, Tensor], Tensor]
_SCANNED: dict[type[Cell], str] = {ElmanCell: "elman", LSTMCell: "lstm", GRUCell: "gru"}


class SelfAttentive(Layer):
    """A recurrent layer that attends over its own past states.

    The cell computes h_t, the memory is read for a context c_t, and s_t = mix · (h_t + c_t) takes the place
    of h_t as the cell's recurrent input. The attention's query at step t is s_{t−1}; h_t itself can be read
    at once. Without a memory s_t = h_t for any `mix`. Input and output are (T, B, feature); use
    `plait.Recurrent` to stack layers behind the interface of `torch.nn.LSTM`.

    Args:
        cell: one step of recurrence.
        memory: the policy by which past states can be read; none by default.
        mix: γ, or a function of (h_t, c_t).
        scorer: energies from a query (B, H) and slots (B, κ, H); additive by default.
        truncate: cut the recurrent gradient every `truncate` steps; attention carries it further back.
        backend: "auto", or the name of a backend, which never falls back to another.

    >>> layer = SelfAttentive(ElmanCell(3, 8), RelevancyMemory(window=4, capacity=2))
    >>> layer(torch.randn(7, 2, 3)).output.shape
    torch.Size([7, 2, 8])
    """

    def __init__(
        self,
        cell: Cell,
        memory: Memory | None = None,
        mix: Mix = 0.5,
        *,
        scorer: nn.Module | None = None,
        truncate: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if truncate is not None:
            check_int(1, truncate=truncate)
        if not callable(mix):
            check_float32(-LARGEST_NUMBER, mix=mix)
        self.cell = cell
        self.memory = NoMemory() if memory is None else memory
        if sinks := getattr(self.memory, "sinks", 0):
            raise ConfigError(f"sinks: expected 0 in a recurrent layer, got {sinks}; use plait.Transformer")
        self.mix = mix
        self.truncate = truncate
        self.backend = check_choice(backend, BACKENDS, "backend")
        self.scorer: nn.Module | None = None
        self.input_size, self.hidden_size = cell.input_size, cell.hidden_size
        self.has_cell_state, self.initial_width = cell.has_cell_state, self.memory.initial_width
        self.has_memory = not isinstance(self.memory, NoMemory)
        if self.has_memory:
            weight = cell.weight_ih
            check_slots(1, self.initial_width, self.hidden_size, weight.device)
            learns = self.memory.learns
            self.scorer = scorer or AdditiveScorer(cell.hidden_size, weight.device, weight.dtype, learns)
            if learns and getattr(self.scorer, "worth", None) is None:
                raise ConfigError(
                    f"scorer: expected a parameter `worth` (H,) for a memory that learns what to keep, got "
                    f"{type(self.scorer).__name__} without; use AdditiveScorer(hidden_size, learned=True)"
                )

    @property
    def dtype(self) -> torch.dtype:
        # on every call: the base class's search for the first parameter would take 8 µs
        return self.cell.weight_ih.dtype

    def initial_state(
        self, batch_size: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> LayerState:
        """Return s_0 = 0, cell state 0 and an empty memory."""
        dtype, device = dtype or self.cell.weight_ih.dtype, device or self.cell.weight_ih.device
        zeros = torch.zeros(batch_size, self.cell.hidden_size, dtype=dtype, device=device)
        return LayerState(
            zeros,
            torch.zeros_like(zeros) if self.cell.has_cell_state else None,
            self.memory.init(batch_size, self.cell.hidden_size, dtype, device),
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
        """Walk through `x` (T, B, input_size); see `plait.ops.walk.walk` for `reset` and `nudge`."""
        dtype = autocast_dtype(x.device.type)
        if dtype is None:
            return self._walk(x, state, reset, nudge, need_trace)
        # Under autocast the whole layer computes in the lower type, as torch.nn.LSTM does; scores and
        # credit stay in float32. Casting once here keeps every backend's arithmetic the same. The
        # originals of a parametrization keep their type: the cell casts the computed weight.
        with torch.autocast(x.device.type, enabled=False):
            lower = {
                name: value.to(dtype) if value.is_floating_point() else value
                for name, value in self.named_parameters()
                if "parametrizations." not in name
            }
            arguments = (x.to(dtype), state, reset, nudge, need_trace)
            run = _Walker(self)
            return cast(
                LayerResult,
                torch.func.functional_call(run, {f"layer.{k}": v for k, v in lower.items()}, arguments),
            )

    def _walk(
        self,
        x: Tensor,
        state: LayerState | None,
        reset: Tensor | None,
        nudge: Tensor | None,
        need_trace: bool,
    ) -> LayerResult:
        if state is None and x.is_cpu and not torch.compiler.is_compiling():
            check_slots(x.shape[1], self.initial_width, self.hidden_size, x.device)
        window = self._window
        noise = self._noise(x)
        if len(x) == 1 and nudge is None and not need_trace and not torch.compiler.is_compiling():
            stepped = self._stepped(x, state or self._beginning(x), reset, noise)
            if stepped is not None:
                return stepped
        state = None if state is None else cast_state(state, x.dtype)
        result = self._dispatched(x, state, reset, nudge, need_trace, noise)
        remember(result.state.memory, window)
        return result

    def _beginning(self, x: Tensor) -> LayerState:
        """Return the state before the first step of `x`, marked as checked."""
        state = self.initial_state(x.shape[1], x.dtype, x.device)
        remember(state.memory, self._window)
        return state

    def _stepped(
        self, x: Tensor, state: LayerState, reset: Tensor | None, noise: Tensor | None
    ) -> LayerResult | None:
        """Run one step by a single call into C++; None if C++ cannot run this step."""
        scan = self._scan()
        if not isinstance(scan, Scan):
            return None
        projection = self.cell.weight_ih, self.cell.bias
        return step(x, projection, self._scan_weights(), state, scan, reset, noise, self.backend)

    def _dispatched(
        self,
        x: Tensor,
        state: LayerState | None,
        reset: Tensor | None,
        nudge: Tensor | None,
        need_trace: bool,
        noise: Tensor | None,
    ) -> LayerResult:
        """Run torch's own layer, a fused scan, or the loop over steps; a scan checks its state itself."""
        scan, backend = self._scan(), self.backend
        if backend == "auto" and needs_reference():
            backend = "reference"
        if isinstance(scan, Scan):  # it can start without a state
            cell, options = self.cell, (reset, nudge, need_trace, backend, noise)
            limits = _number(self.memory.grad_limit, x), _number(self.memory.usage_weight or None, x)
            projection = Projection(x, cell.weight_ih, cell.bias)
            return attentive_scan(projection, self._scan_weights(), state, scan, *options, *limits)
        state = state or self._beginning(x)
        if self._is_native() and reset is None and nudge is None and not need_trace and x.shape[1] > 0:
            self.check_state(state, x.shape[1])
            return self._native(x, state)
        projected = self.cell.project(x)
        if isinstance(scan, PlainScan):
            plain = PlainWeights(self.cell.recurrent, *self._biases())
            return plain_scan(projected, plain, state, scan, reset, nudge, need_trace, backend)
        if isinstance(scan, FullScan):
            return full_scan(projected, self._scan_weights(), state, scan, reset, nudge, need_trace, backend)
        if self.backend not in ("auto", "reference"):
            raise BackendError(
                f"backend {self.backend!r} has no scan for {type(self.cell).__name__} × "
                f"{type(self.memory).__name__}; use backend='auto'"
            )
        self.check_state(state, x.shape[1])
        write: Callable[..., MemoryState] = self.memory.write
        needed = self.memory.usage_weight or self.memory.grad_limit is not None
        incoming = IncomingGradient(_number(self.memory.grad_limit, x)) if needed else None
        if self.memory.learns:
            worth = cast(Tensor, cast(AdditiveScorer, self.scorer).worth)
            state = state._replace(memory=rated(state.memory, worth))
            write = lambda h, memory, noise=0.0: self.memory.write(h, memory, scores(h, worth) + noise)  # type: ignore[call-arg]  # noqa: E731
        return walk(
            projected,
            state,
            step=self.cell.stepper(),
            write=write,
            read=partial(self._read, incoming),
            mix=self._mixed,
            reset=reset,
            nudge=nudge,
            noise=noise,
            incoming=incoming,
            truncate=self.truncate,
            need_trace=need_trace,
        )

    def _noise(self, x: Tensor) -> Tensor | None:
        """Return the Gumbel noise (T, B) on the scores by which states are kept, None if it is off.

        It is drawn outside of the scan: every backend, a resumed run and a recorded graph see the same.
        """
        noise = self.memory.exploration
        if not noise or not self.training:
            return None
        return gumbel_noise(noise, x.shape[:2], x)

    def _read(
        self, incoming: IncomingGradient | None, query: Tensor, memory: MemoryState
    ) -> tuple[Read | None, MemoryState]:
        scorer = cast(AdditiveScorer, self.scorer)
        if not self.memory.usage_weight or incoming is None:
            return self.memory.read(query, memory, scorer)
        worth, window, use = cast(Tensor, scorer.worth), cast(int, self._window), self.memory.usage_weight

        def energies(state: Tensor, slots: Tensor) -> Tensor:
            return with_usage(scorer(state, slots), memory, worth, window, use, incoming)

        return self.memory.read(query, memory, energies)

    @property
    def _window(self) -> int | None:
        return self.memory.window if isinstance(self.memory, WindowMemory) else None

    def _is_native(self) -> bool:
        """Return whether torch's own fused layer can run this call.

        It can for plain recurrence outside of `torch.compile`, which does not support those layers and uses
        the plain scan instead.
        """
        return (
            isinstance(self.memory, NoMemory)
            and not torch.compiler.is_compiling()
            and not needs_reference()
            and self.backend == "auto"
            and self.truncate is None
            and (_kind(self.cell), self._nonlinearity()) in NATIVE
        )

    @property
    def walks_in_python(self) -> bool:
        """Return whether this layer runs step by step in Python, because there is no fused scan for it."""
        return not self._is_native() and (self.backend == "reference" or self._scan() is None)

    def _native(self, x: Tensor, state: LayerState) -> LayerResult:
        cell = self.cell
        candidate_bias = cell.candidate_bias if isinstance(cell, GRUCell) else None
        output, hidden, cell_state = native_scan(
            x,
            state.hidden,
            state.cell_state,
            (cell.weight_ih, cell.recurrent, cell.bias, candidate_bias),
            cast(str, _kind(cell)),
            self._nonlinearity(),
            # cuDNN saves tensors for its backward pass in training mode only; there is no dropout in here
            self.training or torch.is_grad_enabled(),
        )
        memory = state.memory._replace(age=state.memory.age + len(x))
        return LayerResult(output, LayerState(hidden, cell_state, memory), None)

    def _nonlinearity(self) -> str:
        """Return φ of an Elman cell, or of the candidate of a GRU."""
        cell = self.cell
        return "tanh" if isinstance(cell, LSTMCell) else getattr(cell, "nonlinearity", "tanh")

    def _mixed(self, h: Tensor, context: Tensor) -> Tensor:
        return self.mix(h, context) if callable(self.mix) else self.mix * (h + context)

    def _scan(self) -> Scan | FullScan | PlainScan | None:
        """Return the fused scan of this cell and memory, None if there is none."""
        kind, memory, nonlinearity = _kind(self.cell), self.memory, self._nonlinearity()
        if kind is None or self.truncate is not None:
            return None
        if type(memory) is NoMemory:
            return PlainScan(kind, nonlinearity)
        if (
            type(memory) not in (WindowMemory, RelevancyMemory, UniformMemory, FullMemory)
            or not isinstance(self.scorer, AdditiveScorer)
            or callable(self.mix)
            or (kind != "elman" and nonlinearity != "tanh")
        ):
            return None
        if not isinstance(memory, WindowMemory):
            return FullScan(kind, float(self.mix), nonlinearity)
        every = memory.every if isinstance(memory, UniformMemory) else None
        capacity = memory.initial_width - memory.window
        scan_of = Scan if torch.compiler.is_compiling() else _scan_of
        return scan_of(kind, memory.window, capacity, every, float(self.mix), nonlinearity)

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Return a GRU candidate's recurrent bias and modrelu's.

        The cell's type is checked first: a failed attribute lookup on a module takes longer than a scan's
        step.
        """
        cell = self.cell
        candidate = cell.candidate_bias if isinstance(cell, GRUCell) else None
        return candidate, cell.modrelu_bias if isinstance(cell, GRUCell | ElmanCell) else None

    def _scan_weights(self) -> ScanWeights:
        scorer = cast(AdditiveScorer, self.scorer)
        energies = scorer.query, scorer.key, scorer.energy
        return ScanWeights(self.cell.recurrent, *energies, *self._biases(), scorer.worth)

    def extra_repr(self) -> str:
        return f"memory={self.memory}, mix={self.mix}, backend={self.backend!r}"


def _number(value: float | None, x: Tensor) -> Tensor | None:
    """Return `value` as a tensor filled on the device without synchronising; CUDA graphs can record it.

    On a GPU it is cached per stream; a graph has its own tensor, which lives as long as the graph.
    """
    if value is None:
        return None
    dtype = accumulation_dtype(x.dtype)
    is_plain = x.is_cuda and type(x) is Tensor and not torch.compiler.is_compiling() and not needs_reference()
    if is_plain and not torch.is_inference_mode_enabled() and not torch.cuda.is_current_stream_capturing():
        return _kept_number(value, dtype, x.device, torch._C._cuda_getCurrentRawStream(x.device.index))
    return torch.full((), value, dtype=dtype, device=x.device)


@lru_cache(maxsize=64)
def _kept_number(value: float, dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


_scan_of = lru_cache(Scan)  # otherwise it would be constructed on every call


def _kind(cell: Cell) -> str | None:
    """Return the scans' name for a cell, by its class before parametrizations replaced it."""
    return _SCANNED.get(type_before_parametrizations(cell))


class _Walker(nn.Module):
    """A module that gives `functional_call` a forward without another autocast check."""

    def __init__(self, layer: SelfAttentive) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *arguments: object) -> LayerResult:
        return self.layer._walk(*arguments)  # type: ignore[arg-type]
