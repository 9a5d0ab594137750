"""Inputs for parity tests, for any backend: large queries and keys.

tanh(q + k) is flat over most of its range, and there a backend that computes it from e^{2q} and e^{2k} meets
overflow: of either exponential, or of their product alone. `reaching_cases` lists
cases in which |q| and |k| grow to `reach` and |q + k| to twice that, with all signs; gates saturate too.

Any backend is compared with the reference as with any other case::

    @pytest.mark.parametrize("case", sampled(reaching_cases()), ids=str)
    def test_parity_of_large_scores(case: Case) -> None:
        problem = make_problem(case)  # or make_problem(case, "cuda")
        expected = run(problem, case.scan, "reference")
        assert differences(expected, run(problem, case.scan, "triton"), case.dtype) == []

Another harness (the emulator, a streamed step) takes `problem.inputs()` or the fields of the problem.
Restrict `memories`, `cells` and `dtypes` to those the backend can run; `sampled` keeps a suite quick.

`random_case` draws any configuration, with weights scaled by 0.01 to 30.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import torch

from plait.ops.parity_problem import AnyScan, Case
from plait.ops.scan import FullScan, PlainScan, Scan

__all__ = ["CELLS", "MEMORIES", "REACHES", "random_case", "reaching_cases", "sampled"]

CELLS = ("tanh", "relu", "modrelu", "identity", "lstm", "gru")
MEMORIES = ("window", "relevancy", "uniform", "full")
# in float32 e^{2k} overflows from |k| = 44.4 on, and e^{2q} e^{2k} from |q + k| = 44.4 on
REACHES = (1, 8, 21, 24, 32, 43, 64, 128, 200)
# for 16 bits: powers of two, so that products are exact
_EXACT_REACHES = (1, 8, 16, 32, 64, 128, 256)
# for float64, where it overflows from 354.9 on
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
            # a state's rounding error times reach is the error of a key in the next step
            steps=3 if torch.finfo(dtype).eps * reach < 2e-6 else 1,
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


def random_case(seed: int) -> Case:
    """Return a random scan for one step: cell, memory, type, size and conditions.

    Over more steps (`dataclasses.replace(case, steps=...)`) large weights amplify rounding until the results
    of two correct backends are unrelated.

    >>> str(random_case(3)) == str(random_case(3)) != str(random_case(4))
    True
    """
    rng = random.Random(seed)
    scan = _random_scan(rng)
    screens, bounded = scan.screens, isinstance(scan, Scan)
    learned = screens and rng.random() < 0.4
    return Case(
        scan,
        steps=1,
        rows=rng.choice((1, 2, 3, 7)),
        size=rng.randint(1, 40),
        dtype=rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)),
        carried=rng.random() < 0.8,
        reset=rng.random() < 0.3,
        nudge=rng.random() < 0.3,
        strided=rng.random() < 0.2,
        learned=learned,
        noise=learned and rng.random() < 0.5,
        limited=bounded and rng.random() < 0.2,
        scale=10 ** rng.uniform(-2, math.log10(30)),
    )


def _random_scan(rng: random.Random) -> AnyScan:
    cell, memory = rng.choice(CELLS), rng.choice((*MEMORIES, "relevancy", "plain"))
    kind, nonlinearity = (cell, "tanh") if cell in ("lstm", "gru") else ("elman", cell)
    mix = rng.choice((0.5, 0.5, 0.8, 1.0))
    if memory == "plain":
        return PlainScan(kind, rng.choice(CELLS[:4]) if kind == "gru" else nonlinearity)
    if memory == "full":
        return FullScan(kind, mix, nonlinearity)
    capacity = 0 if memory == "window" else rng.randint(1, 5)
    every = rng.randint(1, 4) if memory == "uniform" else None
    return Scan(kind, rng.randint(1, 8), capacity, every, mix, nonlinearity)


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
