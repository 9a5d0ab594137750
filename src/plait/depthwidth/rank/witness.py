"""Witness of a rank: the solution W of A W = B for the square matrix of a `Claim`, by elimination.

It needs one elimination after the measurement, because B is drawn from a hash of the selected rows and
columns, which are known only once the rank is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plait.depthwidth.rank.arrays import arrays_on
from plait.depthwidth.rank.claim import Claim, Integers, pack, right_hand_sides
from plait.depthwidth.rank.echelon import Echelon, block_rows
from plait.depthwidth.rank.evaluate import Evaluator
from plait.depthwidth.rank.exact import Component, Problem, Progress, RankResult, draw_side
from plait.depthwidth.rank.field import centre
from plait.depthwidth.rank.gram import sides_of
from plait.depthwidth.rank.network import draw_weights
from plait.errors import ConfigError

__all__ = ["make_witness", "network_of", "solve"]

_TRIES = 8  # row ranges tried; in a large field the first one is singular with probability about 1e-7


def network_of(problem: Problem) -> dict[str, Any]:
    """Return the network's description in a certificate."""
    left, right = sides_of(problem.length, problem.cut)
    return {
        "depth": problem.depth,
        "width": problem.width,
        "heads": problem.heads,
        "tokens_a": left,
        "tokens_b": right,
        "residual": problem.residual,
        "coordinate": problem.coordinate,
        "weights": "generic" if problem.weights is None else "given",
    }


def make_witness(
    problem: Problem, run: RankResult, device: str | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Make the witness of one run: rows, columns and packed solution of each of its matrices.

    Raises:
        ConfigError: if every square submatrix tried was singular, which happens in a small field.
    """
    parts = [_part(problem, part, device, progress) for part in run.components if part.rank]
    return {"p": run.p, "seed": run.seed, "parts": parts}


def _part(problem: Problem, part: Component, device: str | None, progress: Progress | None) -> dict[str, Any]:
    last = min(part.templates, part.bound + _TRIES) - part.rank
    for shift in range(min(_TRIES, last + 1)):
        window = ((shift, shift + part.rank),)
        claim = Claim(network_of(problem), part.p, part.seed, part.degree, window, ((0, part.rank),))
        solution = solve(problem, claim, device, progress)
        if solution is not None:
            return {
                "degree": part.degree,
                "rank": part.rank,
                "rows": [list(pair) for pair in claim.rows],
                "columns": [list(pair) for pair in claim.columns],
                "solution": pack(solution, part.p),
            }
    raise ConfigError(f"no invertible square of {part.rank} templates mod {part.p}: take a larger prime")


def solve(
    problem: Problem, claim: Claim, device: str | None = None, progress: Progress | None = None
) -> Integers | None:
    """Return W in 0..p−1, (rank, k), or None if A is singular. Rows and columns are one range each."""
    (first, last), (start, stop) = claim.rows[0], claim.columns[0]
    weight_rng, left_rng, right_rng = np.random.default_rng(claim.seed).spawn(3)
    weights = draw_weights(problem.depth, problem.width, problem.heads, claim.p, weight_rng)
    left, right = sides_of(problem.length, problem.cut)
    draw_side(right_rng, claim.p, start, right, problem.width)
    draw_side(left_rng, claim.p, first, left, problem.width)
    arrays, expected = arrays_on(device), centre(right_hand_sides(claim), claim.p)
    evaluator = Evaluator(
        weights,
        draw_side(right_rng, claim.p, stop - start, right, problem.width),
        claim.p,
        arrays,
        residual=problem.residual,
        coordinate=problem.coordinate,
        degree=claim.degree,
    )
    basis = Echelon(claim.rank, claim.p, arrays, carried=expected.shape[1])
    for span in _spans(last - first, block_rows(claim.p)):
        block = arrays.empty(len(span), claim.rank + expected.shape[1])
        block[:, : claim.rank] = evaluator.rows(draw_side(left_rng, claim.p, len(span), left, problem.width))
        block[:, claim.rank :] = arrays.from_numpy(expected[span.start : span.stop])
        if basis.insert(block) < len(span):
            return None
        if progress:
            progress("witness", basis.rank, claim.rank)
    return np.rint(arrays.to_numpy(basis.solution())).astype(np.int64) % claim.p


def _spans(count: int, size: int) -> Sequence[range]:
    return [range(i, min(i + size, count)) for i in range(0, count, size)]
