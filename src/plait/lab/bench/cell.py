"""One cell of `plait bench sizes`: a layer's first call in a fresh process, compared with its definition.

`python -m plait.lab.bench.cell JSON` runs a cell and prints its record as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from plait.models import MODELS, State
from plait.ops.parity import TOLERANCE
from plait.ops.scan import record_backends

__all__ = ["BOUNDED", "SweepCell", "run_cell"]

BOUNDED = ("relrnn", "rellstm", "relgru", "unirnn", "unilstm")
# Number of rows that are compared. Rows are independent, and only the outputs of these rows are
# differentiated, so that the gradients of the weights can be compared too.
_COMPARED_ROWS = 5
_COMPARED_STEPS = {torch.float32: 24, torch.bfloat16: 4}
# factor on the tolerance of a walk: rounding accumulates over the steps
_OF_A_WALK = {torch.float32: 5.0, torch.bfloat16: 1.0}


@dataclass(frozen=True)
class SweepCell:
    """A layer, its sizes and its options.

    `window`, `capacity`, `relevance`, `grad_limit` and `nonlinearity` are ignored by models without them.
    """

    model: str
    hidden: int
    steps: int
    rows: int
    input_size: int = 10
    window: int = 10
    capacity: int = 10
    relevance: str = "earned"
    grad_limit: float | None = None
    nonlinearity: str = "tanh"
    carried: bool = False
    reset: bool = False
    dtype: str = "float32"
    backend: str = "auto"
    device: str = "cuda"
    seed: int = 0

    @property
    def title(self) -> str:
        """Description of the cell in one line.

        >>> SweepCell("rellstm", 96, 333, 37).title
        'rellstm 10→96 w10+10 earned T333 B37 float32'
        """
        parts = [f"{self.model} {self.input_size}→{self.hidden}"]
        parts += [f"w{self.window}+{self.capacity}"] if self.model in BOUNDED else []
        parts += [self.relevance] if self.model.startswith("rel") else []
        parts += [self.nonlinearity] if self.nonlinearity != "tanh" else []
        parts += [f"limit {self.grad_limit:g}"] if self.grad_limit is not None else []
        parts += [f"T{self.steps} B{self.rows} {self.dtype}"]
        parts += [name for name in ("carried", "reset") if getattr(self, name)]
        return " ".join(parts)

    @property
    def has_kink(self) -> bool:
        """True if the nonlinearity has a kink, where rounding alone can change a gradient by any amount."""
        return self.nonlinearity == "relu" or self.model in ("goru", "orthrnn")

    def module(self, backend: str) -> nn.Module:
        """Build the layer on the CPU in float32; its weights depend on the seed, not on the backend."""
        options: dict[str, Any] = {"backend": backend}
        if self.model in BOUNDED:
            options |= {"window": self.window, "capacity": self.capacity}
        if self.model.startswith("rel"):
            options |= {"relevance": self.relevance, "grad_limit": self.grad_limit}
        if self.model.endswith("rnn") and self.model != "orthrnn":
            options["nonlinearity"] = self.nonlinearity
        torch.manual_seed(self.seed)
        return MODELS[self.model](self.input_size, self.hidden, **options).eval()  # no noise on relevance


class _Walk:
    """The input, resets and output gradients of `steps` steps, the same on every device."""

    def __init__(self, cell: SweepCell, steps: int) -> None:
        generator = torch.Generator().manual_seed(cell.seed + steps)
        dtype = getattr(torch, cell.dtype)
        self.x = torch.randn(steps, cell.rows, cell.input_size, generator=generator).to(dtype)
        self.reset = torch.rand(steps, cell.rows, generator=generator) < 0.1 if cell.reset else None
        self.arriving = torch.randn(steps, cell.rows, cell.hidden, generator=generator).to(dtype)
        self.carried = cell.carried and steps > 1

    def keep_rows(self, rows: Tensor) -> None:
        """Set the output gradients of all other rows to zero."""
        others = torch.ones(self.x.shape[1], dtype=torch.bool)
        others[rows] = False
        self.arriving[:, others] = 0

    def run(self, module: nn.Module, rows: Tensor | slice = slice(None)) -> dict[str, Tensor]:
        """Return outputs, final state and gradients by name; two calls if the state is to be carried."""
        like = next(module.parameters())
        x = self.x[:, rows].to(like).requires_grad_()
        reset = None if self.reset is None else self.reset[:, rows].to(like.device)
        half, state, outputs = x.shape[0] // 2 if self.carried else 0, None, []
        for part in [slice(0, half), slice(half, None)] if half else [slice(None)]:
            options = {} if reset is None else {"reset": reset[part]}
            output, state = module(x[part], state, **options)
            outputs.append(output)
        output = torch.cat(outputs)
        named = dict(module.named_parameters())
        wanted = {"input": x} | {name: p for name, p in named.items() if p.requires_grad}
        gradients = torch.autograd.grad(
            output, list(wanted.values()), self.arriving[:, rows].to(like), materialize_grads=True
        )
        values = {"output": output, **_parts(state)}
        return values | {f"d {name}": g for name, g in zip(wanted, gradients, strict=True)}


def _parts(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a final state by name."""
    if not isinstance(state, State):
        names = ("hidden", "cell_state")
        return dict(zip(names, state if isinstance(state, tuple) else (state,), strict=False))
    values = {"hidden": state.hidden}
    if state.cell_state is not None:
        values["cell_state"] = state.cell_state
    if state.memory and state.memory[0].slots.numel():
        values |= {"slots": state.memory[0].slots, "born": state.memory[0].born}
    return values


def run_cell(cell: SweepCell) -> dict[str, Any]:
    """Run a cell and return its record: `failures` (one line each), the backends, warnings and seconds.

    The first call runs all steps, forward and backward, as a user's first call would; its results must be
    finite. Then one step and a short sequence are compared with the definition in float64 on the CPU. The
    sequence is short enough that the memory is not full, so no eviction depends on rounding.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    dtype, began = getattr(torch, cell.dtype), time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, record_backends() as ran:
        warnings.simplefilter("always")
        module = cell.module(cell.backend).to(cell.device, dtype)
        failures = _not_finite(_Walk(cell, cell.steps).run(module))
        first = time.perf_counter() - began
        for steps in sorted({1, _short(cell)}):
            failures += [f"{steps} steps: {line}" for line in _compared(cell, module, steps)]
    return {
        "cell": asdict(cell),
        "title": cell.title,
        "failures": failures,
        "backends": [name for name in dict.fromkeys(ran) if name != "reference"] or ["torch.nn"],
        "warnings": list(dict.fromkeys(str(w.message) for w in caught if "backend" in str(w.message))),
        "first_seconds": round(first, 3),
        "seconds": round(time.perf_counter() - began, 3),
    }


def _short(cell: SweepCell) -> int:
    """Return the number of steps of the short sequence."""
    steps = min(cell.steps, _COMPARED_STEPS[getattr(torch, cell.dtype)])
    return min(steps, cell.window + cell.capacity) if cell.model in BOUNDED else steps


def _not_finite(values: dict[str, Tensor]) -> list[str]:
    return [
        f"{name}: {int((~x.isfinite()).sum())} of {x.numel()} numbers are not finite"
        for name, x in values.items()
        if not x.isfinite().all()
    ]


def _compared(cell: SweepCell, module: nn.Module, steps: int) -> list[str]:
    dtype = getattr(torch, cell.dtype)
    rows = torch.linspace(0, cell.rows - 1, min(cell.rows, _COMPARED_ROWS)).long().unique()
    walk = _Walk(cell, steps)
    walk.keep_rows(rows)
    got = walk.run(module)
    exact = cell.module("reference").to(dtype).double()
    expected = walk.run(exact, rows)
    allowed = TOLERANCE[dtype] * (1.0 if steps == 1 else _OF_A_WALK[dtype])
    if steps > 1 and dtype == torch.bfloat16 and cell.has_kink:
        return _not_finite(got)
    failures = []
    for name, x in expected.items():
        if name.startswith("d ") and cell.has_kink:
            continue
        y = got[name].cpu()
        if name in ("output", "d input"):
            y = y[:, rows]
        elif name in ("slots", "born"):
            y = y[rows]
        elif not name.startswith("d "):
            y = y.index_select(-2, rows)
        failures += _difference(name, x.detach(), y.detach(), allowed)
    return failures


def _difference(name: str, x: Tensor, y: Tensor, allowed: float) -> list[str]:
    if x.shape != y.shape:
        return [f"{name}: shape {tuple(y.shape)}, expected {tuple(x.shape)}"]
    if not x.is_floating_point():
        return [] if torch.equal(x, y) else [f"{name}: choices differ"]
    worst = (x - y.double()).abs().max().item() / max(1.0, x.abs().max().item())
    # not `worst > allowed`, which is False for NaN
    return [] if worst <= allowed else [f"{name}: off by {worst:.2e}, allowed {allowed:.0e}"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_cell(SweepCell(**json.loads(sys.argv[1])))) + "\n")
