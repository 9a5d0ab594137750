"""Every backend of the plain scan against its definition: every number and every gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn.utils import parametrizations

import plait
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.plain_scan import plain_scan, torch_scan
from plait.ops.scan import PlainScan, record_backends, torch_cells
from plait.ops.scan.backends import MODULES, missing

NONLINEARITIES = ("tanh", "relu", "modrelu", "identity")
SCANS = [
    *(PlainScan("elman", nonlinearity) for nonlinearity in NONLINEARITIES),
    *(PlainScan("gru", nonlinearity) for nonlinearity in NONLINEARITIES),
    PlainScan("lstm"),
]
MODRELU, GORU, LSTM = PlainScan("elman", "modrelu"), PlainScan("gru", "modrelu"), PlainScan("lstm")


def backends_here() -> list[object]:
    """The fused backends as parameters, each that cannot run here skipped with its reason."""
    marked = []
    # Triton's interpreter is slow: its kernels have cases of their own, in test_triton.py
    for name in [name for name in MODULES if name not in ("triton", "cluster")]:
        reason = missing(name, "cpu", torch.float32, "elman", 0, 5, "plain_scan")
        marked.append(
            pytest.param(name, marks=[pytest.mark.skip(reason=f"{name}: {reason}")] if reason else [])
        )
    return marked


CASES = [
    # every cell, in each circumstance
    *(
        Case(scan, steps=12, rows=3, **{flag: True})
        for scan, flag in itertools.product(SCANS, ("carried", "reset", "nudge", "strided"))
    ),
    # sizes: one step, one row, no row, sizes that fill no vector, rows enough for several tasks
    *(Case(scan, steps=1, nudge=True, reset=True) for scan in (MODRELU, GORU, LSTM)),
    *(Case(scan, rows=0, reset=True, nudge=True) for scan in (MODRELU, GORU, LSTM)),
    *(Case(scan, steps=40, rows=15, size=33, reset=True) for scan in (MODRELU, GORU, LSTM)),
    Case(MODRELU, steps=63, rows=1, size=60, nudge=True),
    Case(GORU, steps=9, rows=1, size=17, carried=True, reset=True, nudge=True),
    Case(MODRELU, steps=20, rows=7, size=16),
    # all circumstances at once, in each type; over many steps of 8 bits modrelu comes too close to its kink
    *(
        Case(
            scan, steps=steps, rows=3, size=6, dtype=dtype, carried=True, reset=True, nudge=True, strided=True
        )
        for scan, (dtype, steps) in itertools.product(
            (MODRELU, GORU, LSTM), ((torch.float64, 11), (torch.bfloat16, 6), (torch.float16, 6))
        )
    ),
]


@pytest.fixture(autouse=True)
def _poisoned(poison: Callable[..., None]) -> None:
    poison(torch, "empty", "empty_like")
    poison(torch.Tensor, "new_empty")


@pytest.mark.parametrize("backend", backends_here())
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity(case: Case, backend: str) -> None:
    problem = make_problem(case)
    expected = run(problem, case.scan, "reference")
    assert differences(expected, run(problem, case.scan, backend), case.dtype) == []


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity_of_avx2(case: Case) -> None:
    problem = make_problem(case)
    expected = run(problem, case.scan, "reference")
    assert differences(expected, run(problem, case.scan, "cpu"), case.dtype) == []


@pytest.mark.parametrize("backend", backends_here())
@pytest.mark.parametrize("scan", [PlainScan("elman"), MODRELU, PlainScan("gru"), GORU, LSTM], ids=str)
def test_gradcheck(scan: PlainScan, backend: str) -> None:
    case = Case(scan, steps=5, rows=2, size=3, dtype=torch.float64, carried=True, reset=True, nudge=True)
    problem = make_problem(case)
    leaves = {name: x for name, x in problem.leaves().items() if name != "slots"}

    def outputs(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = dict(zip(leaves, tensors, strict=True))
        state = problem.state._replace(hidden=at["hidden"], cell_state=at.get("cell_state"))
        weights = problem.weights._replace(**{n: at[n] for n in problem.weights._fields if n in at})
        walked = plain_scan(
            at["projected"], weights, state, scan, problem.reset, at["nudge"], backend=backend
        )
        parts = (walked.output, walked.state.hidden, walked.state.cell_state)
        return tuple(part for part in parts if part is not None)

    assert torch.autograd.gradcheck(outputs, tuple(leaves.values()), fast_mode=True)


@pytest.mark.parametrize("backend", backends_here())
def test_gradients_reach_what_a_weight_is_made_from(backend: str) -> None:
    gradients = []
    for name in ("reference", backend):
        torch.manual_seed(0)
        model = plait.RNN(3, 6, nonlinearity="modrelu", backend=name)
        parametrizations.orthogonal(model.layers[0].cell, "weight_hh")
        with record_backends() as ran:
            output, _ = model(torch.randn(9, 2, 3))
        assert ran == [name]
        gradients.append(torch.autograd.grad(output.square().sum(), list(model.parameters())))
    for expected, got in zip(*gradients, strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


# what is broken: (module, piece of its source, what stands there instead)
MUTATIONS = {
    "a reset that keeps the state": (torch_scan, "zeroed(inputs.reset[t], hidden, ", "(hidden, "),
    "a reset that cuts no gradient": (torch_scan, "zeroed(inputs.reset[t], d_hidden, ", "(d_hidden, "),
    "a nudge that is lost": (torch_scan, "h if nudge is None else h + nudge[t]", "h"),
    "gradient past the product": (torch_scan, "if cell.hidden is None else d_hidden + cell.hidden", ""),
    "cell state saved one step late": (torch_scan, "out.cells[t] =", "out.cells[t - 1] ="),
    "final hidden forgotten": (torch_scan, "or_zeros(arriving.hidden, before[0])", "before[0] * 0"),
    "final cell state forgotten": (torch_scan, "or_zeros(arriving.cell_state, before[0])", "before[0] * 0"),
    "the product transposed": (
        torch_scan,
        "cell.recurred @ recurrent",
        "cell.recurred @ recurrent.view_as(recurrent).flip(1)",
    ),
    "a candidate's bias forgotten": (
        torch_cells,
        "is None else recurred_n + candidate_bias",
        "is None else recurred_n",
    ),
    "modrelu without its bias": (torch_cells, "r, recurred_n), modrelu_bias", "r, recurred_n), None"),
    "a slope where modrelu is flat": (torch_cells, "d_h.masked_fill(activated == 0, 0)", "d_h.clone()"),
}


@pytest.fixture
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The plain-torch backend with one piece of its source replaced."""
    original, piece, replacement = MUTATIONS[request.param]
    source = Path(str(original.__file__)).read_text(encoding="utf-8")
    assert source.count(piece) == 1, f"{piece!r} must stand once in {original.__name__}"
    module = ModuleType("plait_mutant")
    exec(compile(source.replace(piece, replacement), "mutant", "exec"), module.__dict__)
    for name in module.__dict__["__all__"]:
        if hasattr(torch_scan, name):
            monkeypatch.setattr(torch_scan, name, module.__dict__[name])
    return "torch"


@pytest.mark.parametrize("mutant", MUTATIONS, indirect=True)
def test_parity_can_fail(mutant: str) -> None:
    found = []
    for scan in (MODRELU, GORU, LSTM):
        case = Case(scan, steps=14, rows=4, carried=True, reset=True, nudge=True)
        problem = make_problem(case)
        expected = run(problem, scan, "reference")
        found += differences(expected, run(problem, scan, mutant), case.dtype)
    assert found
