"""The scans in plain torch against the definitions: outputs, gradients, and every attention weight."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from plait.ops.attentive_scan import naive as attentive
from plait.ops.full_scan import naive as full
from plait.ops.parity_problem import AnyScan, Case, Problem, draw, run_scan
from plait.ops.plain_scan import naive as plain
from plait.ops.scan import FullScan, PlainScan, Scan
from plait.ops.steps import elman_step, gru_step, lstm_step

CASES = [
    Case(scan, steps=14, rows=3, dtype=torch.float64, new=True, learned=learned)
    for scan, learned in (
        (Scan("elman", window=3, capacity=2), False),
        (Scan("lstm", window=2, capacity=3, mix=0.7), False),
        (Scan("gru", window=3, capacity=2), True),
        (Scan("elman", window=4, nonlinearity="relu"), False),
        (FullScan("lstm"), False),
        (FullScan("elman", mix=0.3), False),
        (PlainScan("gru"), False),
        (PlainScan("lstm"), False),
    )
]


def problem_of(case: Case) -> Problem:
    """Draw the inputs of a case, without the gradient by usage, which is no part of the plain-torch scans."""
    return draw(case, torch.Generator().manual_seed(3))._replace(usage=None)


def cell_of(scan: AnyScan, problem: Problem) -> Callable[..., tuple[Tensor, Tensor | None]]:
    weights = problem.weights

    def cell(z: Tensor, s: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if scan.cell == "elman":
            return elman_step(z, s, weights.recurrent, scan.nonlinearity), None
        if scan.cell == "gru":
            return gru_step(z, s, weights.recurrent, weights.candidate_bias), None
        return lstm_step(z, s, torch.zeros_like(s) if c is None else c, weights.recurrent)

    return cell


def naive(scan: AnyScan, problem: Problem, row: int) -> tuple[Tensor, Tensor | None]:
    """Run the plain-torch scan on one row: outputs (T, H) and weights (T, T), None without a memory."""
    projected, weights, cell = problem.projected[:, row], problem.weights, cell_of(scan, problem)
    if isinstance(scan, PlainScan):
        return plain.plain_scan(projected, cell, problem.state.hidden.shape[1]), None
    attention = weights.query, weights.key, weights.energy
    if isinstance(scan, FullScan):
        return full.full_scan(projected, cell, *attention, scan.mix)
    sizes = scan.window, scan.capacity
    return attentive.attentive_scan(projected, cell, *attention, *sizes, weights.worth, scan.mix)


def by_step(born: Tensor, weights: Tensor) -> Tensor:
    """Return the weights (T, κ) of a trace as (T, T): of step t on the state of step j."""
    table = weights.new_zeros(len(born), len(born) + 1)  # empty slots go to the last column
    return table.scatter_add_(1, born.where(born >= 0, len(born)), weights)[:, :-1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_naive_is_the_reference(case: Case) -> None:
    scan, problem = case.scan, problem_of(case)
    initial = ("hidden", "cell_state", "slots")
    leaves = [leaf for name, leaf in problem.leaves().items() if name not in initial]
    options = problem.reset, problem.nudge, problem.noise, None, None, True, "reference"
    expected = run_scan(problem.projected, problem.weights, problem.state, scan, *options)
    rows = [naive(scan, problem, row) for row in range(3)]
    output = torch.stack([row[0] for row in rows], dim=1)
    torch.testing.assert_close(output, expected.output)
    if not isinstance(scan, PlainScan):
        for row, (_, weights) in enumerate(rows):
            table = by_step(expected.trace.born[:, row], expected.trace.weights[:, row])
            torch.testing.assert_close(weights, table)
            assert torch.equal(weights > 0, table > 0)
    d_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    ours = torch.autograd.grad(output, leaves, d_output)
    theirs = torch.autograd.grad(expected.output, leaves, d_output)
    torch.testing.assert_close(ours, theirs)


def test_the_cases_replace_kept_states() -> None:
    """Otherwise the choice between a leaving state and a kept one would not be compared."""
    for case in CASES[:3]:
        scan, problem = case.scan, problem_of(case)
        replaced = 0
        for row in range(3):
            readable = naive(scan, problem, row)[1] > 0
            first = readable[scan.window + scan.capacity - 1].nonzero().flatten()[: scan.capacity]
            replaced += int((~readable[-1, first]).sum())
        assert replaced > 0, str(case)


@pytest.mark.parametrize("module", [attentive, full, plain])
def test_naive_runs_alone(module: object) -> None:
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"torch", "collections.abc"}
