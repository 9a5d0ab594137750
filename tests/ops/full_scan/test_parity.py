"""The fused full-memory scan against its definition: choices exactly, then every number and gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from plait.ops.full_scan import full_scan, torch_past, torch_scan
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.parity_cases import reaching_cases, sampled
from plait.ops.scan import FullScan

ELMAN = ("tanh", "relu", "modrelu", "identity")


def scan_of(cell: str, mix: float = 0.5) -> FullScan:
    return FullScan("elman", mix, cell) if cell in ELMAN else FullScan(cell, mix)


CASES = [
    # every cell, each in every circumstance
    *(
        Case(scan_of(cell), steps=9, rows=3, **{flag: True})
        for cell, flag in itertools.product(
            (*ELMAN, "lstm", "gru"), ("carried", "reset", "nudge", "strided", "ties")
        )
    ),
    # sizes: one step, one row, no row, sizes that fill no vector
    *(Case(scan_of(cell), steps=1, carried=True) for cell in ("tanh", "lstm", "gru")),
    *(Case(scan_of(cell), steps=1) for cell in ("tanh", "lstm", "gru")),
    *(Case(scan_of(cell), rows=0, reset=True, nudge=True) for cell in ("relu", "lstm")),
    Case(scan_of("lstm"), steps=33, rows=1, reset=True),
    Case(scan_of("gru"), steps=9, rows=1, size=17, carried=True, reset=True, nudge=True),
    Case(scan_of("tanh", mix=0.8), steps=20, rows=9, size=33),
    # energies so large that their normaliser is rounded more than the weights
    Case(scan_of("tanh"), steps=1, size=25, carried=True, scale=10.0),
    # scores so large that tanh is flat
    Case(scan_of("tanh"), steps=6, rows=3, far=True),
    Case(scan_of("lstm"), steps=9, rows=3, dtype=torch.float64, carried=True, far=True),
    # all circumstances at once, in each type
    *(
        Case(
            scan_of(cell),
            steps=11,
            rows=3,
            size=6,
            dtype=dtype,
            carried=True,
            reset=True,
            nudge=True,
            strided=True,
        )
        for cell, dtype in itertools.product(
            ("tanh", "modrelu", "lstm", "gru"), (torch.float64, torch.bfloat16, torch.float16)
        )
    ),
]
LARGE_SCORES = reaching_cases(["full"])


@pytest.fixture(autouse=True)
def _poisoned(poison: Callable[..., None]) -> None:
    poison(torch, "empty", "empty_like")
    poison(torch.Tensor, "new_empty")


def failures(case: Case, device: str = "cpu", backend: str = "torch") -> list[str]:
    problem = make_problem(case, device)
    return differences(run(problem, case.scan, "reference"), run(problem, case.scan, backend), case.dtype)


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity(case: Case, backend: str) -> None:
    assert failures(case, backend=backend) == []


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity_of_avx2(case: Case) -> None:
    assert failures(case, backend="cpu") == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("case", LARGE_SCORES, ids=str)
def test_parity_of_large_scores(case: Case, backend: str) -> None:
    assert failures(case, backend=backend) == []


@pytest.mark.slow
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", LARGE_SCORES, ids=str)
def test_parity_of_large_scores_of_avx2(case: Case) -> None:
    assert failures(case, backend="cpu") == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [1, 40])
def test_parity_of_many_rows(steps: int, dtype: torch.dtype) -> None:
    """More rows than a block of the compiled scan, several vectors a state, slots empty at the start."""
    case = Case(scan_of("lstm"), steps=steps, rows=15, size=35, dtype=dtype, carried=True, reset=True)
    assert failures(case, backend="cpu") == []


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity_on_a_gpu(case: Case) -> None:
    assert failures(case, "cuda") == []


@pytest.mark.parametrize("block", [1, 60, 64])
@pytest.mark.parametrize("reset", [False, True])
def test_parity_in_blocks(block: int, reset: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One position in a block, a few, and a block that ends within the initial slots."""
    monkeypatch.setitem(torch_past._BLOCK, "cpu", block)
    case = Case(scan_of("lstm"), steps=10, rows=3, size=5, carried=True, reset=reset, nudge=True)
    assert failures(case) == []


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("cell", ["tanh", "modrelu", "lstm", "gru"])
def test_gradcheck(cell: str, backend: str) -> None:
    case = Case(
        scan_of(cell), steps=5, rows=2, size=2, dtype=torch.float64, carried=True, reset=True, nudge=True
    )
    problem = make_problem(case)
    leaves = problem.leaves()

    def outputs(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = dict(zip(leaves, tensors, strict=True))
        memory = problem.state.memory._replace(slots=at["slots"])
        state = problem.state._replace(hidden=at["hidden"], memory=memory, cell_state=at.get("cell_state"))
        weights = problem.weights._replace(**{n: at[n] for n in problem.weights._fields if n in at})
        walked = full_scan(
            at["projected"], weights, state, case.scan, problem.reset, at["nudge"], backend=backend
        )
        end = walked.state
        parts = (walked.output, end.hidden, end.memory.slots, end.cell_state)
        return tuple(part for part in parts if part is not None)

    assert torch.autograd.gradcheck(outputs, tuple(leaves.values()), fast_mode=True)


# what is broken: (file, piece of its source, what stands there instead)
MUTATIONS = {
    "a sign in the mix": ("torch_scan", "(h + rounded(context))", "(h - rounded(context))"),
    "no gradient through the keys": ("torch_scan", ".addmm_(d_key, key)", ""),
    "no gradient past the context": ("torch_scan", "d_state.add_(d_context)", "d_state"),
    "a reset that cuts nothing": ("torch_scan", "zeroed(inputs.reset[t], d_hidden, ", "(d_hidden, "),
    "a trace of the wrong birth": ("ending", "unreadable, -1)", "~unreadable, -1)"),
    "relevance that survives": ("ending", "relevance.masked_fill_(cleared, 0)", "relevance"),
    "the age of one step less": ("ending", "ages[-1] + 1", "ages[-1]"),
    "h_t not read at once": ("torch_past", "positions > self", "positions >= self"),
    "a mean from elsewhere": ("torch_past", "(d_weights - mean)", "(d_weights + mean)"),
    "final slots forgotten": ("torch_past", "None if arriving is None", "None if True"),
    "the slope of the scores": ("torch_past", "2 * self.twice_energy", "1.99 * self.twice_energy"),
    "a weight without its normaliser": ("torch_past", ".sub_(self.normalisers[t])", ""),
    "states that survive a reset": ("torch_past", "if self.first is None", "if True"),
    "empty slots that are read": ("torch_past", "|= self.empty[low:high]", "|= False"),
    "a gradient of what was cleared": ("torch_past", "if inputs.reset is not None", "if False"),
    "v_a off by a thousandth": ("torch_past", "alpha=2)\n        slopes", "alpha=2.002)\n        slopes"),
}


@pytest.fixture
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain-torch backend with one piece of its source replaced."""
    stem, piece, replacement = MUTATIONS[request.param]
    source = Path(torch_scan.__file__).with_name(f"{stem}.py").read_text(encoding="utf-8")
    assert source.count(piece) == 1, f"{piece!r} must stand once in {stem}.py"
    module = ModuleType("plait_mutant")
    exec(compile(source.replace(piece, replacement), "mutant", "exec"), module.__dict__)
    for name in {*module.__dict__["__all__"]} & {*vars(torch_scan)}:
        monkeypatch.setattr(torch_scan, name, module.__dict__[name])


@pytest.mark.usefixtures("mutant")
@pytest.mark.parametrize("mutant", MUTATIONS, indirect=True)
def test_parity_can_fail() -> None:
    assert failures(Case(scan_of("tanh"), steps=14, rows=4, carried=True, reset=True))
