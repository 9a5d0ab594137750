"""Every backend of the scan against its definition: choices exactly, then every number and gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from plait.ops.attentive_scan import attentive_scan, torch_scan
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.parity_cases import reaching_cases, sampled
from plait.ops.scan import Scan
from plait.ops.scan.backends import MODULES, missing

ELMAN = ("tanh", "relu", "modrelu", "identity")
MEMORY = {
    "window": {"window": 4},
    "relevancy": {"window": 3, "capacity": 3},
    "uniform": {"window": 3, "capacity": 2, "every": 2},
}


def backends_here(*names: str) -> list[object]:
    """The fused backends as parameters, each that cannot run here skipped with its reason."""
    marked = []
    # An interpreter and an emulator are slow: these kernels have cases of their own, in files of their own
    for name in names or [name for name in MODULES if name not in ("triton", "cluster")]:
        reason = missing(name, "cpu", torch.float32, "elman", 6, 5)
        marks = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
        marked.append(pytest.param(name, marks=marks))
    return marked


def scan_of(cell: str, memory: str, **options: float) -> Scan:
    nonlinearity = cell if cell in ELMAN else "tanh"
    kind = "elman" if cell in ELMAN else cell
    return Scan(kind, **{**MEMORY[memory], **options}, nonlinearity=nonlinearity)  # type: ignore[arg-type]


CASES = [
    # every cell with every memory, each in some circumstance
    *(
        Case(scan_of(cell, memory), steps=12, rows=3, **{flag: True})
        for (cell, memory), flag in zip(
            itertools.product((*ELMAN, "lstm", "gru"), MEMORY),
            itertools.cycle(("carried", "reset", "nudge", "strided", "ties")),
            strict=False,
        )
    ),
    # sizes: one step, fewer steps than the window, one row, no row, sizes that fill no vector
    *(Case(scan_of(cell, "relevancy"), steps=1, carried=True) for cell in ("tanh", "lstm", "gru")),
    *(Case(scan_of(cell, "relevancy"), steps=14, rows=3, learned=True) for cell in ("tanh", "lstm", "gru")),
    *(
        Case(scan_of(cell, "relevancy"), steps=14, rows=3, learned=True, noise=True, **{flag: True})
        for cell in ("modrelu", "lstm", "gru")
        for flag in ("carried", "reset", "nudge", "strided")
    ),
    Case(scan_of("lstm", "relevancy"), learned=True, noise=True, carried=True, dtype=torch.bfloat16),
    *(Case(scan_of(cell, "relevancy"), steps=14, rows=3, limited=True) for cell in ("tanh", "lstm", "gru")),
    Case(scan_of("lstm", "relevancy"), steps=20, learned=True, limited=True, reset=True, nudge=True),
    Case(scan_of("gru", "window"), steps=9, limited=True, carried=True),
    Case(scan_of("tanh", "relevancy"), steps=40, rows=9, size=33, learned=True, noise=True, reset=True),
    Case(scan_of("tanh", "relevancy", window=10, capacity=2), steps=4),
    Case(scan_of("lstm", "uniform"), steps=63, rows=1, reset=True),
    Case(scan_of("tanh", "relevancy"), steps=63, rows=1, size=60, nudge=True),
    Case(scan_of("gru", "relevancy"), steps=9, rows=1, size=17, carried=True, reset=True, nudge=True),
    *(Case(scan_of(cell, "relevancy"), rows=0, reset=True, nudge=True) for cell in ("relu", "lstm")),
    *(Case(scan_of(cell, "relevancy"), new=True, learned=True) for cell in ("tanh", "lstm", "gru")),
    Case(scan_of("tanh", "relevancy", mix=0.8), steps=20, rows=9, size=33),
    Case(scan_of("lstm", "relevancy", window=1, capacity=1), steps=20, rows=7, size=16),
    # whole vectors, eight of them and one more
    Case(scan_of("lstm", "relevancy"), steps=12, rows=3, size=144, carried=True, nudge=True),
    Case(scan_of("gru", "relevancy"), steps=12, rows=3, size=144, reset=True),
    Case(scan_of("tanh", "relevancy"), steps=12, rows=4, carried=True, ties=True, reset=True),
    # scores where e^{2k} is out of range, and rows enough for several tasks
    Case(scan_of("tanh", "relevancy"), steps=4, rows=3, far=True),
    Case(scan_of("lstm", "window"), steps=9, rows=15, dtype=torch.float64, carried=True, far=True),
    # all circumstances at once, in each type
    *(
        Case(
            scan_of(cell, "relevancy"),
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
            ("tanh", "modrelu", "lstm", "gru"), (torch.float64, torch.bfloat16)
        )
    ),
    Case(scan_of("tanh", "uniform"), dtype=torch.float16, carried=True),
]
LARGE_SCORES = reaching_cases(("window", "relevancy", "uniform"))


@pytest.fixture(autouse=True)
def _poisoned(poison: Callable[..., None]) -> None:
    poison(torch, "empty", "empty_like")
    poison(torch.Tensor, "new_empty")


def failures(case: Case, backend: str) -> list[str]:
    problem = make_problem(case)
    expected = run(problem, case.scan, "reference", case.new)
    return differences(expected, run(problem, case.scan, backend, case.new), case.dtype)


@pytest.mark.parametrize("backend", backends_here())
@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity(case: Case, backend: str) -> None:
    assert failures(case, backend) == []


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", [*CASES, *sampled(LARGE_SCORES)], ids=str)
def test_parity_of_avx2(case: Case) -> None:
    assert failures(case, "cpu") == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", backends_here())
@pytest.mark.parametrize("case", LARGE_SCORES, ids=str)
def test_parity_of_large_scores(case: Case, backend: str) -> None:
    assert failures(case, backend) == []


@pytest.mark.slow
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("case", LARGE_SCORES, ids=str)
def test_parity_of_large_scores_of_avx2(case: Case) -> None:
    assert failures(case, "cpu") == []


@pytest.mark.parametrize("backend", backends_here())
@pytest.mark.parametrize("cell", ["tanh", "modrelu", "lstm", "gru"])
@pytest.mark.parametrize("learned", [False, True], ids=["earned", "learned"])
def test_gradcheck(cell: str, learned: bool, backend: str) -> None:
    scan = scan_of(cell, "relevancy", window=2, capacity=1)
    flags = {"carried": True, "reset": True, "nudge": True, "learned": learned, "noise": learned}
    problem = make_problem(Case(scan, steps=5, rows=2, size=2, dtype=torch.float64, **flags))
    leaves = problem.leaves()

    def outputs(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = dict(zip(leaves, tensors, strict=True))
        memory = problem.state.memory._replace(slots=at["slots"])
        state = problem.state._replace(hidden=at["hidden"], memory=memory, cell_state=at.get("cell_state"))
        weights = problem.weights._replace(**{n: at[n] for n in problem.weights._fields if n in at})
        walked = attentive_scan(
            at["projected"],
            weights,
            state,
            scan,
            problem.reset,
            at["nudge"],
            backend=backend,
            noise=problem.noise,
        )
        end = walked.state
        parts = (walked.output, end.hidden, end.memory.slots, end.cell_state)
        return tuple(part for part in parts if part is not None)

    assert torch.autograd.gradcheck(outputs, tuple(leaves.values()), fast_mode=True)


# what is broken: (file, piece of its source, what stands there instead)
MUTATIONS = {
    "a sign in the mix": ("torch_scan", "(h + rounded(context))", "(h - rounded(context))"),
    "a dropped slot": ("torch_scan", "(ids < 0, -torch.inf)", "((ids < 0) | (ids == 8), -torch.inf)"),
    "credit off by a hundredth": ("torch_scan", ": scan.window])", ": scan.window] * 1.01)"),
    "no gradient through the keys": ("torch_scan", ".addmm_(d_key, key)", ""),
    "a sign in the softmax": ("torch_scan", "d_weights - (weights", "d_weights + (weights"),
    "final slots forgotten": ("torch_scan", "if arriving.slots is not None", "if False"),
    "a reset that cuts no gradient": ("torch_scan", "zeroed(inputs.reset[t], d_hidden, ", "(d_hidden, "),
    "the slope of the scores": ("torch_scan", "4 * inputs.energy", "3.99 * inputs.energy"),
    "a tie decided the other way": ("torch_slots", "standing > least", "standing >= least"),
    "a lost state's gradient": ("torch_slots", "(~self.moved[t], 0)", "(self.moved[t], 0)"),
    "slots that survive a reset": ("torch_slots", "ids.masked_fill_(slots, NOTHING)", "ids"),
    "a score that is not read": ("torch_scan", "energies += table.scores.view_as(energies)", "pass"),
    "noise forgotten": ("torch_slots", "score if noise is None else score + noise", "score"),
    "a score left behind": (
        "torch_slots",
        "self.scores.index_copy_(0, target, ",
        "(lambda *_: 0)(0, target, ",
    ),
    "a score that shapes no state": (
        "torch_scan",
        "d_state.addcmul_(slots.d_score.unsqueeze(1), worth)",
        "pass",
    ),
    "a use that is not told": (
        "torch_scan",
        "d_energies_of_slots[t] = d_energies",
        "d_energies_of_slots[t] = 0",
    ),
    "a limit that is not held": ("torch_scan", "d_hidden.clamp(-limit, limit)", "d_hidden"),
    "a learned score that is earned too": (
        "torch_scan",
        "if worth is None:\n            table.standing_ring",
        "if True:\n            table.standing_ring",
    ),
    "a lost state's score": (
        "torch_slots",
        "(~self.moved[t].squeeze(1), 0)",
        "(self.moved[t].squeeze(1), 0)",
    ),
}


@pytest.fixture
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The plain-torch backend with one piece of its source replaced."""
    stem, piece, replacement = MUTATIONS[request.param]
    source = Path(torch_scan.__file__).with_name(f"{stem}.py").read_text(encoding="utf-8")
    assert source.count(piece) == 1, f"{piece!r} must stand once in {stem}.py"
    module = ModuleType("plait_mutant")
    exec(compile(source.replace(piece, replacement), "mutant", "exec"), module.__dict__)
    for name in module.__dict__["__all__"]:
        monkeypatch.setattr(torch_scan, name, module.__dict__[name])
    return "torch"


@pytest.mark.parametrize("mutant", MUTATIONS, indirect=True)
def test_parity_can_fail(mutant: str) -> None:
    scan = scan_of("tanh", "relevancy")
    found = []
    for ties in (False, True):
        case = Case(scan, steps=14, rows=4, carried=True, reset=True, ties=ties)
        problem = make_problem(case)
        expected = run(problem, scan, "reference")
        found += differences(expected, run(problem, scan, mutant), case.dtype)
    case = Case(scan, steps=24, rows=4, carried=True, reset=True, learned=True, noise=True, limited=True)
    problem = make_problem(case)
    found += differences(run(problem, scan, "reference"), run(problem, scan, mutant), case.dtype)
    assert found
