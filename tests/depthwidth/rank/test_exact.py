"""Exact separation ranks: the measured tables, and the laws they obey."""

import math
import resource
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.depthwidth.multiset import log3
from plait.depthwidth.rank import (
    Problem,
    Weights,
    Word,
    best_bounds,
    exact as rank_module,
    gram_upper,
    rank_mod_p,
    sep_rank_components,
    sep_rank_exact,
    thm1_bounds,
)
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.network import random_residues
from plait.errors import ConfigError

P = PRIMES[0]
BALANCED = [
    (1, 2, 1, 3),
    (1, 3, 3, 4),
    (1, 4, 2, 5),
    (1, 6, 3, 7),
    (1, 8, 8, 9),
    (2, 2, 1, 18),
    (2, 2, 2, 17),
    (2, 3, 1, 49),
    (2, 3, 3, 43),
    (2, 4, 1, 110),
    (2, 4, 2, 107),
    (2, 4, 4, 85),
    (2, 5, 1, 216),
    (2, 5, 5, 146),
    (2, 6, 1, 385),
    (2, 6, 2, 379),
    (2, 6, 3, 340),
    (2, 6, 6, 231),
    (2, 8, 1, 999),
    (2, 8, 2, 989),
    (2, 8, 4, 789),
    (2, 8, 8, 489),
    (3, 1, 1, 14),
    (3, 2, 1, 232),
    (3, 2, 2, 215),
    (3, 3, 1, 3102),
    (4, 1, 1, 41),
    (5, 1, 1, 122),
]
LONG = [
    (2, 12, 1, 4108),
    (2, 12, 2, 4087),
    (2, 12, 4, 3205),
    (2, 12, 12, 1469),
    (3, 3, 3, 2441),
    (4, 2, 1, 4538),
    (4, 2, 2, 4263),
]
FEW_TOKENS = [
    (2, 4, 1, 2, 70),
    (2, 4, 1, 4, 110),
    (2, 4, 2, 2, 70),
    (2, 4, 2, 6, 107),
    (2, 6, 1, 2, 210),
    (2, 6, 2, 4, 379),
    (3, 2, 1, 2, 105),
    (3, 2, 2, 2, 105),
    (3, 2, 2, 6, 215),
    (3, 3, 1, 2, 560),
    (3, 3, 1, 4, 2640),
    (2, 4, 4, 2, 69),
    (2, 5, 5, 2, 121),
    (2, 6, 6, 2, 195),
    (2, 8, 8, 2, 425),
]
RESIDUAL = [
    (1, 4, 1, 5),
    (1, 4, 4, 5),
    (2, 2, 1, 18),
    (2, 2, 2, 17),
    (2, 4, 1, 110),
    (2, 4, 2, 107),
    (2, 4, 4, 85),
    (2, 6, 2, 379),
    (2, 6, 6, 231),
    (3, 2, 1, 232),
    (3, 2, 2, 215),
]


@pytest.mark.parametrize(("depth", "width", "heads", "rank"), BALANCED)
def test_balanced(depth, width, heads, rank):
    result = sep_rank_exact(depth, width, heads, seed=depth + width)
    assert (result.rank, result.saturated) == (rank, True)
    bounds = best_bounds(depth, width, heads, 2 * width)
    assert bounds.lower - 1e-9 <= log3(rank) <= bounds.upper + 1e-9
    assert rank <= (width + heads) ** ((3**depth - 1) // 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("depth", "width", "heads", "rank"), LONG)
def test_balanced_long(depth, width, heads, rank):
    result = sep_rank_exact(depth, width, heads)
    assert (result.rank, result.saturated) == (rank, True)


@pytest.mark.parametrize(("depth", "width", "heads", "tokens", "rank"), FEW_TOKENS)
def test_few_tokens(depth, width, heads, tokens, rank):
    assert sep_rank_exact(depth, width, heads, tokens).rank == rank
    if heads == 1:
        side = tokens // 2
        assert rank == gram_upper(width=width, depth=depth, left=side, right=side)


@pytest.mark.parametrize(("cut", "rank"), [(1, 80), (2, 110), (3, 110), (4, 110), (6, 110), (7, 90)])
def test_unbalanced_cuts(cut, rank):
    result = sep_rank_exact(2, 4, 1, 8, cut=cut)
    assert result.rank == rank <= result.gram


@pytest.mark.parametrize(("depth", "width"), [(2, 4), (2, 6), (3, 2)])
def test_more_heads_lower_the_rank_and_raise_the_published_bound(depth, width):
    heads = [h for h in range(1, width + 1) if width % h == 0]
    ranks = [sep_rank_exact(depth, width, h).rank for h in heads]
    uppers = [thm1_bounds(depth, width, h).upper for h in heads]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == len(ranks)
    assert uppers == sorted(uppers)


def test_per_coordinate_degrees_do_not_determine_the_functions():
    """S₁₁S₂₂ and S₁₂² have the same degrees, and are independent once a side holds two tokens.

    The published count of degrees gives binom(C + d, d) = 15 for two layers of width 2, whatever the tokens.
    """
    assert sep_rank_exact(2, 2, tokens=2).rank == math.comb(4 + 2, 2) == 15
    assert sep_rank_exact(2, 2, tokens=4).rank == 18


@pytest.mark.parametrize(("depth", "width", "heads", "rank"), RESIDUAL)
def test_residual_connections_change_nothing(depth, width, heads, rank):
    assert sep_rank_exact(depth, width, heads, residual=True, seed=3).rank == rank


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("heads", "rank"), [(1, 3102), (3, 2441)])
def test_residual_long(heads, rank):
    assert sep_rank_exact(3, 3, heads, residual=True).rank == rank


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((3, 2, 1), [1, 3, 6, 10, 15, 21, 28, 36, 42, 30, 20, 12, 6, 2]),
        ((3, 2, 2), [1, 3, 6, 10, 15, 20, 25, 30, 35, 30, 20, 12, 6, 2]),
        ((2, 4, 2), [1, 10, 52, 40, 4]),
        ((2, 4, 4), [1, 10, 34, 36, 4]),
        ((2, 6, 3), [1, 21, 186, 126, 6]),
        ((2, 8, 4), [1, 36, 456, 288, 8]),
    ],
)
def test_graded_components(shape, parts):
    assert sep_rank_components(*shape) == parts
    graded = sep_rank_exact(*shape, graded=True)
    assert graded.rank == sum(parts) == sep_rank_exact(*shape).rank
    assert graded.saturated


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_partial_components_of_large_networks():
    for depth, width, degrees in [
        (4, 3, [*range(7), 36, 38, 40]),
        (5, 2, [0, 1, 2, 5, 10, 20, 100, 110, 121]),
    ]:
        bounds = Problem(depth, width).component_bounds()
        assert sep_rank_components(depth, width, degrees=degrees) == [bounds[m] for m in degrees]


@pytest.mark.parametrize(
    ("templates", "rank"), [(26, 26), (53, 53), (106, 106), (107, 107), (108, 107), (214, 107)]
)
def test_rank_is_the_smaller_of_templates_and_separation_rank(templates, rank):
    result = sep_rank_exact(2, 4, 2, 8, templates=templates)
    assert (result.rank, result.saturated) == (rank, templates > 110)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(0, 3), st.sampled_from(PRIMES), st.sampled_from([None, "torch:cpu"])
)
def test_independent_of_seed_coordinate_prime_and_backend(seed, coordinate, prime, device):
    assert sep_rank_exact(2, 4, 2, seed=seed, coordinate=coordinate, p=prime, device=device).rank == 107


def special(width, depth, kind, seed=0):
    rng = np.random.default_rng(seed)
    middles = random_residues(rng, P, depth, width, width)
    if kind == "identity":
        middles[:] = np.eye(width)
    elif kind == "symmetric":
        middles = np.tril(middles) + np.swapaxes(np.tril(middles, -1), 1, 2)
    elif kind == "tied":
        middles[:] = middles[0]
    elif kind.startswith("rank"):
        kept = 1 if kind == "rank 1" else width - 1
        left, right = (
            rng.integers(-999, 999, (depth, width, kept)),
            rng.integers(-999, 999, (depth, kept, width)),
        )
        middles = (left @ right).astype(float)
    return Word(random_residues(rng, P, width), middles)


@pytest.mark.parametrize(
    ("depth", "width", "ranks"),
    [
        (2, 2, (18, 17, 18, 18, 12, 12)),
        (2, 3, (49, 46, 49, 49, 16, 41)),
        (2, 4, (110, 104, 110, 110, 16, 98)),
        (3, 2, (232, 196, 232, 229, 150, 150)),
    ],
)
def test_special_weights(depth, width, ranks):
    kinds = ("generic", "identity", "symmetric", "tied", "rank 1", "rank d-1")
    found = [sep_rank_exact(depth, width, weights=special(width, depth, kind)).rank for kind in kinds]
    assert tuple(found) == ranks


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_special_weights_long():
    # 2,589 was also found by literal evaluation and a plain elimination, with other weights and templates.
    kinds = {"identity": 2512, "symmetric": 3102, "tied": 3100, "rank 1": 340, "rank d-1": 2589}
    for kind, rank in kinds.items():
        assert sep_rank_exact(3, 3, weights=special(3, 3, kind)).rank == rank


def test_zero_weights():
    nothing = Weights(*(np.zeros((2, 2, 2, 4)) for _ in range(3)), np.zeros((2, 2, 4, 2)))
    assert sep_rank_exact(2, 4, 2, weights=nothing).rank == 0
    assert sep_rank_exact(2, 4, 2, weights=nothing, residual=True).rank == 1


def test_small_primes_fall_short():
    """Errors are one-sided: a small field gives less, never more."""
    ranks = [sep_rank_exact(2, 2, p=5, seed=seed).rank for seed in range(40)]
    assert max(ranks) <= 18
    assert min(ranks) < 18


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eleven_thousand():
    began = time.process_time()
    result = sep_rank_exact(2, 16)
    assert (result.rank, result.saturated, result.matches_gram) == (11645, True, True)
    assert time.process_time() - began < 2 * 120  # two minutes of two cores, however busy they are
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4e6  # kilobytes


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_thousand_by_degrees():
    began = time.process_time()
    result = sep_rank_exact(3, 4, graded=True)
    assert [part.rank for part in result.components] == [
        1,
        10,
        55,
        220,
        715,
        2002,
        5005,
        11436,
        8008,
        2860,
        880,
        220,
        40,
        4,
    ]
    assert (result.rank, result.gram, result.matches_gram) == (31456, 31460, False)
    assert time.process_time() - began < 2 * 360


@pytest.mark.gpu
def test_gpu_equals_numpy():
    assert sep_rank_exact(2, 8, 2, device="cuda").rank == 989
    assert sep_rank_exact(3, 3, device="cuda", seed=1).rank == 3102
    rng = np.random.default_rng(0)
    matrix = rng.integers(-99, 99, (3000, 2000)) @ rng.integers(-99, 99, (2000, 3000))
    assert rank_mod_p(matrix, P, device="cuda") == 2000


def test_streaming_ends_after_enough_dependent_templates(monkeypatch):
    """Blocks of 54: after two of them one row was dependent, which is not yet a proof of saturation."""
    monkeypatch.setattr(rank_module, "block_rows", lambda prime: 54)
    seen = []
    result = sep_rank_exact(2, 4, 2, progress=lambda *now: seen.append(now[1]))
    assert (result.rank, result.saturated) == (107, True)
    assert seen == [54, 107, 107]


def test_progress_is_reported():
    seen = []
    sep_rank_exact(2, 4, graded=True, progress=lambda *now: seen.append(now))
    assert [label for label, _, _ in seen] == ["F_0", "F_1", "F_2", "F_3", "F_4"]
    assert seen[2] == ("F_2", 55, 55)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((2, 6, 4), {}, "heads: must divide width 6, got 4"),
        ((2, 4, 8), {}, "heads: at most width = 4"),
        ((0, 4), {}, "depth: expected at least 1, got 0"),
        ((2, 4, 1, 1), {}, "tokens: expected at least 2, got 1"),
        ((2, 4, 1, 7), {}, "7 is odd"),
        ((2, 4, 1, 8), {"cut": 8}, "cut: expected 1 to"),
        ((2, 4), {"p": 12}, "expected a prime, got 12"),
        ((3, 4), {"p": 13}, r"more than C\(L\) = 13"),
        ((2, 4), {"p": 179424673}, "smaller prime"),
        ((2, 4), {"graded": True, "residual": True}, "residual connections mix the degrees"),
        ((2, 4), {"templates": 0}, "templates: expected at least 1"),
        ((2, 4), {"coordinate": 4}, "coordinate: expected 0 to 3"),
        ((2, 300), {}, "which allows 512"),
    ],
)
def test_bad_input(arguments, options, words):
    with pytest.raises(ConfigError, match=words):
        sep_rank_exact(*arguments, **options)


def test_word_with_residual_is_refused():
    with pytest.raises(ConfigError, match="one head without residual"):
        sep_rank_exact(2, 4, residual=True, weights=special(4, 2, "generic"))
