"""Random inputs of a scan under chosen conditions, for the tests and the benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from plait.ops.attention import accumulation_dtype
from plait.ops.attentive_scan import attentive_scan
from plait.ops.full_scan import full_scan
from plait.ops.plain_scan import plain_scan
from plait.ops.scan import FullScan, PlainScan, PlainWeights, Scan, ScanWeights
from plait.ops.scan.contract import Inputs
from plait.ops.slots import MemoryState, empty_memory
from plait.ops.walk import LayerResult, LayerState

__all__ = ["AnyScan", "Case", "Problem", "converted", "draw", "run_scan"]

AnyScan = Scan | FullScan | PlainScan


@dataclass(frozen=True)
class Case:
    """A scan, its sizes and the conditions it runs under.

    `carried`: the state has a past; `ties`: all energies are equal; `strided`: no tensor is contiguous;
    `far`: queries and keys so large that e^{2k} overflows; `learned`: relevance is learned; `noise`: with
    noise on it; `limited`: no element of dL/ds_t may exceed half of what arrives; `new`: there is no previous
    state, s_0 is zero. `reach`: the largest |q| and |k| of states within ±1, and gates saturate; `scale`: a
    factor on every weight and on the projected input. `plait.ops.parity_cases` lists such cases.
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
    scale: float = 1.0

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
        if self.scale != 1:
            flags.append(f"scale{self.scale:.3g}")
        return "-".join([cell, memory, sizes, str(self.dtype).removeprefix("torch."), *flags])


class Problem(NamedTuple):
    """All inputs of a scan; the floating tensors are leaves that require gradients."""

    projected: Tensor
    weights: ScanWeights | PlainWeights
    state: LayerState
    reset: Tensor | None
    nudge: Tensor | None
    noise: Tensor | None
    grad_limit: Tensor | None
    usage: Tensor | None

    def inputs(self) -> Inputs:
        """Return the inputs as the one value that backends take."""
        return Inputs.of(
            self.projected,
            self.weights,
            self.state,
            self.reset,
            self.nudge,
            self.noise,
            self.grad_limit,
            self.usage,
        )

    def leaves(self) -> dict[str, Tensor]:
        """Return by name the tensors whose gradients are compared."""
        named = {
            "projected": self.projected,
            **self.weights._asdict(),
            "hidden": self.state.hidden,
            "cell_state": self.state.cell_state,
            "slots": self.state.memory.slots,
            "nudge": self.nudge,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def draw(case: Case, generator: torch.Generator) -> Problem:
    """Draw the inputs of a case."""
    scan, rows, size = case.scan, case.rows, case.size

    def leaf(*shape: int, scale: float | Tensor = 1.0) -> Tensor:
        drawn = (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(case.dtype)
        if case.strided:
            drawn = drawn.transpose(0, -1).contiguous().transpose(0, -1)
        return drawn.requires_grad_()

    weights = _plain_weights(scan, size, leaf) if isinstance(scan, PlainScan) else _weights(case, leaf)
    scale = 0.0 if case.new or case.reach else 1.0
    hidden = leaf(rows, size, scale=scale)
    cell_state = leaf(rows, size, scale=scale) if scan.cell == "lstm" else None
    memory = empty_memory(rows, scan.width or 0, size, dtype=case.dtype)
    state = LayerState(hidden, cell_state, memory._replace(slots=memory.slots.requires_grad_()))
    if case.carried:
        state = _carried(case, weights, state, leaf)
    if case.scale != 1:
        # scaled only after the state was drawn: with unbounded nonlinearities that walk would overflow
        scaled = [w if w is None else (case.scale * w.detach()).requires_grad_() for w in weights]
        weights = type(weights)(*scaled)  # type: ignore[arg-type]
    return Problem(
        leaf(case.steps, rows, scan.gates * size, scale=case.scale * _drive(case)),
        weights,
        state,
        torch.rand(case.steps, rows, generator=generator) < 0.15 if case.reset else None,
        leaf(case.steps, rows, size, scale=0.1) if case.nudge else None,
        leaf(case.steps, rows, scale=0.3).detach() if case.noise else None,
        torch.tensor(0.5, dtype=accumulation_dtype(case.dtype)) if case.limited else None,
        torch.tensor(0.3, dtype=accumulation_dtype(case.dtype)) if case.learned else None,
    )


def run_scan(
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
    """Run a scan on grouped arguments, by the backend of this name."""
    if isinstance(scan, PlainScan):
        assert isinstance(weights, PlainWeights)
        return plain_scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
    assert isinstance(weights, ScanWeights)
    if isinstance(scan, FullScan):
        return full_scan(projected, weights, state, scan, reset, nudge, need_trace, backend)
    options = reset, nudge, need_trace, backend, noise, grad_limit, usage
    return attentive_scan(projected, weights, state, scan, *options)


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
        # steep energies spread the weights, so that no choice is close
        leaf(size, scale=0.0 if case.ties else 4.0 * narrow),
        leaf(size, scale=0.1) if scan.cell == "gru" else None,
        leaf(size, scale=0.1) if scan.nonlinearity == "modrelu" else None,
        leaf(size, scale=2 * narrow) if case.learned else None,
    )


def _reaching_weights(case: Case, leaf: Callable[..., Tensor]) -> ScanWeights:
    """Draw weights that make each query and each key a state times ±`case.reach`.

    Where that is a power of two, both are exact in every type: backends that round them to 16 bits and those
    that do not must agree on q + k, however large q and k are.
    """
    scan, size = case.scan, case.size

    def signed_permutation() -> Tensor:
        order, signs = leaf(size).argsort(), leaf(size, 1).detach().sign()
        matrix = case.reach * signs * torch.eye(size, dtype=case.dtype)[order]
        return matrix.to(case.dtype).requires_grad_()

    # only some backends round a recurrent product to 16 bits
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
    """Return the scale of the projected input: with `reach`, gates and tanh saturate.

    In 16 bits all of them do, so that two correct backends round to equal states; otherwise every other
    feature.
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
    """Return a state that has a past: rows of different age, with `ties` equally relevant kept states."""
    scan, steps = case.scan, (case.scan.width or 3) + 2
    reset = torch.zeros(steps, case.rows, dtype=torch.bool)
    reset[torch.arange(case.rows) % steps, torch.arange(case.rows)] = True
    projected = leaf(steps, case.rows, scan.gates * case.size, scale=_drive(case))
    with torch.no_grad():
        end = run_scan(projected, weights, state, scan, reset, *(None,) * 4, False, "reference").state
    relevance = end.memory.relevance.clone()
    if isinstance(scan, FullScan):
        relevance += 0.25  # a full memory gives no credit, but passes on the relevance of its initial slots
    elif case.ties and isinstance(scan, Scan):
        relevance[:, scan.window :] = 0.25
    cell_state = None if end.cell_state is None else end.cell_state.detach().requires_grad_()
    slots = end.memory.slots.detach().requires_grad_()
    memory = MemoryState(slots, relevance, end.memory.born, end.memory.age)
    return LayerState(end.hidden.detach().requires_grad_(), cell_state, memory)


def converted(problem: Problem, to: torch.device | str | torch.dtype) -> Problem:
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


def _memory_name(scan: AnyScan) -> str:
    if not isinstance(scan, Scan):
        return "full" if isinstance(scan, FullScan) else "plain"
    return "uniform" if scan.every else "relevancy" if scan.capacity else "window"
