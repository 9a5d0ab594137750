"""Exact separation ranks: F[m, n] = y(a_m, b_n) over GF(p) for random templates, and its rank.

rank F ≤ sep(y) for any templates, with equality for generic ones, so errors are one-sided: a measured
rank can only be too small. `certificate_check.miss_chance` bounds the chance of that. Rows are streamed: each
block is evaluated and eliminated, and the measurement stops when further templates do not increase the rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plait.depthwidth.bounds import sum_index_count
from plait.depthwidth.rank.arrays import arrays_on
from plait.depthwidth.rank.echelon import Echelon, block_rows
from plait.depthwidth.rank.elimination_memory import elimination_bytes
from plait.depthwidth.rank.evaluate import Evaluator, Side, Word
from plait.depthwidth.rank.field import PRIMES, FloatArray, check_prime
from plait.depthwidth.rank.gram import gram_dimensions, gram_upper, sides_of
from plait.depthwidth.rank.network import Weights, check_sizes, draw_weights, mod, random_residues
from plait.errors import ConfigError, check_int
from plait.estimates import SMALL, check_fits

__all__ = ["Component", "Problem", "RankResult", "rank_of_weights", "sep_rank_components", "sep_rank_exact"]

MARGIN = 4  # dependent templates after which a rank counts as saturated
_SPARE = 8  # templates beyond the Gram bound
Progress = Callable[[str, int, int], None]  # label, rank so far, maximal rank


@dataclass(frozen=True)
class Problem:
    """Network and cut whose separation rank is measured.

    Attributes:
        tokens: sequence length; None means 2·width, from which on the rank does not depend on it.
        cut: tokens in A, which includes the output token; None means half of them.
        weights: None draws generic ones.
    """

    depth: int
    width: int
    heads: int = 1
    tokens: int | None = None
    cut: int | None = None
    residual: bool = False
    coordinate: int = 0
    weights: Weights | Word | None = None

    def __post_init__(self) -> None:
        check_sizes(self.depth, self.width, self.heads)
        sides_of(self.length, self.cut)
        if not 0 <= self.coordinate < self.width:
            raise ConfigError(f"coordinate: expected 0 to {self.width - 1}, got {self.coordinate}")
        if isinstance(self.weights, Word) and (self.residual or self.heads != 1):
            raise ConfigError("a Word describes one head without residual connections")

    @property
    def length(self) -> int:
        return 2 * self.width if self.tokens is None else self.tokens

    @property
    def letters(self) -> int:
        return sum_index_count(self.depth)

    def gram(self) -> int:
        """Return the proven upper bound G."""
        left, right = sides_of(self.length, self.cut)
        return gram_upper(width=self.width, depth=self.depth, left=left, right=right)

    def max_rank(self) -> int:
        """Return the smaller of G and (d + H)^C."""
        return min(self.gram(), int((self.width + self.heads) ** self.letters))

    def component_bounds(self) -> list[int]:
        """Return the upper bound on the rank of each graded component."""
        left, right = sides_of(self.length, self.cut)
        sizes = gram_dimensions(width=self.width, depth=self.depth, left=left, right=right)
        return [min(pair) for pair in sizes]

    def check(self, prime: int) -> int:
        """Return the prime if this network can be evaluated exactly with it."""
        deepest = max(2 * self.width, self.heads * self.width, max(sides_of(self.length, self.cut)))
        return check_prime(prime, products=deepest + 1, degree=self.letters)


@dataclass(frozen=True)
class Component:
    """Rank of one matrix: of y (degree None) or of its part of degree m in S_B."""

    degree: int | None
    p: int
    seed: int
    rank: int
    bound: int
    templates: int
    saturated: bool
    seconds: float


@dataclass(frozen=True)
class RankResult:
    """Result of one measurement, with one prime and one seed.

    If not `saturated`, every template increased the rank, so `rank` is only the number of templates.
    """

    rank: int
    p: int
    seed: int
    templates: int
    saturated: bool
    gram: int
    graded: bool
    components: tuple[Component, ...]
    seconds: float

    @property
    def matches_gram(self) -> bool:
        """True if the rank equals the proven upper bound, and so is the generic rank."""
        return self.rank == self.gram


def sep_rank_exact(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    *,
    cut: int | None = None,
    residual: bool = False,
    coordinate: int = 0,
    weights: Weights | Word | None = None,
    seed: int = 0,
    p: int = PRIMES[0],
    templates: int | None = None,
    graded: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> RankResult:
    """Measure the exact rank over GF(p) of the matricised network.

    Args:
        tokens: sequence length N; None means 2·width. Odd lengths need `cut`.
        cut: tokens in A, which includes the output token.
        residual: with skip connections.
        weights: special weights (`Weights`, or a `Word` for one head); None draws generic ones.
        templates: number of templates; None takes as many as the Gram bound requires.
        graded: measure the components of degree m = 0..C in S_B, smaller matrices, and add their ranks.
        device: None for numpy, "cuda" for a GPU.

    >>> sep_rank_exact(2, 4, 2).rank
    107
    """
    problem = Problem(depth, width, heads, tokens, cut, residual, coordinate, weights)
    return measure_rank(
        problem,
        seed=seed,
        p=p,
        templates=templates,
        graded=graded,
        device=device,
        progress=progress,
    )


def sep_rank_components(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    *,
    degrees: Sequence[int] | None = None,
    seed: int = 0,
    p: int = PRIMES[0],
    cut: int | None = None,
    device: str | None = None,
) -> list[int]:
    """Measure rank F_m for m = 0..C or the given degrees; their sum over all m is the separation rank.

    >>> sep_rank_components(2, 4, 2)
    [1, 10, 52, 40, 4]
    """
    problem = Problem(depth, width, heads, tokens, cut)
    prime = problem.check(p)
    measured = range(problem.letters + 1) if degrees is None else degrees
    bounds = problem.component_bounds()
    _check_memory(problem, prime, max(bounds[m] for m in measured), None, True, device)
    return [_measure(problem, seed, prime, bounds[m], m, None, device, None).rank for m in measured]


def measure_rank(
    problem: Problem,
    *,
    seed: int,
    p: int,
    templates: int | None = None,
    graded: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
    done: Sequence[Component] = (),
    on_component: Callable[[Component], None] | None = None,
) -> RankResult:
    """Measure a `Problem` once; see `sep_rank_exact`.

    Args:
        done: components measured before; those with this seed, prime and number of templates are reused.
        on_component: callback for each new component.
    """
    prime = problem.check(p)
    if templates is not None:
        check_int(1, templates=templates)
    if graded and problem.residual:
        raise ConfigError("graded: residual connections mix the degrees; measure without grading")
    bounds = dict(enumerate(problem.component_bounds())) if graded else {None: problem.max_rank()}
    _check_memory(problem, prime, max(bounds.values()), templates, graded, device)
    finished = {(part.degree, part.p, part.seed, part.templates): part for part in done}
    parts = []
    for degree, bound in bounds.items():
        part = finished.get((degree, prime, seed, templates or bound + _SPARE))
        if part is None:
            part = _measure(problem, seed, prime, bound, degree, templates, device, progress)
            if on_component:
                on_component(part)
        parts.append(part)
    return RankResult(
        rank=sum(part.rank for part in parts),
        p=prime,
        seed=seed,
        templates=max(part.templates for part in parts),
        saturated=all(part.saturated for part in parts),
        gram=problem.gram(),
        graded=graded,
        components=tuple(parts),
        seconds=sum(part.seconds for part in parts),
    )


def _check_memory(
    problem: Problem, prime: int, bound: int, templates: int | None, graded: bool, device: str | None
) -> None:
    """Raise an error if a matrix does not fit in memory, with advice on smaller ones."""

    def needed(rank: int, columns: int) -> int:
        return elimination_bytes(min(rank, columns), columns, problem.width, problem.letters, prime)

    bytes_needed = needed(bound, templates or bound + _SPARE)
    if bytes_needed < SMALL:
        return
    advice = "take fewer templates (a lower bound), a smaller width, or a GPU with more memory"
    if not graded and not problem.residual:
        largest = max(problem.component_bounds())
        size = needed(largest, largest + _SPARE)
        advice = f"graded, the largest of its matrices has rank {largest:,} and needs {size / 1e9:,.1f} GB"
    check_fits(bytes_needed, advice, device)


def _measure(
    problem: Problem,
    seed: int,
    prime: int,
    bound: int,
    degree: int | None,
    templates: int | None,
    device: str | None,
    progress: Progress | None,
) -> Component:
    """Insert rows of one matrix until `MARGIN` of them are dependent."""
    started = time.perf_counter()
    columns = templates or bound + _SPARE
    weight_rng, left_rng, right_rng = np.random.default_rng(seed).spawn(3)
    weights = problem.weights
    if weights is None:
        weights = draw_weights(problem.depth, problem.width, problem.heads, prime, weight_rng)
    left, right = sides_of(problem.length, problem.cut)
    arrays = arrays_on(device)
    evaluator = Evaluator(
        weights,
        draw_side(right_rng, prime, columns, right, problem.width),
        prime,
        arrays,
        residual=problem.residual,
        coordinate=problem.coordinate,
        degree=degree,
    )
    basis = Echelon(columns, prime, arrays)
    label = "F" if degree is None else f"F_{degree}"
    rows = 0
    while rows < columns and rows - basis.rank < MARGIN:
        count = min(block_rows(prime), columns - rows)
        basis.insert(evaluator.rows(draw_side(left_rng, prime, count, left, problem.width)))
        rows += count
        if progress:
            progress(label, basis.rank, min(bound, columns))
    saturated = rows - basis.rank >= MARGIN and columns - basis.rank >= MARGIN
    return Component(
        degree, prime, seed, basis.rank, bound, columns, saturated, time.perf_counter() - started
    )


def draw_side(rng: np.random.Generator, prime: int, count: int, tokens: int, width: int) -> Side:
    """Draw random tokens (count, tokens, width); return their Gram matrices and first tokens."""
    drawn: FloatArray = random_residues(rng, prime, count, tokens, width)
    return Side(mod(np.swapaxes(drawn, 1, 2) @ drawn, prime), drawn[:, 0].copy())


def rank_of_weights(weights: Weights, p: int, *, residual: bool = False, seed: int = 0) -> int:
    """Measure the exact rank over GF(p) of a network with these weights, on templates of 2·width tokens.

    For trained weights see `Weights.of_floats`. The rank is at most the separation rank of that network over
    the rationals, which is at most the generic one.

    >>> rank_of_weights(draw_weights(2, 4, 2, PRIMES[0], 0), PRIMES[0])
    107
    """
    problem = Problem(weights.depth, weights.width, weights.heads, residual=residual, weights=weights)
    return measure_rank(problem, seed=seed, p=p).rank
