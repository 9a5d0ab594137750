"""Parity of a backend with the reference: one harness for the tests and the benchmarks.

Discrete choices (the state in each slot) are compared exactly and first; then outputs, final state, trace and
every gradient, within one tolerance per type.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype, scores
from plait.ops.parity_problem import AnyScan, Case, Problem, converted, draw, run_scan
from plait.ops.scan import PlainScan, Scan, ScanWeights
from plait.ops.slots import ages_before
from plait.ops.walk import LayerResult

__all__ = [
    "TOLERANCE",
    "Case",
    "ParityResult",
    "Problem",
    "differences",
    "make_problem",
    "narrowest_choice",
    "not_finite",
    "run",
]

# largest |difference| allowed, relative to the largest |value| of the tensor (at least 1)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 6e-2, torch.float16: 1e-2}
# a choice between two states is only compared where their relevance differs by more than this
MARGIN = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
# relu and modrelu are only compared where no argument is closer to their kink than this
KINK_MARGIN = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


class ParityResult(NamedTuple):
    """A backend's results on a problem: the walk, and every gradient of one scalar of all outputs."""

    walked: LayerResult
    gradients: dict[str, Tensor | None]


def make_problem(case: Case, device: torch.device | str = "cpu", attempts: int = 200) -> Problem:
    """Return random inputs on which no choice between two states is close enough for rounding to change."""
    for seed in range(attempts):
        problem = draw(case, torch.Generator().manual_seed(seed))
        margin = MARGIN[case.dtype] * (case.scale if case.learned else 1.0)
        apart = case.ties or narrowest_choice(problem, case.scan) > margin
        if not apart or _nearest_kink(problem, case.scan) <= KINK_MARGIN[case.dtype] * case.scale:
            continue
        if not case.reach or _is_well_conditioned(problem, case.scan, case.dtype):
            return converted(problem, device)
    raise AssertionError(f"{case}: no draw of {attempts} keeps its choices apart")


def run(problem: Problem, scan: AnyScan, backend: str, new: bool = False) -> ParityResult:
    """Run forward with a trace, and backward from output, final hidden, cell state and slots together.

    With `new` no state is passed, as by a caller that starts a sequence.
    """
    projected, weights, state = problem[:3]
    walked = run_scan(projected, weights, None if new else state, scan, *problem[3:], True, backend)
    end = walked.state
    generator = torch.Generator().manual_seed(7)
    total = projected.new_zeros((), dtype=torch.float64)
    for part in (walked.output, end.hidden, end.cell_state, end.memory.slots):
        if part is not None:
            cotangent = torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.device)
            total = total + (part.double() * cotangent).sum()
    leaves = problem.leaves()
    if new:
        leaves = {name: x for name, x in leaves.items() if name not in ("hidden", "cell_state", "slots")}
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return ParityResult(walked, dict(zip(leaves, gradients, strict=True)))


def differences(
    expected: ParityResult, got: ParityResult, dtype: torch.dtype, exact: ParityResult | None = None
) -> list[str]:
    """Return a line for each difference, none if all agrees; discrete choices alone if these differ.

    With `exact`, the reference in float64, errors are measured against it, and four times the error of
    `expected` is allowed on top of the tolerance: with large weights its own rounding may exceed that. A
    gradient is a sum over states, whose rounding is relative to the largest of them.
    """
    a, b = expected.walked, got.walked
    assert a.trace is not None
    assert b.trace is not None
    discrete = {
        "trace.born": (a.trace.born, b.trace.born),
        "born": (a.state.memory.born, b.state.memory.born),
        "age": (a.state.memory.age, b.state.memory.age),
    }
    wrong = [name for name, (x, y) in discrete.items() if x.dtype != y.dtype or not torch.equal(x, y)]
    if wrong:
        return [f"{name}: choices differ" for name in wrong]
    floats = _floats(got)
    exacts, largest = {}, 1.0
    if exact is not None and exact.walked.output.numel():
        exacts, largest = _floats(exact), max(1.0, exact.walked.output.abs().max().item())
    return [
        line
        for name, x in _floats(expected).items()
        if (line := _difference(name, x, floats[name], TOLERANCE[dtype], exacts.get(name), largest))
    ]


def not_finite(expected: ParityResult, got: ParityResult) -> list[str]:
    """Return the names of tensors that are finite in `expected` but not in `got`.

    Outputs are compared up to the first step at which the reference comes close to overflow, everything else
    only if it never does: close to overflow, a sum in another order may overflow one step earlier.
    """
    output = expected.walked.output
    limit = 1e-4 * torch.finfo(accumulation_dtype(output.dtype)).max
    known = (output.flatten(1).abs().double() < limit).all(dim=1).cumprod(dim=0).bool()
    if not got.walked.output[known].isfinite().all():
        return ["output"]
    if not all(x is None or bool((x.abs().double() < limit).all()) for x in _floats(expected).values()):
        return []
    return [name for name, x in _floats(got).items() if x is not None and not x.isfinite().all()]


def _floats(result: ParityResult) -> dict[str, Tensor | None]:
    """Return every floating tensor of an result by name."""
    walked = result.walked
    assert walked.trace is not None
    return {
        "output": walked.output,
        "hidden": walked.state.hidden,
        "cell_state": walked.state.cell_state,
        "slots": walked.state.memory.slots,
        "relevance": walked.state.memory.relevance,
        "trace.weights": walked.trace.weights,
        "trace.relevance": walked.trace.relevance,
        **{f"d {name}": gradient for name, gradient in result.gradients.items()},
    }


def _is_well_conditioned(problem: Problem, scan: AnyScan, dtype: torch.dtype) -> bool:
    """Return whether the reference itself is within a tenth of the tolerance of float64.

    A large |k| multiplies the rounding of a state, so two correct backends may differ where q + k is near 0.
    """
    exact = _floats(run(converted(problem, torch.float64), scan, "reference"))
    return all(
        x is None or not x.numel() or _relative_error(exact[name], x) <= TOLERANCE[dtype] / 10
        for name, x in _floats(run(problem, scan, "reference")).items()
    )


def narrowest_choice(problem: Problem, scan: AnyScan) -> float:
    """Return the least |relevance of a leaving state − least relevance kept| over the reference's choices."""
    if not scan.screens:
        return float("inf")
    assert isinstance(scan, Scan)
    assert isinstance(problem.weights, ScanWeights)
    memory, worth, steps = problem.state.memory, problem.weights.worth, len(problem.projected)
    with torch.no_grad():
        trace = run_scan(*problem[:3], scan, *problem[3:], True, "reference").trace
    assert trace is not None
    # a step starts from the memory that the previous one left
    first = memory.relevance if worth is None else scores(memory.slots, worth)
    relevance = torch.cat([first.unsqueeze(0), trace.relevance[:-1]])
    full = (torch.cat([memory.born.unsqueeze(0), trace.born[:-1]]) >= 0).all(dim=2)
    if problem.reset is not None:
        full &= ~problem.reset
    places = (ages_before(memory.age, problem.reset, steps) % scan.window).unsqueeze(2)
    gap = (relevance.gather(2, places) - relevance[:, :, scan.window :]).abs().amin(dim=2)[full]
    return gap.min().item() if len(gap) else float("inf")


def _nearest_kink(problem: Problem, scan: AnyScan) -> float:
    """Return how close a scan comes to where the slope of relu or modrelu jumps (or modrelu itself, at 0).

    For a scan with a memory this is known for a single step only.
    """
    known = isinstance(scan, PlainScan) or len(problem.projected) == 1
    kinked = scan.cell != "lstm" and scan.nonlinearity in ("relu", "modrelu")
    if not known or not kinked or not len(problem.state.hidden):
        return float("inf")
    with torch.no_grad():
        output = run_scan(*problem[:3], scan, *problem[3:], False, "reference").output
        before = torch.cat([problem.state.hidden.unsqueeze(0), output[:-1]])
        if problem.reset is not None:
            before.masked_fill_(problem.reset.unsqueeze(2), 0)
        z, recurred = problem.projected.double(), before.double() @ problem.weights.recurrent.double().t()
        if scan.cell == "gru":
            size = output.shape[2]
            r = torch.sigmoid(z[..., :size] + recurred[..., :size])
            bias = problem.weights.candidate_bias
            inner = recurred[..., 2 * size :] + (0 if bias is None else bias.double())
            z, recurred = z[..., 2 * size :], r * inner
        size_of_z, bias = (z + recurred).abs(), problem.weights.modrelu_bias
        if bias is None:
            return size_of_z.min().item()
        # above 0 modrelu's bias is a jump at 0, below 0 a flat piece up to |b|
        return torch.where(bias > 0, size_of_z, (size_of_z + bias.double()).abs()).min().item()


def _difference(
    name: str,
    x: Tensor | None,
    y: Tensor | None,
    tolerance: float,
    exact: Tensor | None = None,
    at_least: float = 1.0,
) -> str | None:
    if x is None or y is None:
        # a gradient that never arises may be absent or zero
        other = y if x is None else x
        return None if other is None or not other.any() else f"{name}: one has it, the other has not"
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype} {tuple(x.shape)} and {y.dtype} {tuple(y.shape)}"
    if not x.numel():
        return None
    if exact is not None:
        # the reference itself overflows here, so there is nothing to compare
        finite = x.isfinite()
        exact, x, y = (tensor[finite] for tensor in (exact, x, y))
        if not x.numel():
            return None
        tolerance += 4 * _relative_error(exact, x, at_least)
    worst = _relative_error(x if exact is None else exact, y, at_least)
    return None if worst <= tolerance else f"{name}: off by {worst:.2e}, allowed {tolerance:.1g}"


def _relative_error(expected: Tensor | None, got: Tensor, at_least: float = 1.0) -> float:
    """Return the largest |difference|, relative to the largest expected |value| or `at_least` that."""
    if expected is None:
        return got.abs().max().item()
    x = expected.double()
    return (x - got.double()).abs().max().item() / max(at_least, x.abs().max().item())
