"""Does a backend do what the reference does? One harness for the tests and for the benchmarks.

Discrete choices (which state each slot holds) are compared exactly and first; then outputs, final state,
trace and every gradient, within one tolerance per type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype, scores
from plait.ops.attentive_scan import attentive_scan
from plait.ops.full_scan import full_scan
from plait.ops.plain_scan import plain_scan
from plait.ops.scan import FullScan, PlainScan, PlainWeights, Scan, ScanWeights
from plait.ops.scan.contract import Inputs
from plait.ops.slots import MemoryState, ages_before, empty_memory
from plait.ops.walk import LayerResult, LayerState

__all__ = [
    "TOLERANCE", "Case", "Outcome", "Problem", "differences", "make_problem", "narrowest_choice", "run",
]  # fmt: skip

AnyScan = Scan | FullScan | PlainScan
# largest |difference| allowed, relative to the largest |value| of the tensor (at least 1)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 6e-2, torch.float16: 1e-2}
# a choice between two states is only compared where their relevance differs by more than this
MARGIN = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
# relu and modrelu are only compared where no argument is closer to their kink than this
KINK_MARGIN = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@dataclass(frozen=True)
class Case:
    """A scan and the sizes and circumstances it is run in.

    `carried`: the state has a past; `ties`: all energies are equal; `strided`: no tensor is contiguous;
    `far`: queries and keys so large that e^{2k} overflows; `learned`: relevance is; `noise`: and noisy;
    `limited`: no element of dL/ds_t may exceed half of what arrives; `new`: nothing came before, s_0 is zero.
    `reach`: the largest |q| and |k| of states within ±1; gates saturate. `plait.ops.parity_cases` lists such
    cases.
    """

    scan: AnyScan
    steps: int = 7
    rows: int = 2
    size: int = 5
    dtype: torch.dtype = torch.float32
    carried: bool = False
    reset: bool = False
    nudge: bool = False
    ties: bool = False
    strided: bool = False
    far: bool = False
    learned: bool = False
    noise: bool = False
    limited: bool = False
    new: bool = False
    reach: float = 0.0

    def __str__(self) -> str:
        scan, memory = self.scan, _memory_name(self.scan)
        cell = scan.nonlinearity if scan.cell == "elman" else scan.cell
        if scan.cell == "gru" and scan.nonlinearity != "tanh":
            cell = f"gru-{scan.nonlinearity}"
        names = ("carried", "reset", "nudge", "ties", "strided", "far", "learned", "noise", "limited", "new")
        flags = [n for n in names if getattr(self, n)]
        sizes = f"T{self.steps}B{self.rows}H{self.size}" + (
            f"w{scan.window}" if isinstance(scan, Scan) else ""
        )
        if self.reach:
            flags.append(f"reach{self.reach:g}")
        return "-".join([cell, memory, sizes, str(self.dtype).removeprefix("torch."), *flags])


class Problem(NamedTuple):
    """Everything a scan is given; the floating tensors are leaves that ask for gradients."""

    projected: Tensor
    weights: ScanWeights | PlainWeights
    state: LayerState
    reset: Tensor | None
    nudge: Tensor | None
    noise: Tensor | None
    grad_limit: Tensor | None
    usage: Tensor | None

    def inputs(self) -> Inputs:
        """The same as the one value that backends are handed."""
        return Inputs.of(
            self.projected, self.weights, self.state, self.reset, self.nudge, self.noise, self.grad_limit,
            self.usage,
        )  # fmt: skip

    def leaves(self) -> dict[str, Tensor]:
        """What a gradient is compared for, by name."""
        named = {
            "projected": self.projected,
            **self.weights._asdict(),
            "hidden": self.state.hidden,
            "cell_state": self.state.cell_state,
            "slots": self.state.memory.slots,
            "nudge": self.nudge,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}


class Outcome(NamedTuple):
    """What a backend made of a problem: the walk, and every gradient of one scalar of all outputs."""

    walked: LayerResult
    gradients: dict[str, Tensor | None]


def make_problem(case: Case, device: torch.device | str = "cpu", attempts: int = 200) -> Problem:
    """Random inputs on which no choice between two states is closer than rounding could turn it."""
    for seed in range(attempts):
        problem = _draw(case, torch.Generator().manual_seed(seed))
        apart = case.ties or narrowest_choice(problem, case.scan) > MARGIN[case.dtype]
        if not apart or _nearest_kink(problem, case.scan) <= KINK_MARGIN[case.dtype]:
            continue
        if not case.reach or _is_well_conditioned(problem, case.scan, case.dtype):
            return _converted(problem, device)
    raise AssertionError(f"{case}: no draw of {attempts} keeps its choices apart")


def run(problem: Problem, scan: AnyScan, backend: str, new: bool = False) -> Outcome:
    """Forward with a trace, and backward from output, final hidden, cell state and slots together; `new`:
    without a state, as a caller says that nothing came before."""
    projected, weights, state = problem[:3]
    walked = _walked(projected, weights, None if new else state, scan, *problem[3:], True, backend)
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
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return Outcome(walked, dict(zip(leaves, found, strict=True)))


def differences(expected: Outcome, got: Outcome, dtype: torch.dtype) -> list[str]:
    """What differs, one line each, nothing if all agrees; discrete choices alone if these differ."""
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
    return [
        line
        for name, x in _floats(expected).items()
        if (line := _difference(name, x, floats[name], TOLERANCE[dtype]))
    ]


def _floats(outcome: Outcome) -> dict[str, Tensor | None]:
    """Return every floating tensor of an outcome by name."""
    walked = outcome.walked
    assert walked.trace is not None
    return {
        "output": walked.output,
        "hidden": walked.state.hidden,
        "cell_state": walked.state.cell_state,
        "slots": walked.state.memory.slots,
        "relevance": walked.state.memory.relevance,
        "trace.weights": walked.trace.weights,
        "trace.relevance": walked.trace.relevance,
        **{f"d {name}": gradient for name, gradient in outcome.gradients.items()},
    }


def _is_well_conditioned(problem: Problem, scan: AnyScan, dtype: torch.dtype) -> bool:
    """Return whether the reference itself keeps a tenth of the tolerance against float64.

    A large |k| multiplies the rounding of a state, so two correct backends may differ where q + k is near 0.
    """
    exact = _floats(run(_converted(problem, torch.float64), scan, "reference"))
    return all(
        x is None or not x.numel() or _relative_error(exact[name], x) <= TOLERANCE[dtype] / 10
        for name, x in _floats(run(problem, scan, "reference")).items()
    )


def narrowest_choice(problem: Problem, scan: AnyScan) -> float:
    """The least |relevance of a leaving state − least relevance kept| over all choices of the reference."""
    if not scan.screens:
        return float("inf")
    assert isinstance(scan, Scan)
    assert isinstance(problem.weights, ScanWeights)
    memory, worth, steps = problem.state.memory, problem.weights.worth, len(problem.projected)
    with torch.no_grad():
        trace = _walked(*problem[:3], scan, *problem[3:], True, "reference").trace
    assert trace is not None
    # what a step finds is what the one before it left
    first = memory.relevance if worth is None else scores(memory.slots, worth)
    relevance = torch.cat([first.unsqueeze(0), trace.relevance[:-1]])
    full = (torch.cat([memory.born.unsqueeze(0), trace.born[:-1]]) >= 0).all(dim=2)
    if problem.reset is not None:
        full &= ~problem.reset
    places = (ages_before(memory.age, problem.reset, steps) % scan.window).unsqueeze(2)
    gap = (relevance.gather(2, places) - relevance[:, :, scan.window :]).abs().amin(dim=2)[full]
    return gap.min().item() if len(gap) else float("inf")


def _nearest_kink(problem: Problem, scan: AnyScan) -> float:
    """How close a plain scan comes to where the slope of relu or modrelu jumps (or modrelu itself, at 0)."""
    kinked = isinstance(scan, PlainScan) and scan.cell != "lstm" and scan.nonlinearity in ("relu", "modrelu")
    if not kinked or not len(problem.state.hidden):
        return float("inf")
    assert isinstance(problem.weights, PlainWeights)
    with torch.no_grad():
        output = _walked(*problem[:3], scan, *problem[3:], False, "reference").output
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


def _walked(
    projected: Tensor,
    weights: ScanWeights | PlainWeights,
    state: LayerState | None,
    scan: AnyScan,
    reset: Tensor | None,
    nudge: Tensor | None,
    noise: Tensor | None,
    grad_limit: Tensor | None,
    usage: Tensor | None,
    need_trace: bool,
    backend: str,
) -> LayerResult:
    if isinstance(scan, PlainScan):
        assert isinstance(weights, PlainWeights)
        return plain_scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
    assert isinstance(weights, ScanWeights)
    if isinstance(scan, FullScan):
        return full_scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
    given = reset, nudge, need_trace, backend, noise, grad_limit, usage
    return attentive_scan(projected, weights, state, scan, *given)


def _memory_name(scan: AnyScan) -> str:
    if not isinstance(scan, Scan):
        return "full" if isinstance(scan, FullScan) else "plain"
    return "uniform" if scan.every else "relevancy" if scan.capacity else "window"


def _difference(name: str, x: Tensor | None, y: Tensor | None, tolerance: float) -> str | None:
    if x is None or y is None:
        # a gradient that never arises may be absent or zero
        other = y if x is None else x
        return None if other is None or not other.any() else f"{name}: one has it, the other has not"
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype} {tuple(x.shape)} and {y.dtype} {tuple(y.shape)}"
    if not x.numel():
        return None
    worst = _relative_error(x, y)
    return None if worst <= tolerance else f"{name}: off by {worst:.2e}, allowed {tolerance:.0e}"


def _relative_error(expected: Tensor | None, got: Tensor) -> float:
    """Return the largest |difference|, relative to the largest expected |value| or to 1 if that is less."""
    if expected is None:
        return got.abs().max().item()
    x = expected.double()
    return (x - got.double()).abs().max().item() / max(1.0, x.abs().max().item())


def _draw(case: Case, generator: torch.Generator) -> Problem:
    scan, rows, size = case.scan, case.rows, case.size

    def leaf(*shape: int, scale: float | Tensor = 1.0) -> Tensor:
        drawn = (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(case.dtype)
        if case.strided:
            drawn = drawn.transpose(0, -1).contiguous().transpose(0, -1)
        return drawn.requires_grad_()

    weights = _plain_weights(scan, size, leaf) if isinstance(scan, PlainScan) else _weights(case, leaf)
    given = 0.0 if case.new or case.reach else 1.0
    hidden = leaf(rows, size, scale=given)
    cell_state = leaf(rows, size, scale=given) if scan.cell == "lstm" else None
    memory = empty_memory(rows, scan.width or 0, size, dtype=case.dtype)
    state = LayerState(hidden, cell_state, memory._replace(slots=memory.slots.requires_grad_()))
    if case.carried:
        state = _carried(case, weights, state, leaf)
    return Problem(
        leaf(case.steps, rows, scan.gates * size, scale=_drive(case)),
        weights,
        state,
        torch.rand(case.steps, rows, generator=generator) < 0.15 if case.reset else None,
        leaf(case.steps, rows, size, scale=0.1) if case.nudge else None,
        leaf(case.steps, rows, scale=0.3).detach() if case.noise else None,
        torch.tensor(0.5, dtype=accumulation_dtype(case.dtype)) if case.limited else None,
        torch.tensor(0.3, dtype=accumulation_dtype(case.dtype)) if case.learned else None,
    )


def _plain_weights(scan: PlainScan, size: int, leaf: Callable[..., Tensor]) -> PlainWeights:
    return PlainWeights(
        leaf(scan.gates * size, size, scale=size**-0.5),
        leaf(size, scale=0.1) if scan.cell == "gru" else None,
        leaf(size, scale=0.1) if scan.nonlinearity == "modrelu" else None,
    )


def _weights(case: Case, leaf: Callable[..., Tensor]) -> ScanWeights:
    scan, size = case.scan, case.size
    narrow = size**-0.5
    if case.reach:
        return _reaching_weights(case, leaf)
    reach = 1.0 if not case.far else 0.7 * math.log(torch.finfo(accumulation_dtype(case.dtype)).max)
    return ScanWeights(
        leaf(scan.gates * size, size, scale=narrow),
        leaf(size, size, scale=reach * narrow),
        leaf(size, size, scale=reach * narrow),
        # steep energies spread the weights, so that choices stand apart
        leaf(size, scale=0.0 if case.ties else 4.0 * narrow),
        leaf(size, scale=0.1) if scan.cell == "gru" else None,
        leaf(size, scale=0.1) if scan.nonlinearity == "modrelu" else None,
        leaf(size, scale=2 * narrow) if case.learned else None,
    )


def _reaching_weights(case: Case, leaf: Callable[..., Tensor]) -> ScanWeights:
    """Draw weights by which each query and each key is one state times ±`case.reach`.

    Where that is a power of two, both are exact in every type: backends that round them to 16 bits and those
    that do not must agree on q + k, however large q and k are.
    """
    scan, size = case.scan, case.size

    def signed_permutation() -> Tensor:
        order, signs = leaf(size).argsort(), leaf(size, 1).detach().sign()
        matrix = case.reach * signs * torch.eye(size, dtype=case.dtype)[order]
        return matrix.to(case.dtype).requires_grad_()

    # a recurrent product would be rounded to 16 bits by some backends alone
    recurrent = leaf(scan.gates * size, size, scale=size**-0.5 if case.dtype.itemsize > 2 else 0.0)
    return ScanWeights(
        recurrent,
        signed_permutation(),
        signed_permutation(),
        leaf(size, scale=4 * size**-0.5),
        leaf(size, scale=0.1) if scan.cell == "gru" else None,
        leaf(size, scale=0.1) if scan.nonlinearity == "modrelu" else None,
        leaf(size, scale=2 * size**-0.5) if case.learned else None,
    )


def _drive(case: Case) -> float | Tensor:
    """Return the scale of the projected input: with `reach`, gates and what tanh bounds saturate.

    In 16 bits all of them do, so that rounding cannot tell states of two correct backends apart; otherwise
    every other feature does.
    """
    if not case.reach:
        return 1.0
    scan, size = case.scan, case.size
    scale = torch.full((scan.gates * size,), 1000.0, dtype=torch.float64)
    if case.dtype.itemsize > 2:
        scale = torch.where(torch.arange(scan.gates * size) % 2 == 0, 50.0, 1.0).double()
    if scan.nonlinearity != "tanh":
        scale[(scan.gates - 1) * size :] = 0.25
    return scale


def _carried(
    case: Case, weights: ScanWeights | PlainWeights, state: LayerState, leaf: Callable[..., Tensor]
) -> LayerState:
    """A state that has a past: rows of different age, and with `ties` all kept states equally relevant."""
    scan, steps = case.scan, (case.scan.width or 3) + 2
    reset = torch.zeros(steps, case.rows, dtype=torch.bool)
    reset[torch.arange(case.rows) % steps, torch.arange(case.rows)] = True
    projected = leaf(steps, case.rows, scan.gates * case.size, scale=_drive(case))
    with torch.no_grad():
        end = _walked(projected, weights, state, scan, reset, *(None,) * 4, False, "reference").state
    relevance = end.memory.relevance.clone()
    if isinstance(scan, FullScan):
        relevance += 0.25  # a full memory gives no credit, but keeps what came with its slots
    elif case.ties and isinstance(scan, Scan):
        relevance[:, scan.window :] = 0.25
    cell_state = None if end.cell_state is None else end.cell_state.detach().requires_grad_()
    slots = end.memory.slots.detach().requires_grad_()
    memory = MemoryState(slots, relevance, end.memory.born, end.memory.age)
    return LayerState(end.hidden.detach().requires_grad_(), cell_state, memory)


def _converted(problem: Problem, to: torch.device | str | torch.dtype) -> Problem:
    """Return the same numbers as leaves on another device, or its floating tensors in another type."""
    if to == "cpu":
        return problem

    def there(x: Tensor | None) -> Tensor | None:
        if x is None or (isinstance(to, torch.dtype) and not x.is_floating_point()):
            return x
        return x.detach().to(to).requires_grad_(x.requires_grad)

    projected, weights, (hidden, cell_state, memory), reset, nudge, noise, grad_limit, usage = problem
    return Problem(
        there(projected),  # type: ignore[arg-type]
        type(weights)(*map(there, weights)),  # type: ignore[arg-type]
        LayerState(there(hidden), there(cell_state), MemoryState(*map(there, memory))),  # type: ignore[arg-type]
        there(reset),
        there(nudge),
        there(noise),
        there(grad_limit),
        there(usage),
    )
