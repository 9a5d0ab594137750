"""The Triton kernels against the definition: in the interpreter on small shapes, on a GPU on real ones."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plait.ops.attentive_scan import attentive_scan
from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.parity_cases import reaching_cases, sampled
from plait.ops.scan import Scan

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")

from plait.ops.attentive_scan import triton_kernels, triton_scan, triton_step_kernels, triton_steps

WINDOW = {"window": 3}
RELEVANCY = {"window": 2, "capacity": 2}
UNIFORM = {"window": 2, "capacity": 2, "every": 2}


def case(cell: str, memory: dict[str, int], steps: int = 6, rows: int = 1, **flags: object) -> Case:
    nonlinearity = cell if cell not in ("lstm", "gru") else "tanh"
    kind = cell if cell in ("lstm", "gru") else "elman"
    scan = Scan(kind, **memory, nonlinearity=nonlinearity)  # type: ignore[arg-type]
    return Case(scan, steps=steps, rows=rows, **flags)  # type: ignore[arg-type]


SMALL = [
    case("tanh", RELEVANCY, carried=True, reset=True, nudge=True, strided=True),
    case("tanh", RELEVANCY, steps=5, rows=2, ties=True),
    case("tanh", RELEVANCY, steps=4, far=True),
    case("relu", UNIFORM, reset=True),
    case("modrelu", RELEVANCY, nudge=True, carried=True),
    case("identity", WINDOW, steps=1, carried=True),
    case("lstm", RELEVANCY, carried=True, reset=True),
    case("lstm", UNIFORM, steps=3, nudge=True, size=17),
    case("gru", RELEVANCY, carried=True, reset=True, nudge=True),
    case("gru", WINDOW, steps=5, dtype=torch.bfloat16),
    case("lstm", RELEVANCY, steps=3, rows=0),
    case("tanh", RELEVANCY, steps=9, rows=2, learned=True, noise=True, reset=True),
    case("lstm", RELEVANCY, steps=8, learned=True, carried=True, limited=True),
    case("gru", RELEVANCY, steps=8, learned=True, noise=True, carried=True, nudge=True),
]
ways = pytest.mark.parametrize("way", ["persistent", "stepwise"])


@pytest.fixture
def walk_by(monkeypatch):
    """Both ways of walking take any size; the choice between them is a matter of speed."""

    def choose(way: str) -> None:
        monkeypatch.setattr(triton_scan, "LARGEST_PERSISTENT", 128 if way == "persistent" else 0)

    return choose


def compared(case: Case, device: str) -> list[str]:
    problem = make_problem(case, device)
    return differences(run(problem, case.scan, "reference"), run(problem, case.scan, "triton"), case.dtype)


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@ways
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_parity_in_the_interpreter(case, way, walk_by):
    walk_by(way)
    assert compared(case, "cpu") == []


MANY_SLOTS = [
    case("lstm", {"window": 40, "capacity": 30}, steps=3, rows=2, carried=True, reset=True, size=7),
    case("gru", {"window": 2, "capacity": 68}, steps=5, learned=True, noise=True, carried=True, size=5),
    case("tanh", {"window": 3, "capacity": 500, "every": 2}, steps=4, carried=True, nudge=True, size=3),
]


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
@pytest.mark.parametrize("case", MANY_SLOTS, ids=str)
def test_more_slots_than_a_persistent_kernel_holds_walk_by_steps(case):
    assert case.scan.width > triton_scan.LARGEST_PERSISTENT_WIDTH
    assert compared(case, "cpu") == []


BOUNDED = reaching_cases(["window", "relevancy", "uniform"], dtypes=[torch.float32, torch.bfloat16], size=5)
REACHING = [
    *(replace(case("lstm", RELEVANCY, carried=True), steps=2, reach=reach) for reach in (24.0, 200.0)),
    *(pytest.param(case, marks=pytest.mark.slow) for case in sampled(BOUNDED, 11)),
]


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@ways
@pytest.mark.parametrize("case", REACHING, ids=str)
def test_large_queries_and_keys_in_the_interpreter(case, way, walk_by):
    """Where e^{2q}, e^{2k} or their product alone would overflow, and gates saturate."""
    walk_by(way)
    assert compared(case, "cpu") == []


@pytest.mark.gpu
@ways
@pytest.mark.parametrize("case", sampled(BOUNDED), ids=str)
def test_large_queries_and_keys_on_a_gpu(case, way, walk_by):
    torch.backends.cuda.matmul.allow_tf32 = False
    walk_by(way)
    assert compared(case, "cuda") == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy warns of what is meant here
@pytest.mark.parametrize(
    ("way", "module", "piece", "product"),
    [
        (
            "persistent",
            triton_kernels,
            "tl.exp2(q[None, :, None, :] + keys)",
            "tl.exp2(q[None, :, None, :]) * tl.exp2(keys)",
        ),
        (
            "stepwise",
            triton_step_kernels,
            "tl.exp2(_scaled(q[None, :] + tile))",
            "tl.exp2(_scaled(q))[None, :] * tl.exp2(_scaled(tile))",
        ),
    ],
)
def test_a_product_of_exponentials_shows(way, module, piece, product, walk_by, monkeypatch, tmp_path):
    walk_by(way)
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert piece in source
    path = tmp_path / "product_kernels.py"
    path.write_text(source.replace(piece, product), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("product_kernels", path)
    changed = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "product_kernels", changed)
    spec.loader.exec_module(changed)
    for name in module.__all__:
        monkeypatch.setattr(
            triton_scan if way == "persistent" else triton_steps, name, getattr(changed, name)
        )
    moderate = replace(case("lstm", RELEVANCY, carried=True), steps=2, reach=1.0)
    assert compared(moderate, "cpu") == []
    assert compared(replace(moderate, reach=200.0), "cpu") != []


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
@ways
@pytest.mark.parametrize("field", ["weights", "prev_states"])
def test_parity_can_fail(way, field, walk_by, monkeypatch):
    """A kernel whose backward is given something slightly wrong is caught."""
    walk_by(way)
    original = triton_scan.backward

    def perturbed(arriving, inputs, made, scan, nudged):
        wrong = made._replace(**{field: getattr(made, field) * 1.01})
        return original(arriving, inputs, wrong, scan, nudged)

    monkeypatch.setattr(triton_scan, "backward", perturbed)
    assert compared(SMALL[0], "cpu") != []


def test_unsupported_scans_give_a_reason():
    assert "float32 or bfloat16" in triton_scan.missing("cuda", torch.float64, "elman", 20, 128)
    assert "2048 slots" in triton_scan.missing("cuda", torch.float32, "elman", 2049, 128)
    assert triton_scan.missing("cuda", torch.float32, "elman", 512, 128) is None
    assert triton_scan.missing("cuda", torch.bfloat16, "lstm", 20, 1024) is None


REAL = [
    Case(Scan(cell, 10, capacity, every, nonlinearity=nonlinearity), steps=60, rows=5, size=size, **flags)
    for (cell, nonlinearity), (capacity, every), size, flags in itertools.chain(
        itertools.product(
            [("elman", "tanh"), ("lstm", "tanh"), ("gru", "tanh")],
            [(10, None), (0, None), (6, 3)],
            [100, 128, 200],
            [{"reset": True, "nudge": True}, {"carried": True}],
        ),
        [
            (("elman", "modrelu"), (10, None), 128, {"carried": True, "strided": True}),
            (("elman", "relu"), (10, None), 33, {"reset": True}),
            (("elman", "identity"), (2, None), 7, {"ties": True}),
            # a plain window: among many states of 8 bits no draw keeps every choice apart
            (("lstm", "tanh"), (0, None), 128, {"dtype": torch.bfloat16}),
            (("elman", "tanh"), (0, None), 256, {"dtype": torch.bfloat16}),
            (("lstm", "tanh"), (54, None), 64, {}),
            (("lstm", "tanh"), (190, None), 100, {"carried": True}),
            (("gru", "tanh"), (500, None), 33, {"reset": True}),
        ],
    )
]


@pytest.mark.gpu
@pytest.mark.parametrize("case", REAL, ids=str)
def test_parity_on_a_gpu(case):
    torch.backends.cuda.matmul.allow_tf32 = False
    assert compared(case, "cuda") == []


@pytest.mark.gpu
def test_a_run_is_reproducible():
    """No float atomics: the same inputs give the same bits."""
    scan = Scan("lstm", 10, 10)
    for size in (128, 256):
        problem = make_problem(Case(scan, steps=50, rows=8, size=size), "cuda")
        first, second = run(problem, scan, "triton"), run(problem, scan, "triton")
        assert torch.equal(first.walked.output, second.walked.output)
        for name, gradient in first.gradients.items():
            assert torch.equal(gradient, second.gradients[name]), name


@pytest.mark.gpu
def test_two_walks_of_one_shape_before_their_backward_passes():
    """The buffers of a CUDA graph are not what a later backward pass reads."""
    scan = Scan("elman", 5, 5)
    problems = [make_problem(Case(scan, steps=20, rows=4, size=160, nudge=flag), "cuda") for flag in (0, 1)]
    problems = [p._replace(nudge=None) for p in problems]
    problems[1] = problems[1]._replace(projected=(problems[1].projected.detach() * 2).requires_grad_())
    alone = [run(p, scan, "triton").gradients["projected"] for p in problems]
    walked = [attentive_scan(p.projected, p.weights, p.state, scan, backend="triton") for p in problems]
    reference = [attentive_scan(p.projected, p.weights, p.state, scan, backend="reference") for p in problems]
    for p, ours, theirs in zip(problems, walked, reference, strict=True):
        mine = torch.autograd.grad(ours.output.sum(), p.projected)[0]
        torch.testing.assert_close(
            mine, torch.autograd.grad(theirs.output.sum(), p.projected)[0], atol=2e-5, rtol=1e-4
        )
    assert not torch.equal(alone[0], alone[1])
