"""Inputs for parity tests, for any backend: large queries and keys.

tanh(q + k) is flat for most of what a score can be given, and that is where a backend that computes it from
e^{2q} and e^{2k} meets overflow: of either exponential, or of their product alone. `reaching_cases` lists
cases in which |q| and |k| grow to `reach` and |q + k| to twice that, with all signs; gates saturate too.

Any backend is compared with the reference as with any other case::

    @pytest.mark.parametrize("case", sampled(reaching_cases()), ids=str)
    def test_parity_of_large_scores(case: Case) -> None:
        problem = make_problem(case)  # or make_problem(case, "cuda")
        expected = run(problem, case.scan, "reference")
        assert differences(expected, run(problem, case.scan, "triton"), case.dtype) == []

A harness of its own (the emulator, a streamed step) takes `problem.inputs()` or the fields of the problem.
Choose by `memories`, `cells` and `dtypes` what the backend can run, `sampled` for a suite that must be quick.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch

from plait.ops.parity import AnyScan, Case
from plait.ops.scan import FullScan, Scan

__all__ = ["CELLS", "MEMORIES", "REACHES", "reaching_cases", "sampled"]

CELLS = ("tanh", "relu", "modrelu", "identity", "lstm", "gru")
MEMORIES = ("window", "relevancy", "uniform", "full")
# log(max) of float32 is 88.7: an e^{2k} overflows from |k| = 44.4, a product of two where |q + k| reaches that
REACHES = (1, 8, 21, 24, 32, 43, 64, 128, 200)
# in 16 bits: powers of two, by which a product is exact
_EXACT_REACHES = (1, 8, 16, 32, 64, 128, 256)
# in float64 log(max) is 709.8
_DOUBLE_REACHES = (*REACHES, 170, 250, 345, 500)


def reaching_cases(
    memories: Iterable[str] = MEMORIES,
    cells: Iterable[str] = CELLS,
    dtypes: Iterable[torch.dtype] = (torch.float32, torch.float64, torch.bfloat16, torch.float16),
    size: int = 17,
) -> list[Case]:
    """Return a case for every memory, cell, type and reach; the memory is full of states within ±1."""
    return [
        Case(
            _scan(cell, memory),
            # a state of 16 bits that is off by its last bit moves a key of the next step by whole units
            steps=1 if dtype.itemsize == 2 else 3,
            size=size,
            dtype=dtype,
            carried=True,
            reach=float(reach),
        )
        for memory, cell, dtype in itertools.product(tuple(memories), tuple(cells), tuple(dtypes))
        for reach in _reaches(dtype)
    ]


def sampled(cases: list[Case], one_of: int = 7) -> list[Case]:
    """Return every `one_of`-th case, evenly over the list.

    >>> len(sampled(reaching_cases(memories=["full"], cells=["tanh"])))
    6
    """
    return cases[::one_of]


def _reaches(dtype: torch.dtype) -> tuple[int, ...]:
    if dtype.itemsize == 2:
        return _EXACT_REACHES
    return _DOUBLE_REACHES if dtype == torch.float64 else REACHES


def _scan(cell: str, memory: str) -> AnyScan:
    kind, nonlinearity = (cell, "tanh") if cell in ("lstm", "gru") else ("elman", cell)
    if memory == "full":
        return FullScan(kind, nonlinearity=nonlinearity)
    capacity = 0 if memory == "window" else 3
    return Scan(
        kind, window=4, capacity=capacity, every=2 if memory == "uniform" else None, nonlinearity=nonlinearity
    )
