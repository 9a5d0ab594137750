"""The kernels of one step in CUDA C++: in the emulator, in a walk whose rest Triton's interpreter makes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from plait.ops.attentive_scan import cuda_steps
from plait.ops.attentive_scan.cuda_steps import STRUCTS, StepShape
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.scan import Scan

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")

from plait.ops.attentive_scan import triton_scan

RELEVANCY = {"window": 2, "capacity": 2}
UNIFORM = {"window": 2, "capacity": 2, "every": 2}


def case(
    kind: str, memory: dict[str, int], steps: int = 6, rows: int = 1, size: int = 8, **flags: object
) -> Case:
    scan = Scan(kind, **memory)  # type: ignore[arg-type]
    return Case(scan, steps=steps, rows=rows, size=size, **flags)  # type: ignore[arg-type]


SMALL = [
    case("elman", RELEVANCY, rows=2, carried=True, reset=True, nudge=True, strided=True),
    case("elman", RELEVANCY, steps=5, rows=2, ties=True, size=4),
    case("elman", RELEVANCY, steps=4, far=True),
    case("lstm", UNIFORM, rows=2, carried=True, reset=True, size=132),
    case("elman", {"window": 7, "capacity": 14}, steps=24),
    case("gru", {"window": 3}, steps=5, dtype=torch.bfloat16),
    case("elman", RELEVANCY, steps=9, rows=2, learned=True, noise=True, reset=True),
    case("lstm", RELEVANCY, steps=8, learned=True, carried=True, limited=True),
]
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU here"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp2"),  # as on a GPU, infinity is meant
]


def shape_of(way: str, scan: Scan, size: int, dtype: torch.dtype) -> StepShape:
    return StepShape(way, scan, size, dtype, warps=4 if size < 100 else 8)


class Emulated:
    """`cuda_steps` whose kernels run in the emulator."""

    def __init__(self, compile: Callable[..., ctypes.CDLL]) -> None:
        self.compile, self.seed = compile, 0
        found = {shape_of(way, c.scan, c.size, c.dtype) for way in STRUCTS for c in SMALL}  # type: ignore[arg-type]
        self.names = {shape: f"step_{n}" for n, shape in enumerate(sorted(found, key=str))}
        self.made = {way: self.library(way) for way in STRUCTS}

    def library(self, way: str, replaced: tuple[str, str] | None = None) -> ctypes.CDLL:
        wanted = {name: shape for shape, name in self.names.items() if shape.way == way}
        return self.compile("attentive_scan", way, STRUCTS[way][1], wanted, replaced, "steps")

    def launcher(self, shape: StepShape, device: object) -> Callable[[int, ctypes.Structure], None]:
        found = shape_of(shape.way, shape.scan, shape.hidden, shape.dtype)
        function = getattr(self.made[shape.way], f"run_{self.names[found]}")
        return lambda rows, given: function(ctypes.byref(given), self.seed)


@pytest.fixture(scope="module")
def compiled(emulated: Callable[..., ctypes.CDLL]) -> Emulated:
    return Emulated(emulated)


@pytest.fixture
def stepping(compiled: Emulated, monkeypatch: pytest.MonkeyPatch) -> Emulated:
    monkeypatch.setattr(triton_scan, "LARGEST_PERSISTENT", 0)
    monkeypatch.setattr(cuda_steps, "missing", lambda *_: None)
    monkeypatch.setattr(cuda_steps, "_launcher", compiled.launcher)
    return compiled


def compared(case: Case) -> list[str]:
    problem = make_problem(case, "cpu")
    return differences(run(problem, case.scan, "reference"), run(problem, case.scan, "triton"), case.dtype)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_it_equals_the_reference(case: Case, stepping: Emulated) -> None:
    for stepping.seed in range(2):
        assert compared(case) == []


@pytest.mark.parametrize(("index", "reach"), [(0, 24), (3, 43), (6, 64), (7, 200), (0, 128), (6, 8)])
def test_large_queries_and_keys(index: int, reach: int, stepping: Emulated) -> None:
    """Where e^{2q}, e^{2k} or their product alone would overflow, and gates saturate."""
    stepping.seed = 0
    assert compared(replace(SMALL[index], steps=2, carried=True, reach=float(reach))) == []


def test_what_they_do_not_run() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    assert cuda_steps.missing(Scan("lstm", 10, 10), 512, cpu) == "it needs a CUDA device, got cpu tensors"
    assert "40 slots of 512" in str(cuda_steps.missing(Scan("lstm", 20, 20), 512, cuda))
    assert "20 slots of 510" in str(cuda_steps.missing(Scan("lstm", 10, 10), 510, cuda))


# what is changed in the source, the kernel it is in, and which of SMALL shows it
MUTATIONS = {
    "the most relevant leaves": ("attend", "other < least ?", "other > least ?", 0),
    "a reset keeps the memory": ("attend", "if (lane < K::WIDTH && !cleared)", "if (lane < K::WIDTH)", 6),
    "credit to all": ("attend", "lane < S::WINDOW) credit += share", "lane < K::WIDTH) credit += share", 4),
    "the key of before": ("attend", "== turn ? mine : k[n]", "== -1 ? mine : k[n]", 0),
    "half of the slots": ("attend", "load4(sm + K::HALVES + K::H +", "load4(sm + K::HALVES +", 0),
    "no wait for scores": (
        "attend",
        "  barrier_sync(1, K::THREADS);\n  }\n\n  MEMBER f",
        "  }\n\n  MEMBER f",
        0,
    ),
    "no mean": ("unattend", "(d_share - sum_of_warp(share * d_share))", "d_share", 0),
    "given to nothing": ("unattend", "      if (!there_is) continue;\n", "", 0),
    "h_t reads itself": ("unattend", "if (id[n] == K::WIDTH + a.t) sums.own = state[n];", "", 0),
    "a reset lets through": ("unattend", "alive ? times", "true ? times", 6),
    "h_t has no worth": ("unattend", "mine = mad4(rated,", "mine = mad4(0.0f,", 6),
    "one half of the sums": ("unattend", "load4(halves + (3 + n) * K::H)", "load4(halves + n * K::H)", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_of_the_source_shows(name: str, stepping: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    way, old, new, shown_by = MUTATIONS[name]
    stepping.seed = 0
    assert compared(SMALL[shown_by]) == []
    monkeypatch.setitem(stepping.made, way, stepping.library(way, (old, new)))
    found = []
    for stepping.seed in range(3):
        try:
            found += compared(SMALL[shown_by])
        except AssertionError as error:  # the choices differ
            found.append(str(error))
    assert found
