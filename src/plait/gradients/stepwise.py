"""`torch.nn.RNN`, `LSTM` and `GRU` one step per call, with the same weights.

The fused layers hand out their output tensor only at the end, and the gradient of that tensor misses the
path from h_t to h_{t+1} inside the layer. Run one step at a time, a zero can be added to every h_t before
both its uses, and that zero's gradient is the total one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from plait.errors import ShapeError

__all__ = ["run_stepwise"]

# receives (layer name, steps, rows, width) and returns the zero tensor (steps, rows, width) to add
Tap = Callable[[str, int, int, int], Tensor]


def run_stepwise(module: nn.RNNBase, tap: Tap, input: Any, state: Any = None) -> tuple[Tensor, Any]:
    """What `module(input, state)` returns, with `tap`'s tensors added to every h_t.

    A bidirectional layer counts as two. Packed sequences are refused.
    """
    if not isinstance(input, Tensor):
        raise ShapeError(f"probe: expected a padded tensor, got {type(input).__name__}; unpack it first")
    unbatched = input.dim() == 2
    x = input.unsqueeze(1) if unbatched else input.transpose(0, 1) if module.batch_first else input
    hidden, cell = _begin(module, state, x, unbatched)
    directions = 2 if module.bidirectional else 1
    ends: list[tuple[Tensor, Tensor | None]] = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            begin = (hidden[place], None if cell is None else cell[place])
            outputs.append(_walk(module, tap, x, layer, direction, begin, ends))
        x = torch.cat(outputs, dim=-1)
        if module.dropout and layer + 1 < module.num_layers:
            x = nn.functional.dropout(x, module.dropout, module.training)
    return _pack(module, x, ends, unbatched)


def _walk(
    module: nn.RNNBase,
    tap: Tap,
    x: Tensor,
    layer: int,
    direction: int,
    begin: tuple[Tensor, Tensor | None],
    ends: list[tuple[Tensor, Tensor | None]],
) -> Tensor:
    """One layer in one direction; its output (T, B, width), and its last state appended to `ends`."""
    single, weights = _single(module, x.shape[-1], layer, direction)
    hidden, cell = begin
    steps, rows = x.shape[:2]
    order = range(steps - 1, -1, -1) if direction else range(steps)
    zeros = tap(f"layer {layer}" + (" backward" if direction else ""), steps, rows, hidden.shape[-1])
    outputs: list[Tensor] = [hidden] * steps
    for t in order:
        state = hidden.unsqueeze(0) if cell is None else (hidden.unsqueeze(0), cell.unsqueeze(0))
        _, after = functional_call(single, weights, (x[t : t + 1], state))
        last, carried = (after, None) if cell is None else after
        hidden = last.squeeze(0) + zeros[t]
        cell = None if carried is None else carried.squeeze(0)
        outputs[t] = hidden
    ends.append((hidden, cell))
    return torch.stack(outputs)


def _single(module: nn.RNNBase, width: int, layer: int, direction: int) -> tuple[nn.RNNBase, dict[str, Any]]:
    """A one-layer module of the same kind, and the weights of this layer under its names."""
    options: dict[str, Any] = {"bias": module.bias}
    if isinstance(module, nn.LSTM):
        options["proj_size"] = module.proj_size
    if isinstance(module, nn.RNN):
        options["nonlinearity"] = module.nonlinearity
    kind = next(base for base in (nn.LSTM, nn.GRU, nn.RNN) if isinstance(module, base))
    single = kind(width, module.hidden_size, device="meta", **options).train(module.training)
    suffix = f"_l{layer}" + ("_reverse" if direction else "")
    weights = {
        name: getattr(module, name.removesuffix("_l0") + suffix) for name, _ in single.named_parameters()
    }
    return single, weights


def _begin(module: nn.RNNBase, state: Any, x: Tensor, unbatched: bool) -> tuple[Tensor, Tensor | None]:
    """h_0 and c_0 as (layers · directions, B, width)."""
    places = module.num_layers * (2 if module.bidirectional else 1)
    width = getattr(module, "proj_size", 0) or module.hidden_size
    is_lstm = isinstance(module, nn.LSTM)
    if state is None:
        hidden = x.new_zeros(places, x.shape[1], width)
        return hidden, x.new_zeros(places, x.shape[1], module.hidden_size) if is_lstm else None
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
