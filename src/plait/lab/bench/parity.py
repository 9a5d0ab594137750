"""A backend is timed only if it computes what the reference computes.

A layer is compared whole, with as many steps as it has slots, and then its scan alone over more steps, on
inputs whose choices of what to keep stand further apart than rounding. A layer with modrelu, whose slope
jumps, is compared by its scan alone where numbers have eight or ten bits: there inputs stay off the kink.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from plait.lab.bench.contestants import Contestant, scan_of
from plait.ops.parity import TOLERANCE, Case, differences, make_problem, run
from plait.ops.scan import PlainScan

__all__ = ["check", "check_stream", "matmul_precision", "tolerance"]

_STEPS, _ROWS = 20, 3
# more than a kernel reads at a time
_FULL_STEPS = 64


def tolerance(contestant: Contestant, tf32: bool = False) -> float:
    """The largest difference allowed, relative to the largest value; tf32 has float16's ten bits."""
    return TOLERANCE[torch.float16 if tf32 and contestant.dtype == torch.float32 else contestant.dtype]


def check(contestant: Contestant, tf32: bool = False) -> list[str]:
    """What the contestant's backend does differently from the reference, one line each.

    >>> check(Contestant("relrnn", "torch", torch.device("cpu"), hidden=8))
    []
    """
    found: list[str] = []
    coarse = tf32 or contestant.dtype != torch.float32
    if not (coarse and isinstance(scan_of(contestant.layer), PlainScan)):
        with matmul_precision("high" if tf32 else "highest"):
            found = _layer_differences(contestant, tolerance(contestant, tf32))
    with matmul_precision("highest"):
        return found + _scan_differences(contestant)


def check_stream(contestant: Contestant) -> list[str]:
    """What differs if the backend takes one step a call, its state carried, and the reference all at once.

    >>> check_stream(Contestant("rellstm", "torch", torch.device("cpu"), hidden=8))
    []
    """
    small = replace(contestant, steps=_STEPS, rows=_ROWS)
    x, _ = small.tensors()
    with torch.no_grad():
        expected = replace(small, backend="reference").module().eval()(x)[0]
        module, state, outputs = small.module().eval(), None, []
        for step in x.split(1):
            output, state = module(step, state)
            outputs.append(output)
    worst, allowed = _worst(expected, torch.cat(outputs)), tolerance(contestant)
    return [] if worst <= allowed else [f"stream's output: off by {worst:.2e}, allowed {allowed:.0e}"]


def _layer_differences(contestant: Contestant, allowed: float) -> list[str]:
    """Output, final state, and the gradients of input and weights."""
    small = replace(contestant, steps=_STEPS, rows=_ROWS)
    expected = _outcome(replace(small, backend="reference"))
    got = _outcome(small)
    found = []
    for name, x in expected.items():
        worst = _worst(x, got[name])
        # written so that NaN is a difference
        if not worst <= allowed:
            found.append(f"layer's {name}: off by {worst:.2e}, allowed {allowed:.0e}")
    return found


def _outcome(contestant: Contestant) -> dict[str, Tensor]:
    module = contestant.module().eval()  # without the noise of a learned relevance
    x, arriving = contestant.tensors()
    x.requires_grad_()
    output, state = module(x)
    weights = dict(module.named_parameters())
    gradients = torch.autograd.grad(output, [x, *weights.values()], arriving, materialize_grads=True)
    parts = {"output": output, "hidden": state.hidden, "slots": state.memory[0].slots}
    if state.cell_state is not None:
        parts["cell_state"] = state.cell_state
    return parts | {f"d {name}": value for name, value in zip(["input", *weights], gradients, strict=True)}


def _worst(x: Tensor, y: Tensor) -> float:
    if x.shape != y.shape or x.dtype != y.dtype:
        return float("inf")
    if not x.numel():
        return 0.0
    wide, other = x.detach().double(), y.detach().double()
    return (wide - other).abs().max().item() / max(1.0, wide.abs().max().item())


def _scan_differences(contestant: Contestant) -> list[str]:
    """The scan beyond its width, where states leave the window and are kept or lost; a full one in tiles."""
    scan = scan_of(contestant.layer)
    # choices of bfloat16 stand apart on few draws only, so it makes fewer of them
    rows, beyond = (1, 2) if contestant.dtype == torch.bfloat16 else (_ROWS, 6)
    case = Case(
        scan,
        steps=(_FULL_STEPS if scan.width is None else scan.width) + beyond,
        rows=rows,
        size=contestant.hidden,
        dtype=contestant.dtype,
        learned=contestant.relevance == "learned",
    )
    problem = make_problem(case, contestant.device)
    expected = run(problem, scan, "reference")
    return differences(expected, run(problem, scan, contestant.backend), case.dtype)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
