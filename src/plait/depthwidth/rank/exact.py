"""Exact separation ranks: F[m, n] = y(a_m, b_n) over GF(p) for random templates, and its rank.

rank F ≤ sep(y) for any templates, with equality for generic ones, so errors are one-sided: a measured
rank can only be too small. `check.short_chance` bounds the chance of that. Rows are streamed: each block is
evaluated, cleared by what is there, and the measurement stops when further templates add nothing.
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
from plait.errors import ConfigError, whole
from plait.estimates import SMALL, check_fits

__all__ = ["Component", "Problem", "RankResult", "rank_of_weights", "sep_rank_components", "sep_rank_exact"]

MARGIN = 4  # dependent templates that must be seen before a rank counts as saturated
_SPARE = 8  # templates beyond the Gram bound
Progress = Callable[[str, int, int], None]  # what is measured, rank so far, rank at most


@dataclass(frozen=True)
class Problem:
    """One network and one cut; sizes are checked when it is made.

    `tokens` None means 2·width, where the rank no longer depends on it; `cut` is the number of tokens in
    A, which holds the studied token. `weights` None draws generic ones.
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
        """The proven upper bound G."""
        left, right = sides_of(self.length, self.cut)
        return gram_upper(width=self.width, depth=self.depth, left=left, right=right)

    def most(self) -> int:
        """The smaller of G and (d + H)^C."""
        return min(self.gram(), int((self.width + self.heads) ** self.letters))

    def component_bounds(self) -> list[int]:
        """The most each graded component can have."""
        left, right = sides_of(self.length, self.cut)
        sizes = gram_dimensions(width=self.width, depth=self.depth, left=left, right=right)
        return [min(pair) for pair in sizes]

    def check(self, prime: int) -> int:
        """The prime, if it suits this network's exact evaluation."""
        deepest = max(2 * self.width, self.heads * self.width, max(sides_of(self.length, self.cut)))
        return check_prime(prime, products=deepest + 1, degree=self.letters)


@dataclass(frozen=True)
class Component:
    """The rank of one matrix: of y (degree None) or of its part of degree m in S_B."""

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
    """One measurement: one prime, one seed.

    `saturated` says that more templates than the rank were tried and added nothing; otherwise `rank` is
    only the number of templates.
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
        """Equality with the proven upper bound: the generic rank is then known from both sides."""
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
    """The exact rank over GF(p) of the matricised network.

    Args:
        tokens: sequence length N; None means 2·width. Odd lengths need `cut`.
        cut: tokens in A; the studied token is among them.
        residual: with skip connections.
        weights: special weights (`Weights`, or a `Word` for one head); None draws generic ones.
        templates: M; None takes what the Gram bound needs, and stops when templates add nothing.
        graded: measure the components of degree m = 0..C in S_B and add: smaller matrices.
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
    """rank F_m for m = 0..C (or the degrees named): their sum is the separation rank.

    >>> sep_rank_components(2, 4, 2)
    [1, 10, 52, 40, 4]
    """
    problem = Problem(depth, width, heads, tokens, cut)
    prime = problem.check(p)
    wanted = range(problem.letters + 1) if degrees is None else degrees
    bounds = problem.component_bounds()
    _check_memory(problem, prime, max(bounds[m] for m in wanted), None, True, device)
    return [_measure(problem, seed, prime, bounds[m], m, None, device, None).rank for m in wanted]


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
    """One measurement of a `Problem`; see `sep_rank_exact`.

    `done` are components measured before: those with this seed, prime and number of templates are not
    repeated. `on_component` is told of each new one.
    """
    prime = problem.check(p)
    if templates is not None:
        whole(1, templates=templates)
    if graded and problem.residual:
        raise ConfigError("graded: residual connections mix the degrees; measure without grading")
    bounds = dict(enumerate(problem.component_bounds())) if graded else {None: problem.most()}
    _check_memory(problem, prime, max(bounds.values()), templates, graded, device)
    known = {(part.degree, part.p, part.seed, part.templates): part for part in done}
    parts = []
    for degree, bound in bounds.items():
        part = known.get((degree, prime, seed, templates or bound + _SPARE))
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
    """Refuse a matrix that will not fit, and name what would."""

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
    """Stream rows of one matrix until `MARGIN` of them add nothing."""
    began = time.perf_counter()
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
    seen = 0
    while seen < columns and seen - basis.rank < MARGIN:
        count = min(block_rows(prime), columns - seen)
        basis.insert(evaluator.rows(draw_side(left_rng, prime, count, left, problem.width)))
        seen += count
        if progress:
            progress(label, basis.rank, min(bound, columns))
    saturated = seen - basis.rank >= MARGIN and columns - basis.rank >= MARGIN
    return Component(degree, prime, seed, basis.rank, bound, columns, saturated, time.perf_counter() - began)


def draw_side(rng: np.random.Generator, prime: int, count: int, tokens: int, width: int) -> Side:
    """Random tokens (count, tokens, width) as their Gram matrices and first token."""
    drawn: FloatArray = random_residues(rng, prime, count, tokens, width)
    return Side(mod(np.swapaxes(drawn, 1, 2) @ drawn, prime), drawn[:, 0].copy())


def rank_of_weights(weights: Weights, p: int, *, residual: bool = False, seed: int = 0) -> int:
    """The exact rank over GF(p) of one network, given by its weights, on random templates of 2·width tokens.

    For trained weights see `Weights.of_floats`. It is at most the separation rank of that very network over
    the rationals, which is at most the generic one.

    >>> rank_of_weights(draw_weights(2, 4, 2, PRIMES[0], 0), PRIMES[0])
    107
    """
    problem = Problem(weights.depth, weights.width, weights.heads, residual=residual, weights=weights)
    return measure_rank(problem, seed=seed, p=p).rank
