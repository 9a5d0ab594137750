"""Parity with the reference, which a backend must have before it is timed.

First the whole layer is compared, over as many steps as it has slots, then its scan alone over more steps, on
inputs for which rounding cannot change an eviction. A layer with modrelu in bfloat16 or tf32 is compared by
its scan alone, on inputs that stay away from the kink.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from plait.lab.bench.layer_config import LayerConfig, scan_of
from plait.ops.parity import TOLERANCE, Case, differences, make_problem, run
from plait.ops.scan import PlainScan

__all__ = ["check", "check_stream", "matmul_precision", "tolerance"]

_STEPS, _ROWS = 20, 3
# more steps than a kernel reads in one tile
_FULL_STEPS = 64


def tolerance(config: LayerConfig, tf32: bool = False) -> float:
    """Return the allowed difference relative to the largest value; tf32 has the ten bits of float16."""
    return TOLERANCE[torch.float16 if tf32 and config.dtype == torch.float32 else config.dtype]


def check(config: LayerConfig, tf32: bool = False) -> list[str]:
    """Return the differences of a backend from the reference, one line each.

    >>> check(LayerConfig("relrnn", "torch", torch.device("cpu"), hidden=8))
    []
    """
    failures: list[str] = []
    coarse = tf32 or config.dtype != torch.float32
    if not (coarse and isinstance(scan_of(config.layer), PlainScan)):
        with matmul_precision("high" if tf32 else "highest"):
            failures = _layer_differences(config, tolerance(config, tf32))
    with matmul_precision("highest"):
        return failures + _scan_differences(config)


def check_stream(config: LayerConfig) -> list[str]:
    """Return the differences of one step a call, its state carried, from the reference in one call.

    >>> check_stream(LayerConfig("rellstm", "torch", torch.device("cpu"), hidden=8))
    []
    """
    small = replace(config, steps=_STEPS, rows=_ROWS)
    x, _ = small.tensors()
    with torch.no_grad():
        expected = replace(small, backend="reference").module().eval()(x)[0]
        module, state, outputs = small.module().eval(), None, []
        for step in x.split(1):
            output, state = module(step, state)
            outputs.append(output)
    worst, allowed = _worst(expected, torch.cat(outputs)), tolerance(config)
    return [] if worst <= allowed else [f"stream's output: off by {worst:.2e}, allowed {allowed:.0e}"]


def _layer_differences(config: LayerConfig, allowed: float) -> list[str]:
    """Compare output, final state, and the gradients of input and weights."""
    small = replace(config, steps=_STEPS, rows=_ROWS)
    expected = _outcome(replace(small, backend="reference"))
    got = _outcome(small)
    failures = []
    for name, x in expected.items():
        worst = _worst(x, got[name])
        # not `worst > allowed`, which is False for NaN
        if not worst <= allowed:
            failures.append(f"layer's {name}: off by {worst:.2e}, allowed {allowed:.0e}")
    return failures


def _outcome(config: LayerConfig) -> dict[str, Tensor]:
    module = config.module().eval()  # without exploration noise
    x, arriving = config.tensors()
    x.requires_grad_()
    weights = dict(module.named_parameters())
    for _ in range(3 if config.graphed else 1):  # a graph is captured at the second call
        output, state = module(x)
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


def _scan_differences(config: LayerConfig) -> list[str]:
    """Compare the scan over more steps than it has slots, so that states are kept and evicted."""
    scan = scan_of(config.layer)
    # in bfloat16 few random inputs keep every eviction clear of rounding, so there are fewer evictions
    rows, beyond = (1, 2) if config.dtype == torch.bfloat16 else (_ROWS, 6)
    case = Case(
        scan,
        steps=(_FULL_STEPS if scan.width is None else scan.width) + beyond,
        rows=rows,
        size=config.hidden,
        dtype=config.dtype,
        learned=config.relevance == "learned",
    )
    problem = make_problem(case, config.device)
    expected = run(problem, scan, "reference")
    return differences(expected, run(problem, scan, config.backend), case.dtype)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Set torch's precision of float32 matrix products within the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
