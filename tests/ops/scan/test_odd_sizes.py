"""Hidden sizes that are no multiple of anything, in Triton's interpreter: padded lanes, partial blocks."""

from __future__ import annotations

import itertools

import pytest
import torch

from plait.ops.parity import Case, differences, make_problem, run
from plait.ops.scan import CellScan, FullScan, PlainScan, Scan

pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the kernels run on the GPU here, not in the interpreter"
)
SIZES = (1, 2, 7, 31, 33, 96, 97, 100, 127, 129, 200, 255)
SCANS: list[CellScan] = [
    Scan("lstm", 3, 2),
    Scan("gru", 1, 1),
    Scan("elman", 2, 5, every=3),
    FullScan("lstm"),
    FullScan("elman", nonlinearity="relu"),
    PlainScan("gru", "modrelu"),
    PlainScan("lstm"),
]
QUICK = {(0, 97), (1, 255), (4, 100), (6, 31)}
CASES = [
    pytest.param(
        Case(scan, steps=4, rows=1, size=size, carried=size % 2 == 0),  # type: ignore[arg-type]
        marks=() if (n, size) in QUICK else pytest.mark.slow,
    )
    for (n, scan), size in itertools.product(enumerate(SCANS), SIZES)
    if not (isinstance(scan, FullScan) and size > 128)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity(case: Case) -> None:
    problem = make_problem(case)
    expected = run(problem, case.scan, "reference")
    assert differences(expected, run(problem, case.scan, "triton"), case.dtype) == []
