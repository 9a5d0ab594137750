"""A model's passes as CUDA graphs, one pair for each kind of call, behind the model's own interface.

A short sequence keeps a GPU busy for a fraction of the time in which Python launches its kernels. A graph
launches all of them at once: one graph for the forward pass, one for the backward pass. Both work on buffers
of their own. Arguments are copied in and results copied out, so no result is overwritten by a later call;
activations stay in the graph, hence a second forward pass before the first one's backward pass runs eagerly.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from plait.errors import BackendError
from plait.models.layer import autocast_dtype
from plait.models.state import State
from plait.models.torch_tools import needs_reference
from plait.ops.scan.cuda_graph import end_failed_capture, uncollected
from plait.ops.slots import MemoryState
from plait.ops.state_check import remember

if TYPE_CHECKING:
    from plait.models.recurrent import Recurrent, StateLike

__all__ = ["Graphs"]

MOST = 8  # recordings kept for a model, each with its own activations
_KINDS_COUNTED = 256
_WARM_UP = 2  # eager passes on the capture's buffers: kernels are compiled, workspaces allocated


class Graphs:
    """The recordings of one model, by everything that a capture depends on.

    A kind of call is captured when it comes the second time: a shape that comes once is not worth a capture.
    A copy of the model, or a saved one, starts without recordings.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[Any, None] = OrderedDict()
        self._recordings: OrderedDict[Any, Recording] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Graphs, ()

    def call(
        self, model: Recurrent, x: Tensor, state: StateLike, reset: Tensor | None
    ) -> tuple[Tensor, State] | None:
        """Return the model's results by replaying a recording; None where the call has to run eagerly."""
        if torch.compiler.is_compiling() or needs_reference():
            return None
        if not _is_on_gpu(x):
            raise BackendError(
                f"graphed: expected an input on a CUDA device, got {x.device}; call model.graphed(False)"
            )
        if x.dim() != 3 or not x.numel() or torch.cuda.is_current_stream_capturing():
            return None
        begin = model.checked_state(state, x.shape[0 if model.batch_first else 1])
        inputs = [x, reset, *([] if begin is None else _tensors_of(begin))]
        weights = _weights_of(model)
        saves = torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (*inputs, *weights)
        )
        kind = (saves, *_kind_of(model, x), *map(_form_of, inputs), *map(_place_of, weights))
        recording = self._recordings.get(kind) or self._captured(kind, model, inputs, saves)
        if recording is None or recording.is_busy:
            return None
        self._recordings.move_to_end(kind)
        present = [tensor for tensor in inputs if tensor is not None]
        if saves:
            return recording.results(_Replay.apply(recording, len(present), *present, *weights))
        return recording.results(recording.forward(present))

    def _captured(
        self, kind: Any, model: Recurrent, inputs: Sequence[Tensor | None], saves: bool
    ) -> Recording | None:
        if kind not in self._seen:
            self._seen[kind] = None
            if len(self._seen) > _KINDS_COUNTED:
                self._seen.popitem(last=False)
            return None
        try:
            recording = Recording(model, inputs, saves)
        except RuntimeError as error:
            end_failed_capture()
            reason = str(error).splitlines()[0]
            raise BackendError(
                f"graphed: this call cannot be captured ({reason}); model.graphed(False) runs eagerly"
            ) from error
        self._recordings[kind] = recording
        if len(self._recordings) > MOST:
            self._recordings.popitem(last=False)
        return recording


class _Ticket:
    """The activations of one forward pass: `done` once its backward pass has run."""

    done = False


class Recording:
    """The graphs of one kind of call; `inputs` are x, reset and the state's tensors, None where absent."""

    def __init__(self, model: Recurrent, inputs: Sequence[Tensor | None], saves: bool) -> None:
        buffers = [None if t is None else _buffer(t, saves) for t in inputs]
        # Aliases of the weights: the weights' own autograd nodes belong to streams outside of the capture.
        aliases = {
            name: weight.detach().requires_grad_(saves and weight.requires_grad)
            for name, weight in model.named_parameters(prefix="model")
        }
        body = _Body(model)

        def run() -> list[Tensor]:
            x, reset, *parts = buffers
            begin = _state_of(parts, self._has_cell_state) if parts else None
            output, end = torch.func.functional_call(body, aliases, (x, begin, reset))
            return [output, *_tensors_of(end)]

        self._buffers = [buffer for buffer in buffers if buffer is not None]
        self._sources = [*self._buffers, *aliases.values()]
        # What `results` needs of the model: with a reference to it, graphs would wait for a collection, and
        # CUDA does not permit to destroy them while another graph is captured.
        self._has_cell_state = model._layers()[0].has_cell_state
        self._windows = [layer._window for layer in model._layers()]
        self._ticket: weakref.ref[_Ticket] | None = None
        self._warm_up(run, saves)
        self._forward, outputs = _capture(run)
        self._has_gradient = [tensor.requires_grad for tensor in outputs]
        self._gradients: list[Tensor | None] = []
        self._arriving = [torch.zeros_like(t) if t.requires_grad else None for t in outputs]
        self._is_zero = [True] * len(outputs)
        if saves:
            differentiate = partial(self._differentiated, outputs)
            self._backward, self._gradients = _capture(differentiate, self._forward.pool())
        self._outputs = [tensor.detach() for tensor in outputs]

    def _differentiated(self, outputs: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradient of every source, None where it has none."""
        wanted = [source for source in self._sources if source.requires_grad]
        roots = [tensor for tensor in outputs if tensor.requires_grad]
        arriving = [tensor for tensor in self._arriving if tensor is not None]
        # Retained, so that the capture does not use the activations' memory again: it may be replayed twice.
        gradients = iter(torch.autograd.grad(roots, wanted, arriving, retain_graph=True, allow_unused=True))
        return [next(gradients) if source.requires_grad else None for source in self._sources]

    def _warm_up(self, run: Callable[[], list[Tensor]], saves: bool) -> None:
        """Run eagerly on a stream of its own, without moving the random generators on."""
        with _aside(self._buffers[0].device):
            for _ in range(_WARM_UP):
                output = run()[0]
                if saves:
                    wanted = [source for source in self._sources if source.requires_grad]
                    torch.autograd.grad(output, wanted, torch.zeros_like(output), allow_unused=True)
                del output

    @property
    def is_busy(self) -> bool:
        """Return whether the activations still wait for their backward pass."""
        ticket = None if self._ticket is None else self._ticket()
        return ticket is not None and not ticket.done

    def new_ticket(self) -> _Ticket:
        """Return the ticket of the forward pass that has just run."""
        ticket = _Ticket()
        self._ticket = weakref.ref(ticket)
        return ticket

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Replay the forward pass, and return copies of the output and the state's tensors."""
        with torch.no_grad():
            torch._foreach_copy_(self._buffers, list(inputs))
            self._forward.replay()
            return _copies(self._outputs)

    def backward(self, ticket: _Ticket, arriving: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Replay the backward pass, and return copies of the gradients."""
        if self._ticket is None or self._ticket() is not ticket:
            raise BackendError(
                "graphed: this backward pass comes after another forward pass, which overwrote its "
                "activations; run it earlier, or call model.graphed(False)"
            )
        for index, (buffer, gradient) in enumerate(zip(self._arriving, arriving, strict=True)):
            if buffer is None:
                continue
            if gradient is not None:
                buffer.copy_(gradient)
            elif not self._is_zero[index]:
                buffer.zero_()
            self._is_zero[index] = gradient is None
        self._backward.replay()
        ticket.done = True
        fresh = iter(_copies([gradient for gradient in self._gradients if gradient is not None]))
        return [None if gradient is None else next(fresh) for gradient in self._gradients]

    def non_differentiable(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Return those of the results that have no gradient."""
        return [x for x, has in zip(results, self._has_gradient, strict=True) if not has]

    def results(self, tensors: Sequence[Tensor]) -> tuple[Tensor, State]:
        """Return output and state, whose memories are valid by construction."""
        output, *parts = tensors
        state = _state_of(parts, self._has_cell_state)
        for memory, window in zip(state.memory, self._windows, strict=True):
            remember(memory, window)
        return output, state


class _Replay(torch.autograd.Function):
    """A recording as a function of its inputs and the model's weights."""

    @staticmethod
    def forward(ctx: Any, recording: Recording, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        results = recording.forward(tensors[:count])
        ctx.recording, ctx.ticket = recording, recording.new_ticket()
        ctx.save_for_backward(*tensors[count:])  # autograd checks that no weight was changed since
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*recording.non_differentiable(results))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018 - raises if a weight was changed in place
        return (None, None, *ctx.recording.backward(ctx.ticket, arriving))


class _Body(nn.Module):
    """A model's `forward` without the hooks of the model itself, which run around every replay."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, state: State | None, reset: Tensor | None) -> Any:
        graphs, self.model._graphs = self.model._graphs, None
        try:
            return self.model.forward(x, state, reset=reset)
        finally:
            self.model._graphs = graphs


def _capture(function: Callable[[], Any], pool: Any = None) -> tuple[Any, Any]:
    """Return a graph of what `function` launches, and its results, which have no values before a replay."""
    graph = torch.cuda.CUDAGraph()
    with uncollected(), torch.cuda.graph(graph, pool=pool):
        results = function()
    return graph, results


@contextlib.contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Run on a stream of its own, and leave the random generators as they were."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.random.fork_rng(devices=[device.index]), torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


def _is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _stream_of(x: Tensor) -> Any:
    return torch._C._cuda_getCurrentRawStream(x.device.index)


def _kind_of(model: Recurrent, x: Tensor) -> tuple[Any, ...]:
    """Return what a capture depends on besides the tensors."""
    return (
        x.device,
        _stream_of(x),
        torch.is_inference_mode_enabled(),
        autocast_dtype("cuda"),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        model.training,
        *[layer.training for layer in model._layers()],
    )


def _weights_of(module: nn.Module) -> list[nn.Parameter]:
    """Return `list(module.parameters())`, which takes torch a tenth of a replayed call."""
    weights: dict[int, nn.Parameter] = {}

    def collect(module: nn.Module) -> None:
        weights.update((id(p), p) for p in module._parameters.values() if p is not None)
        for child in module._modules.values():
            if child is not None:
                collect(child)

    collect(module)
    return [*weights.values()]


def _form_of(tensor: Tensor | None) -> tuple[Any, ...] | None:
    return None if tensor is None else (tensor.shape, tensor.dtype, tensor.requires_grad)


def _place_of(weight: Tensor) -> tuple[Any, ...]:
    return weight.data_ptr(), weight.dtype, weight.requires_grad


def _buffer(tensor: Tensor, saves: bool) -> Tensor:
    copied = tensor.detach().clone(memory_format=torch.contiguous_format)
    return copied.requires_grad_(saves and tensor.requires_grad)


def _copies(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    fresh = [torch.empty_like(tensor) for tensor in tensors]
    if fresh:
        torch._foreach_copy_(fresh, list(tensors))
    return tuple(fresh)


def _tensors_of(state: State) -> list[Tensor]:
    """Return hidden, the cell state if there is one, and the four tensors of every memory."""
    return [
        state.hidden,
        *([] if state.cell_state is None else [state.cell_state]),
        *(tensor for memory in state.memory for tensor in memory),
    ]


def _state_of(tensors: Sequence[Any], has_cell_state: bool) -> State:
    """Return the state, the inverse of `_tensors_of`."""
    hidden, *rest = tensors
    cell_state = rest.pop(0) if has_cell_state else None
    return State(hidden, cell_state, tuple(MemoryState(*rest[at : at + 4]) for at in range(0, len(rest), 4)))
