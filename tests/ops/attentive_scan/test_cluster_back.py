"""The cluster scan's walk back, its own source on a CPU, against the reference in float64.

What the walk reads is made here by plain torch, so that this holds whatever walks forward.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.ops import parity
from plait.ops.attentive_scan import torch_scan
from plait.ops.attentive_scan.cluster_back import BackShape, walk_back
from plait.ops.attentive_scan.cluster_shape import BACKWARD_TEXT
from plait.ops.parity import Case, make_problem
from plait.ops.scan import Scan
from plait.ops.scan.boundary import conform
from plait.ops.scan.contract import Arriving, Inputs, Scanned

SIZE = 32
LSTM, GRU = Scan("lstm", 3, 2), Scan("gru", 3, 2, mix=0.7)
ELMAN, RELU = Scan("elman", 2, 3), Scan("elman", 3, 2, nonlinearity="relu")
MODRELU = Scan("elman", 1, 2, nonlinearity="modrelu")
# name: shape, and the circumstances it is walked in
CASES: dict[str, tuple[BackShape, Case]] = {
    "lstm": (BackShape(LSTM, SIZE, torch.float32, 4, 2), Case(LSTM, steps=12, rows=3, size=SIZE)),
    "lstm_carried": (
        BackShape(LSTM, SIZE, torch.float32, 2, 1),
        Case(LSTM, steps=9, rows=2, size=SIZE, carried=True, reset=True, nudge=True),
    ),
    "gru": (
        BackShape(GRU, SIZE, torch.float32, 4, 2),
        Case(GRU, steps=10, rows=3, size=SIZE, carried=True, reset=True, limited=True),
    ),
    "elman": (
        BackShape(ELMAN, SIZE, torch.float32, 8, 1),
        Case(ELMAN, steps=9, rows=2, size=SIZE, reset=True),
    ),
    "relu": (
        BackShape(RELU, SIZE, torch.float32, 4, 3),
        Case(RELU, steps=8, rows=4, size=SIZE, carried=True, nudge=True),
    ),
    "modrelu": (BackShape(MODRELU, SIZE, torch.float32, 2, 2), Case(MODRELU, steps=8, rows=3, size=SIZE)),
    "learned": (
        BackShape(LSTM, SIZE, torch.float32, 4, 2),
        Case(LSTM, steps=10, rows=2, size=SIZE, carried=True, reset=True, learned=True, noise=True),
    ),
    "one_step": (
        BackShape(LSTM, SIZE, torch.float32, 2, 1),
        Case(LSTM, steps=1, rows=1, size=SIZE, carried=True),
    ),
    "three_steps": (
        BackShape(GRU, SIZE, torch.float32, 4, 2),
        Case(GRU, steps=3, rows=2, size=SIZE, carried=True, learned=True),
    ),
}
WIDE = Scan("elman", 20, 20)
SLOW: dict[str, tuple[BackShape, Case]] = {
    "wide": (
        BackShape(WIDE, SIZE, torch.float32, 2, 1),
        Case(WIDE, steps=46, rows=1, size=SIZE, carried=True),
    ),
    "shared": (BackShape(LSTM, 128, torch.float32, 8, 1, 2), Case(LSTM, steps=7, rows=1, size=128)),
    "far": (BackShape(LSTM, SIZE, torch.float32, 4, 2), Case(LSTM, steps=7, rows=2, size=SIZE, far=True)),
    "narrow": (
        BackShape(GRU, SIZE, torch.bfloat16, 4, 2),
        Case(GRU, steps=6, rows=3, size=SIZE, dtype=torch.bfloat16, carried=True),
    ),
}


def physical(ids: Tensor, width: int, reset: Tensor | None) -> Tensor:
    """Ids by place as ids by slot, which packs the place beside: a state that is kept trades places with the one it
    replaces, whose slot the newest takes."""
    packed = torch.empty_like(ids)
    for b in range(ids.shape[1]):
        place = list(range(width))  # of each slot
        before = [j if j in ids[0, b].tolist() else -1 for j in range(width)]  # by place
        for t in range(ids.shape[0]):
            if reset is not None and reset[t, b]:
                before = [-1] * width
            now = ids[t, b].tolist()
            at = now.index(width + t)
            leaving = before[at]
            slot = place.index(at)
            if leaving >= 0 and leaving in now:
                other = place.index(now.index(leaving))
                place[slot], place[other] = place[other], place[slot]
            for x in range(width):
                packed[t, b, x] = now[place[x]] * 64 + place[x]
            before = now
    return packed


def saved(inputs: Inputs, scan: Scan) -> Scanned:
    """What a forward walk of the cluster scan leaves."""
    made = torch_scan.forward(inputs, scan, False, True)
    weights = torch.cat([inputs.recurrent, inputs.query, inputs.key]).float()
    states = torch.cat([inputs.slots.transpose(0, 1), made.output]).float()
    products = states @ weights.t()
    products[: scan.width][(inputs.born < 0).t()] = torch.nan  # never written
    nothing = made.keys.new_empty(0, *made.keys.shape[1:])
    ids = physical(made.ids, scan.width, inputs.reset)
    if scan.cell == "elman" and inputs.nudge is None:
        assert made.gates.shape[2] == 0
    return made._replace(products=products.contiguous(), keys=nothing, ids=ids)


def arriving(made: Scanned, scan: Scan) -> Arriving:
    """As `parity.run` weighs what comes out."""
    generator = torch.Generator().manual_seed(7)
    parts = [made.output, made.hidden, made.cell_state if scan.cell == "lstm" else None, made.slots]
    return Arriving(
        *(
            None if x is None else torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
            for x in parts
        )
    )


Built = Callable[..., ctypes.CDLL]


@pytest.fixture(scope="module")
def built(emulated: Built) -> Built:
    """The kernels of these cases."""

    @cache
    def library(names: tuple[str, ...], replaced: tuple[str, str] | None = None) -> ctypes.CDLL:
        shapes = {name: shape_of(name) for name in names}
        return emulated("attentive_scan", "backward", BACKWARD_TEXT, shapes, replaced)

    return library


def shape_of(name: str) -> BackShape:
    shape, case = {**CASES, **SLOW}[name]
    return replace(shape, reset=case.reset, learned=case.learned, limited=case.limited)


def walked(
    name: str, emulated: ctypes.CDLL, seed: int = 1, part: str = "all"
) -> tuple[Inputs, dict[str, Any]]:
    """The gradients by the kernel, and by the reference in float64."""
    shape, case = shape_of(name), {**CASES, **SLOW}[name][1]
    problem = make_problem(case)
    scan = shape.scan
    with torch.no_grad():
        inputs = conform(problem.inputs(), scan)
        made = saved(inputs, scan)
        given = arriving(made, scan)
        # what nobody wrote may hold anything
        inputs = inputs._replace(slots=inputs.slots.masked_fill((inputs.born < 0).unsqueeze(2), torch.nan))
        if part == "output":
            given = Arriving(output=given.output)

        def launch(of: BackShape, arguments: ctypes.Structure, clusters: int) -> None:
            assert clusters == -(-case.rows // of.rows)
            emulated[f"run_{name}"](ctypes.byref(arguments), seed)

        found = walk_back(given, inputs, made, scan, case.nudge, shape, launch)
    if part == "output":
        return found, {}
    exact = make_problem(case)
    double = parity.Problem(*(_double(x) for x in exact))
    return found, parity.run(double, scan, "reference").gradients


def _double(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.detach().double().requires_grad_() if x.is_floating_point() else x
    return x if x is None else type(x)(*(_double(y) for y in x))


def gaps(found: Inputs, expected: dict[str, Any], dtype: torch.dtype) -> list[str]:
    wrong = []
    for name, x in expected.items():
        got = getattr(found, name)
        if x is None:
            assert got is None or not got.any(), name
            continue
        gap = (got.double() - x).abs().max().item() / max(1.0, x.abs().max().item())
        if not gap <= parity.TOLERANCE[dtype]:
            wrong.append(f"{name} {gap:.1e}")
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, built: Built) -> None:
    found, expected = walked(name, built(tuple(CASES)))
    assert gaps(found, expected, CASES[name][1].dtype) == []
