"""`torch.nn.RNN`, `LSTM` and `GRU` at full speed, with the total gradient of every h_t.

The fused layers return their output tensor only at the end, and the gradient of that tensor misses the
path from h_t to h_{t+1} inside the layer. That path leads through the gates of step t + 1, W x_{t+1} + R h_t.
A second input u = 0 that enters through R, as h_t does, has exactly the missing gradient:

    dL/dh_t = ∂L/∂(output_t) + ∂L/∂u_{t+1}                                             (RNN, LSTM)

so the layer runs with [x, u] in place of x and [W, R] in place of W. A GRU's candidate takes R h through
its reset gate r, and z h_t bypasses all gates: there u enters the first two gates, v the candidate's sum, and

    dL/dh_t = ∂L/∂(output_t) + ∂L/∂u_{t+1} + R_nᵀ(r ∂L/∂v)_{t+1} + z_{t+1} dL/dh_{t+1}     (GRU)

An LSTM's cell state is held fixed, as h_t does not enter it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from plait.gradients.tapped import BACKWARD

__all__ = ["TappedRun", "map_padded", "run_tapped"]

# callback for one direction of one layer: its name and its tapped run
Tap = Callable[[str, "TappedRun"], None]


@dataclass
class TappedRun:
    """Tapped run of one direction of one layer, time first.

    `output` (T, B, width) is the layer's output plus the zeros `on_output`; `extra_input` are the zeros
    concatenated to its input. `end` (B, width) is the last state plus the zeros `on_end`, without those of
    the output: handed to the next call, it keeps recurrence apart from reads of the output. `total` turns the
    gradients of all three into dL/dh_t.
    """

    output: Tensor
    on_output: Tensor
    extra_input: Tensor
    end: Tensor
    on_end: Tensor
    total: Callable[[Tensor | None, Tensor | None, Tensor | None], Tensor]


def run_tapped(module: nn.RNNBase, tap: Tap, input: Any, state: Any = None) -> tuple[Any, Any]:
    """Run `module(input, state)`, call `tap` for every layer, and return what the module returns.

    A bidirectional layer counts as two. A packed sequence is run packed, its rows as they are sorted in it.
    """
    if isinstance(input, PackedSequence):
        return _run_packed(module, tap, input, state)
    unbatched = input.dim() == 2
    x = input.unsqueeze(1) if unbatched else input.transpose(0, 1) if module.batch_first else input
    x, ends = _layers(module, tap, x, _begin(module, state, x, unbatched))
    return _pack(module, x, ends, unbatched)


def map_padded(packed: PackedSequence, function: Callable[[Tensor], Tensor]) -> PackedSequence:
    """Return a packed sequence of the same rows from a function of the padded one, (T, B, ·) as sorted."""
    padded, lengths = _padded(packed)
    data = pack_padded_sequence(function(padded), lengths).data
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _padded(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """Return (T, B, ·) with the longest row first, and the lengths."""
    padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
    return padded, lengths


def _run_packed(
    module: nn.RNNBase, tap: Tap, input: PackedSequence, state: Any
) -> tuple[PackedSequence, Any]:
    order, back = input.sorted_indices, input.unsorted_indices
    x, lengths = _padded(input)
    if state is not None and order is not None:
        state = tuple(s[:, order] for s in state) if isinstance(state, tuple) else state[:, order]
    x, ends = _layers(module, tap, x, _begin(module, state, x, False), lengths)
    output = map_padded(input, lambda _: x)
    _, after = _pack(module, x, ends, False)
    if back is not None:
        after = tuple(s[:, back] for s in after) if isinstance(after, tuple) else after[:, back]
    return output, after


def _layers(
    module: nn.RNNBase,
    tap: Tap,
    x: Tensor,
    begin: tuple[Tensor, Tensor | None],
    lengths: Tensor | None = None,
) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
    """Return the output of all layers, time first, and the last states by layer and direction."""
    hidden, cell = begin
    ends: list[tuple[Tensor, Tensor | None]] = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(2 if module.bidirectional else 1):
            index = layer * (2 if module.bidirectional else 1) + direction
            first = (hidden[index], None if cell is None else cell[index])
            run, end = _run(module, x, layer, direction, first, lengths)
            tap(f"layer {layer}" + (BACKWARD if direction else ""), run)
            ends.append(end)
            outputs.append(run.output)
        x = torch.cat(outputs, dim=-1)
        if module.dropout and layer + 1 < module.num_layers:
            x = nn.functional.dropout(x, module.dropout, module.training)
    return x, ends


def _run(
    module: nn.RNNBase,
    x: Tensor,
    layer: int,
    direction: int,
    begin: tuple[Tensor, Tensor | None],
    lengths: Tensor | None,
) -> tuple[TappedRun, tuple[Tensor, Tensor | None]]:
    suffix = f"_l{layer}" + ("_reverse" if direction else "")
    weights = {key: getattr(module, key + suffix) for key in _keys(module)}
    hidden, cell = begin
    wider = _wider(weights["weight_hh"].detach(), isinstance(module, nn.GRU))
    zeros = torch.zeros(*x.shape[:2], wider.shape[1], dtype=x.dtype, device=x.device, requires_grad=True)
    both = torch.cat([x, zeros], dim=-1)
    parameters = {f"{key}_l0": value for key, value in weights.items()}
    parameters["weight_ih_l0"] = torch.cat([weights["weight_ih"], wider], dim=1)
    first = hidden.unsqueeze(0) if cell is None else (hidden.unsqueeze(0), cell.unsqueeze(0))
    single = _single(module, both.shape[-1])
    walk = _Walk(bool(direction), x.shape[0], lengths)
    entering = walk.along(both)
    if lengths is not None:
        out, after = functional_call(single, parameters, (pack_padded_sequence(entering, lengths), first))
        out, _ = pad_packed_sequence(out)
    else:
        out, after = functional_call(single, parameters, (entering, first))
    out = walk.along(out)
    on_output = torch.zeros_like(out, requires_grad=True)
    nudged = out + on_output
    on_end = torch.zeros_like(out[0], requires_grad=True)

    def total(output: Tensor | None, extra: Tensor | None, ending: Tensor | None = None) -> Tensor:
        direct = torch.zeros_like(out) if output is None else output
        if ending is not None:
            direct = direct.clone()
            direct[walk.last] += ending
        if extra is None:
            return direct
        direct, extra = walk.along(direct), walk.along(extra)
        if isinstance(module, nn.GRU):
            before = torch.cat([hidden.unsqueeze(0), walk.along(out)[:-1]]).detach()
            gradient = _through_gates(direct, extra, _gates(weights, walk.along(x), before), weights)
        else:
            gradient = direct.clone()
            gradient[:-1] += extra[1:]
        return walk.along(gradient)

    run = TappedRun(nudged, on_output, zeros, out[walk.last] + on_end, on_end, total)
    return run, (nudged[walk.last], None if cell is None else after[1].squeeze(0))


class _Walk:
    """Order in which a direction runs through the steps of each row, which may end before the others.

    `last` selects each row's last step in that order from a tensor (T, B, …).
    """

    def __init__(self, is_backward: bool, steps: int, lengths: Tensor | None) -> None:
        self._is_backward, self._steps = is_backward, steps
        self._lengths = lengths
        self.last: Any = 0 if is_backward else -1
        if lengths is not None and not is_backward:
            self.last = (lengths - 1, torch.arange(len(lengths)))

    def along(self, states: Tensor) -> Tensor:
        """Return (T, B, …) in the order of the run, which undoes itself; steps after a row's end stay."""
        if not self._is_backward:
            return states
        if self._lengths is None:
            return states.flip(0)
        step = torch.arange(self._steps).unsqueeze(1)
        order = torch.where(step < self._lengths, self._lengths - 1 - step, step).to(states.device)
        return states.gather(0, order.unsqueeze(-1).expand_as(states))


def _wider(recurrent: Tensor, is_gru: bool) -> Tensor:
    """Return the columns by which the extra zeros enter the gates."""
    if not is_gru:
        return recurrent
    size = recurrent.shape[1]
    first = recurrent.clone()
    first[2 * size :] = 0
    candidate = torch.zeros_like(recurrent)
    candidate[2 * size :] = torch.eye(size, dtype=recurrent.dtype, device=recurrent.device)
    return torch.cat([first, candidate], dim=1)


def _gates(weights: dict[str, Tensor], x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Return a GRU's reset and update gates at every step, from the states before it."""
    size = before.shape[-1]
    rows = slice(0, 2 * size)
    summed = x @ weights["weight_ih"][rows].t() + before @ weights["weight_hh"][rows].t()
    if "bias_ih" in weights:
        summed = summed + weights["bias_ih"][rows] + weights["bias_hh"][rows]
    reset, update = torch.sigmoid(summed).detach().split(size, dim=-1)
    return reset, update


def _through_gates(
    direct: Tensor, extra: Tensor, gates: tuple[Tensor, Tensor], weights: dict[str, Tensor]
) -> Tensor:
    size = direct.shape[-1]
    reset, update = gates
    arriving = direct.clone()
    candidate = (reset * extra[..., size:])[1:] @ weights["weight_hh"][2 * size :].detach()
    arriving[:-1] += extra[1:, :, :size] + candidate
    for t in range(len(arriving) - 2, -1, -1):
        arriving[t].addcmul_(update[t + 1], arriving[t + 1])
    return arriving


def _keys(module: nn.RNNBase) -> list[str]:
    keys = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if module.bias else [])]
    return [*keys, "weight_hr"] if getattr(module, "proj_size", 0) else keys


def _single(module: nn.RNNBase, size: int) -> nn.RNNBase:
    """Return a one-layer module of the same class, on the meta device: its weights are passed in."""
    options: dict[str, Any] = {"bias": module.bias}
    if isinstance(module, nn.LSTM):
        options["proj_size"] = module.proj_size
    if isinstance(module, nn.RNN):
        options["nonlinearity"] = module.nonlinearity
    kind = next(base for base in (nn.LSTM, nn.GRU, nn.RNN) if isinstance(module, base))
    return kind(size, module.hidden_size, device="meta", **options).train(module.training)


def _begin(module: nn.RNNBase, state: Any, x: Tensor, unbatched: bool) -> tuple[Tensor, Tensor | None]:
    """Return h_0 and c_0 as (layers · directions, B, width)."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    width = getattr(module, "proj_size", 0) or module.hidden_size
    is_lstm = isinstance(module, nn.LSTM)
    if state is None:
        hidden = x.new_zeros(count, x.shape[1], width)
        return hidden, x.new_zeros(count, x.shape[1], module.hidden_size) if is_lstm else None
    hidden, cell = state if is_lstm else (state, None)
    if unbatched:
        hidden, cell = hidden.unsqueeze(1), None if cell is None else cell.unsqueeze(1)
    return hidden, cell


def _pack(
    module: nn.RNNBase, x: Tensor, ends: list[tuple[Tensor, Tensor | None]], unbatched: bool
) -> tuple[Tensor, Any]:
    hidden = torch.stack([end for end, _ in ends])
    cells = [cell for _, cell in ends if cell is not None]
    cell = torch.stack(cells) if cells else None
    if unbatched:
        x, hidden = x.squeeze(1), hidden.squeeze(1)
        cell = None if cell is None else cell.squeeze(1)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, hidden if cell is None else (hidden, cell)
