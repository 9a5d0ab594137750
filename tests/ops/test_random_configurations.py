"""Every backend against the reference, in configurations nobody chose.

One step from the same state agrees within tolerance. Over many steps large weights amplify rounding, so that
only this is left: a backend is finite wherever the reference is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plait.ops.parity import differences, make_problem, not_finite, run
from plait.ops.parity_cases import random_case
from plait.ops.parity_problem import Problem, converted, draw
from plait.ops.scan.backends import missing

SAMPLE = range(10)
CONFIGURATIONS = range(300)
# the last of them runs in triton's interpreter, where a step takes as long as a hundred elsewhere
STEPS = {"cpu": 30, "torch": 30, "triton": 5}


def reason_not_to(seed: int, backend: str, device: str = "cpu") -> str | None:
    case = random_case(seed)
    width = case.scan.width if case.scan.width is not None else 0
    return missing(backend, device, case.dtype, case.scan.cell, width, case.size, case.scan.name)


def skip_unless_it_runs(seed: int, backend: str, device: str = "cpu") -> None:
    reason = reason_not_to(seed, backend, device)
    if reason or (backend == "triton" and device == "cpu" and torch.cuda.is_available()):
        pytest.skip(f"{backend}: {reason or 'it runs on the GPU here'}")


def failures(seed: int, backend: str, device: str = "cpu") -> list[str]:
    case = random_case(seed)
    problem = make_problem(case, device)
    expected, got = (run(problem, case.scan, name) for name in ("reference", backend))
    exact = run(converted(problem, torch.float64), case.scan, "reference")
    wrong = differences(expected, got, case.dtype, exact)
    longer = replace(case, steps=STEPS[backend] if device == "cpu" else 30)
    many: Problem = converted(draw(longer, torch.Generator().manual_seed(seed)), device)
    expected, got = (run(many, case.scan, name) for name in ("reference", backend))
    return wrong + [f"{name}: not finite, unlike the reference" for name in not_finite(expected, got)]


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("seed", SAMPLE)
def test_a_random_configuration(seed: int, backend: str) -> None:
    skip_unless_it_runs(seed, backend)
    assert failures(seed, backend) == [], random_case(seed)


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("seed", SAMPLE)
def test_a_random_configuration_of_avx2(seed: int) -> None:
    assert failures(seed, "cpu") == [], random_case(seed)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["triton", "cluster"])
@pytest.mark.parametrize("seed", range(30))
def test_a_random_configuration_on_a_gpu(seed: int, backend: str) -> None:
    skip_unless_it_runs(seed, backend, "cuda")
    assert failures(seed, backend, "cuda") == [], random_case(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # as on a GPU, infinity is meant
@pytest.mark.parametrize("backend", ["cpu", "torch", "triton"])
@pytest.mark.parametrize("seed", CONFIGURATIONS)
def test_random_configurations(seed: int, backend: str) -> None:
    skip_unless_it_runs(seed, backend)
    assert failures(seed, backend) == [], random_case(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("seed", CONFIGURATIONS)
def test_random_configurations_of_avx2(seed: int) -> None:
    assert failures(seed, "cpu") == [], random_case(seed)
