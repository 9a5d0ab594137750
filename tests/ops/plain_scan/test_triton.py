"""The Triton kernels of the plain scan: in the interpreter on small shapes, on a GPU on real ones."""

from __future__ import annotations

import itertools

import pytest
import torch

from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.scan import PlainScan

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")
from plait.ops.plain_scan import triton_scan

MODRELU, GORU, LSTM = PlainScan("elman", "modrelu"), PlainScan("gru", "modrelu"), PlainScan("lstm")
EVERYTHING = {"carried": True, "reset": True, "nudge": True, "strided": True}
SMALL = [
    Case(MODRELU, steps=11, rows=2, **EVERYTHING),
    Case(MODRELU, steps=8, rows=1, size=33),
    Case(PlainScan("elman", "identity"), steps=1, rows=1),
    Case(PlainScan("elman", "relu"), steps=3, reset=True),
    Case(PlainScan("elman"), steps=9, dtype=torch.bfloat16),
    Case(GORU, steps=11, rows=2, **EVERYTHING),
    Case(PlainScan("gru"), steps=9, size=17),
    Case(LSTM, steps=11, rows=2, **EVERYTHING),
    Case(LSTM, steps=3, rows=0),
]
interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)


def compared(case: Case, device: str) -> list[str]:
    problem = make_problem(case, device)
    return differences(run(problem, case.scan, "reference"), run(problem, case.scan, "triton"), case.dtype)


@interpreted
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_parity_in_the_interpreter(case: Case) -> None:
    assert compared(case, "cpu") == []


@interpreted
@pytest.mark.parametrize("scan", [MODRELU, GORU, LSTM], ids=str)
def test_weights_that_do_not_stay_in_registers(scan: PlainScan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_scan, "MOST_RESIDENT", 0)
    triton_scan._shape.cache_clear()
    assert not triton_scan._shape(scan, 5)["RESIDENT"]
    assert compared(Case(scan, steps=6, rows=1), "cpu") == []
    triton_scan._shape.cache_clear()


@interpreted
@pytest.mark.parametrize("scan", [MODRELU, GORU, LSTM], ids=str)
def test_large_sizes_take_the_walk_in_plain_torch(scan: PlainScan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_scan, "LARGEST_PERSISTENT", 0)
    assert compared(Case(scan, **EVERYTHING), "cpu") == []  # type: ignore[arg-type]


@interpreted
@pytest.mark.parametrize("field", ["recurrent", "cells", "gates"])
def test_parity_can_fail(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose backward is given something slightly wrong is caught."""
    original = triton_scan.backward

    def perturbed(arriving, inputs, made, scan, nudged):  # type: ignore[no-untyped-def]
        if field in inputs._fields:
            inputs = inputs._replace(**{field: getattr(inputs, field) * 1.01})
        else:
            made = made._replace(**{field: getattr(made, field) * 1.01})
        return original(arriving, inputs, made, scan, nudged)

    monkeypatch.setattr(triton_scan, "backward", perturbed)
    assert compared(Case(LSTM, steps=5, rows=1), "cpu") != []


def test_unsupported_scans_give_a_reason() -> None:
    assert "float32 or bfloat16" in str(triton_scan.missing("cuda", torch.float64, "elman", 0, 128))
    assert triton_scan.missing("cuda", torch.bfloat16, "lstm", 0, 1024) is None


REAL = [
    *(
        Case(scan, steps=61, rows=5, size=size, **flags)
        for scan, size, flags in itertools.product(
            (MODRELU, GORU, LSTM, PlainScan("gru")),
            (100, 128, 200),
            ({"reset": True, "nudge": True}, {"carried": True, "strided": True}),
        )
    ),
    *(Case(PlainScan(cell, "tanh"), steps=20, rows=3, size=64) for cell in ("elman", "gru", "lstm")),
    Case(PlainScan("elman", "identity"), steps=8, rows=3, size=7),
    Case(PlainScan("elman", "relu"), steps=7, rows=3, size=33, reset=True),
    Case(MODRELU, steps=1, rows=1, size=128),
    Case(MODRELU, steps=200, rows=2, size=128),
    Case(PlainScan("elman"), steps=1020, rows=10, size=128),
    *(Case(scan, steps=17, rows=4, size=128, dtype=torch.bfloat16) for scan in (PlainScan("elman"), LSTM)),
]


@pytest.mark.gpu
@pytest.mark.parametrize("case", REAL, ids=str)
def test_parity_on_a_gpu(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    assert compared(case, "cuda") == []


@pytest.mark.gpu
def test_a_run_is_reproducible() -> None:
    """No float atomics: the same inputs give the same bits."""
    for size in (128, 256):
        problem = make_problem(Case(MODRELU, steps=50, rows=8, size=size), "cuda")
        first, second = run(problem, MODRELU, "triton"), run(problem, MODRELU, "triton")
        assert torch.equal(first.walked.output, second.walked.output)
        for name, gradient in first.gradients.items():
            if gradient is not None:
                assert torch.equal(gradient, second.gradients[name]), name
