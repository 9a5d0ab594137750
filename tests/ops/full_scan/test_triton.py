"""The Triton kernels of the full memory: in the interpreter on small shapes, on a GPU on real ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import plait
from plait.errors import BackendError
from plait.ops import cuda_program
from plait.ops.full_scan import full_scan
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.parity_cases import reaching_cases, sampled
from plait.ops.scan import FullScan, choose_backend, record_backends
from plait.ops.scan.backends import _warn_once

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")

from plait.ops.full_scan import triton_kernels, triton_scan, triton_step_kernels, triton_steps

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
ELMAN = ("tanh", "relu", "modrelu", "identity")


def case(cell: str, steps: int = 6, rows: int = 1, mix: float = 0.5, **flags: object) -> Case:
    scan = FullScan("elman", mix, cell) if cell in ELMAN else FullScan(cell, mix)
    return Case(scan, steps=steps, rows=rows, **flags)  # type: ignore[arg-type]


# with tiles of eight positions, five initial slots and six steps cross two of them
SMALL = [
    case("tanh", rows=2, carried=True, reset=True, nudge=True, strided=True),
    case("tanh", steps=11, size=17),
    case("modrelu", steps=5, carried=True, nudge=True),
    case("lstm", carried=True, reset=True),
    case("lstm", steps=1, nudge=True),
    case("gru", carried=True, reset=True, nudge=True),
    case("lstm", steps=3, rows=0, reset=True),
]
# the interpreter takes seconds for each
MORE = [
    case("tanh", steps=5, far=True),
    case("tanh", steps=9, ties=True, mix=0.8),
    case("tanh", steps=19, size=17, reset=True),
    case("relu", steps=11, reset=True),
    case("identity", steps=1, carried=True),
    case("lstm", steps=19, size=33),
    case("lstm", steps=9, carried=True, dtype=torch.bfloat16),
    case("gru", steps=11, rows=2, reset=True),
]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_scan, "FORWARD_TILE", 8)
    monkeypatch.setattr(triton_scan, "BACKWARD_TILE", 8)


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk any size step by step; eleven positions are three blocks, which are combined two at a time."""
    monkeypatch.setattr(triton_scan, "LARGEST_PERSISTENT", 0)
    monkeypatch.setattr(triton_steps, "_TILE", {"POSITIONS": 4, "BLOCK": 16, "num_warps": 4})
    monkeypatch.setattr(triton_steps, "_AT_ONCE", 2)


@pytest.fixture
def poisoned(poison: Callable[..., None]) -> None:
    poison(torch.Tensor, "new_empty")


def compared(case: Case, device: str) -> list[str]:
    problem = make_problem(case, device)
    with record_backends() as ran:
        found = differences(
            run(problem, case.scan, "reference"), run(problem, case.scan, "triton"), case.dtype
        )
    assert ran == ["reference", "triton"]
    return found


@interpreted
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@pytest.mark.usefixtures("small_tiles", "poisoned")
@pytest.mark.parametrize(
    "case", [*SMALL, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_parity_in_the_interpreter(case: Case) -> None:
    assert compared(case, "cpu") == []


@interpreted
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")
@pytest.mark.usefixtures("stepwise", "poisoned")
@pytest.mark.parametrize(
    "case", [*SMALL, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_parity_by_steps_in_the_interpreter(case: Case) -> None:
    assert compared(case, "cpu") == []


@interpreted
@pytest.mark.usefixtures("stepwise", "poisoned")
def test_a_trace_by_steps() -> None:
    problem = make_problem(case("lstm", steps=7, carried=True, reset=True), "cpu")
    traces = [
        full_scan(
            problem.projected,
            problem.weights,
            problem.state,
            problem_scan,
            problem.reset,
            need_trace=True,
            backend=b,
        ).trace
        for b in ("reference", "triton")
        for problem_scan in [FullScan("lstm", 0.5)]
    ]
    for expected, got in zip(*traces, strict=True):
        torch.testing.assert_close(got, expected)


FULL = reaching_cases(["full"], dtypes=[torch.float32, torch.bfloat16], size=5)
REACHING = [
    replace(case("lstm", steps=2, carried=True), reach=200.0),
    *(pytest.param(case, marks=pytest.mark.slow) for case in sampled(FULL, 7)),
]


@interpreted
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@pytest.mark.usefixtures("small_tiles", "poisoned")
@pytest.mark.parametrize("case", REACHING, ids=str)
def test_large_queries_and_keys_in_the_interpreter(case: Case) -> None:
    """Where e^{2q}, e^{2k} or their product alone would overflow, and gates saturate."""
    assert compared(case, "cpu") == []


@interpreted
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@pytest.mark.usefixtures("stepwise", "poisoned")
@pytest.mark.parametrize("case", REACHING, ids=str)
def test_large_queries_and_keys_by_steps_in_the_interpreter(case: Case) -> None:
    assert compared(case, "cpu") == []


@pytest.mark.gpu
@pytest.mark.parametrize("case", sampled(FULL, 3), ids=str)
def test_large_queries_and_keys_on_a_gpu(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    assert compared(case, "cuda") == []


@interpreted
@pytest.mark.slow
@pytest.mark.parametrize("tiles", [(8, 16), (16, 8)], ids=str)
def test_tiles_of_two_sizes(tiles: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile that ends within the initial slots, one that ends within the steps, a reset within a tile."""
    monkeypatch.setattr(triton_scan, "FORWARD_TILE", tiles[0])
    monkeypatch.setattr(triton_scan, "BACKWARD_TILE", tiles[1])
    assert compared(case("lstm", steps=21, rows=1, carried=True, reset=True), "cpu") == []


@interpreted
@pytest.mark.slow
@pytest.mark.parametrize("cell", ["tanh", "lstm"])
def test_parity_in_the_tiles_of_the_device(cell: str) -> None:
    assert compared(case(cell, steps=70), "cpu") == []


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy warns where a NaN is meant to be
@pytest.mark.parametrize("way", ["small_tiles", "stepwise"])
def test_a_reset_ends_a_nan(way: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(way)
    layer, x = plait.MemRNN(3, 8, backend="triton"), torch.randn(12, 1, 3)
    x[4] = float("nan")
    reset = torch.zeros(12, 1, dtype=torch.bool)
    reset[6] = True
    output, _ = layer(x.requires_grad_(), reset=reset)
    assert output[4:6].isnan().all()
    alone, _ = layer(x[6:])
    torch.testing.assert_close(output[6:], alone)
    (d_x,) = torch.autograd.grad(output[6:].sum(), x)
    (d_alone,) = torch.autograd.grad(alone.sum(), x)
    torch.testing.assert_close(d_x[6:], d_alone[6:])


STEP_MUTATIONS = {
    "h_t not read": ("p <= initial + t", "p < initial + t"),
    "states that survive a reset": ("p >= tl.load(first", "p >= 0 * tl.load(first"),
    "empty slots that are read": ("other=0) >= 0)", "other=0) >= -1)"),
    "a running sum not faded": ("total = total * fade", "total = total"),
    "a context not faded": ("context = context * fade", "context = context"),
    "a maximum that stays": ("largest = larger", "largest = largest"),
    "a sign in the mix": ("(mix * (h + context", "(mix * (h - context"),
    "a mean from elsewhere": ("share * (d_share - mean)", "share * (d_share + mean)"),
    "the slope of the scores": ("0.25 * d_score", "0.2501 * d_score"),
    "sums that are lost": ("other=0.0) + spread", "other=0.0)"),
    "slopes that are lost": ("other=0.0) + slope", "other=0.0)"),
    "a block's slopes left out": ("slope += tl.sum(tile", "slope = tl.sum(tile"),
}


# what is broken: piece of the kernels' source, what stands there instead
MUTATIONS = {
    "h_t read twice": ("(p < here)", "(p <= here)"),
    "states that survive a reset": ("(p >= first)", "(p >= 0)"),
    "empty slots that are read": ("other=0) >= 0)", "other=0) >= -1)"),
    "a running sum not faded": ("mass = mass * fade", "mass = mass"),
    "a context not faded": ("context = context * fade", "context = context"),
    "a maximum that stays": ("most = larger", "most = most"),
    "a tile that is not moved on": ("_tile(states, further, next", "_tile(states, low + x, next"),
    "a state stored wrongly": ("_put(states, here * H, h,", "_put(states, here * H, -h,"),
    "a sign in the mix": ("(mix * (h + read", "(mix * (h - read"),
    "h_t gathers nothing of its own read": ("d_context + own_share * d_context", "d_context"),
    "no gradient past the context": ("d_context + own_share * d_context", "own_share * d_context"),
    "a mean from elsewhere": ("share * (d_share - mean)", "share * (d_share + mean)"),
    "the slope of the scores": ("(0.25 * d_score)", "(0.2501 * d_score)"),
    "own slope forgotten": ("(gathered_slope + own_slope)", "gathered_slope"),
    "a key's gradient forgotten": ("gathered += _product(key", "gathered += 0.0 * _product(key"),
    "v_a off by a thousandth": ("2.0 * tl.sum(d_v", "2.002 * tl.sum(d_v"),
    "sums that are lost": ("old_past, spread, W", "old_past, 0.0 * spread, W"),
    "slopes that are lost": ("old_slopes, slope, W", "old_slopes, 0.0 * slope, W"),
}


QUICK = ("a running sum not faded", "sums that are lost")


@pytest.fixture
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both kernels with one piece of their source replaced; Triton reads it from a file."""
    piece, replacement = MUTATIONS[request.param]
    source = Path(triton_kernels.__file__).read_text(encoding="utf-8")
    assert source.count(piece) == 1, f"{piece!r} must stand once in triton_kernels.py"
    path = tmp_path / "mutant_kernels.py"
    path.write_text(source.replace(piece, replacement), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutant_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in triton_kernels.__all__:
        monkeypatch.setattr(triton_scan, name, getattr(module, name))


# rows that begin with an empty slot and cross into a second tile, and rows that are reset
MUTATED = [case("tanh", rows=2, size=4, carried=True, reset=reset) for reset in (False, True)]


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a mutant may compute with what nobody wrote
@pytest.mark.usefixtures("mutant", "small_tiles", "poisoned")
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MUTATIONS],
    indirect=True,
)
def test_parity_can_fail() -> None:
    assert any(compared(case, "cpu") for case in MUTATED)


@pytest.fixture
def step_mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernels of a step with one piece of their source replaced."""
    piece, replacement = STEP_MUTATIONS[request.param]
    source = Path(triton_step_kernels.__file__).read_text(encoding="utf-8")
    assert source.count(piece) >= 1, f"{piece!r} must stand in triton_step_kernels.py"
    path = tmp_path / "mutant_step_kernels.py"
    path.write_text(source.replace(piece, replacement), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutant_step_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in triton_step_kernels.__all__:
        monkeypatch.setattr(triton_steps, name, getattr(module, name))


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("step_mutant", "stepwise", "poisoned")
@pytest.mark.parametrize(
    "step_mutant",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in STEP_MUTATIONS],
    indirect=True,
)
def test_parity_by_steps_can_fail() -> None:
    assert any(compared(case, "cpu") for case in MUTATED)


def test_unsupported_scans_give_a_reason() -> None:
    assert "float32 or bfloat16" in (triton_scan.missing("cuda", torch.float64, "elman", None, 128) or "")
    assert triton_scan.missing("cuda", torch.bfloat16, "lstm", None, 128) is None
    assert triton_scan.missing("cuda", torch.float32, "gru", None, 1000) is None
    with pytest.raises(BackendError, match="'triton' cannot run here: it computes in float32 or bfloat16"):
        plait.MemRNN(3, 8, backend="triton").double()(torch.randn(2, 1, 3, dtype=torch.float64))


@dataclass(frozen=True)
class Somewhere:
    """All that a choice of backend looks at."""

    device: torch.device
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


def test_auto_takes_it_on_cuda() -> None:
    def chosen(device: str, size: int, dtype: torch.dtype = torch.float32) -> str:
        there = Somewhere(torch.device(device), (7, 2, 4 * size), dtype)
        return choose_backend(there, FullScan("lstm"))  # type: ignore[arg-type]

    assert chosen("cuda", 128) == "triton"
    assert chosen("cuda", 5, torch.bfloat16) == "triton"
    assert chosen("cpu", 128) == "cpu"
    assert chosen("cuda", 512) == "triton"
    _warn_once.cache_clear()
    with pytest.warns(UserWarning, match="full_scan: backend 'triton' cannot run here: .* plain torch"):
        assert chosen("cuda", 128, torch.float64) == "torch"


REAL = [
    *(case(cell, steps, 10, size=128) for cell in ("tanh", "lstm") for steps in (120, 1020)),
    *(case(cell, 60, 5, size=128, reset=True, nudge=True) for cell in ("tanh", "lstm", "gru")),
    *(case(cell, 70, 5, size=100, carried=True, strided=True) for cell in ("modrelu", "lstm", "gru")),
    case("relu", 200, 3, size=33, reset=True),
    case("tanh", 65, 1, size=7, ties=True),
    case("lstm", 64, 3, size=128, dtype=torch.bfloat16),
]


@pytest.mark.gpu
@pytest.mark.parametrize("case", REAL, ids=str)
def test_parity_on_a_gpu(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    assert compared(case, "cuda") == []


@pytest.mark.gpu
@pytest.mark.parametrize("model", [plait.MemRNN, plait.MemLSTM])
def test_auto_takes_it_on_a_gpu(model) -> None:  # type: ignore[no-untyped-def]
    hopper = cuda_program.missing() is None
    for size in (128, 100):
        with record_backends() as ran:
            model(3, size).cuda()(torch.randn(40, 2, 3, device="cuda"))[0].sum().backward()
        assert ran == ["cluster" if hopper else "triton"]
    _warn_once.cache_clear()
    too_large = 300 if hopper else 160
    with record_backends() as ran, pytest.warns(UserWarning, match=f"features, got {too_large}"):
        model(3, too_large).cuda()(torch.randn(4, 2, 3, device="cuda"))
    assert ran == ["torch"]


@pytest.mark.gpu
def test_a_run_is_reproducible() -> None:
    """No atomics: the same inputs give the same bits."""
    here = case("lstm", 150, 8, size=128)
    problem = make_problem(here, "cuda")
    first, second = run(problem, here.scan, "triton"), run(problem, here.scan, "triton")
    assert torch.equal(first.walked.output, second.walked.output)
    for name, gradient in first.gradients.items():
        assert torch.equal(gradient, second.gradients[name]), name


@pytest.mark.gpu
def test_memory_grows_with_the_length() -> None:
    """Twice the steps take twice the memory: nothing T × T is kept."""
    peaks = []
    for steps in (1000, 2000):
        layer, x = plait.MemRNN(4, 64).cuda(), torch.randn(steps, 4, 4, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        layer(x)[0].sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 2.5 * peaks[0]
