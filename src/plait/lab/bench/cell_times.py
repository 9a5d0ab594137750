"""Times of the cells of `plait bench sizes`, in multiples of `torch.nn.LSTM` of the same size.

`python -m plait.lab.bench.cell_times` reads cells as lines of JSON and prints a line of JSON for each: one
process times all cells, one after another, because processes that time side by side slow each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from plait.lab.bench.cell import SweepCell
from plait.lab.bench.timing import take_turns
from plait.models import State

__all__ = ["time_cell"]

_TURNS = {"rounds": 5, "warm_up": 2, "turn_seconds": 0.005, "most_seconds": 0.4}


def time_cell(cell: SweepCell) -> dict[str, Any]:
    """Return the milliseconds of forward + backward of a cell, and of `torch.nn.LSTM` in turn with it.

    A cell that carries a state is timed from the state after one such sequence, detached. The ratio is the
    median of the ratios within the rounds.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    steps = {"layer": _training_step(cell, _module(cell)), "lstm": _training_step(cell, _lstm(cell))}
    times = take_turns(steps, torch.device(cell.device), **_TURNS)  # type: ignore[arg-type]
    return {
        "ms": times["layer"].median * 1e3,
        "spread ms": times["layer"].spread * 1e3,
        "lstm ms": times["lstm"].median * 1e3,
        "ratio": times["layer"].ratio_to(times["lstm"]),
    }


def _module(cell: SweepCell) -> nn.Module:
    return cell.module(cell.backend).to(cell.device, getattr(torch, cell.dtype))


def _lstm(cell: SweepCell) -> nn.Module:
    return nn.LSTM(cell.input_size, cell.hidden).to(cell.device, getattr(torch, cell.dtype))


def _training_step(cell: SweepCell, module: nn.Module) -> Callable[[], tuple[Tensor, ...]]:
    """Return a function that runs forward and backward to every weight."""
    generator = torch.Generator().manual_seed(cell.seed)
    dtype, is_lstm = getattr(torch, cell.dtype), type(module) is nn.LSTM
    x = torch.randn(cell.steps, cell.rows, cell.input_size, generator=generator).to(cell.device, dtype)
    arriving = torch.randn(cell.steps, cell.rows, cell.hidden, generator=generator).to(cell.device, dtype)
    options: dict[str, Tensor] = {}
    if cell.reset and not is_lstm:
        options["reset"] = (torch.rand(cell.steps, cell.rows, generator=generator) < 0.1).to(cell.device)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    state: Any = None
    if cell.carried and not is_lstm:
        with torch.no_grad():
            state = module(x, None, **options)[1]
        state = state.detach() if isinstance(state, State) else state

    def step() -> tuple[Tensor, ...]:
        output = module(x, state, **options)[0]
        return torch.autograd.grad(output, weights, arriving, materialize_grads=True)

    return step


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(time_cell(SweepCell(**json.loads(line)))) + "\n")
        sys.stdout.flush()
