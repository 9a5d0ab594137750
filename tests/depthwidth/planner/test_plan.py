"""The planner: budgets kept, widths on their grid, verdicts that agree with each other."""

import math

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.planner import judge, optimal_shape, param_count, plan
from plait.errors import ConfigError


@given(st.floats(1e7, 1e14), st.sampled_from([32, 64, 128]), st.sampled_from([1, 64, 128, 256]))
def test_plans_keep_to_budget_and_grid(params, head_size, multiple_of):
    best = plan(params, head_size=head_size, multiple_of=multiple_of)
    assert best.width % head_size == 0
    assert best.width % multiple_of == 0
    assert best.heads * head_size == best.width
    assert best.params == param_count(best.depth, best.width)
    assert 0.5 <= best.params / params <= 2
    assert best.regime == "deep"
    assert best.shape.balanced == (judge(best.depth, best.width).guideline_verdict == "balanced")
    assert best.count.layers > best.params  # biases and norms on top of 12·L·d²


@given(st.floats(1e9, 1e14))
def test_fine_grids_reach_the_guideline(params):
    best, exact = plan(params, head_size=1, multiple_of=1), optimal_shape(params)
    assert abs(best.shape.excess_layers) <= 0.6
    assert abs(best.depth - exact.exact_depth) <= 1.01
    assert best.params / params == pytest.approx(1, abs=0.03)


BUDGETS = [10 ** (6 + 6 * i / 182) for i in range(183)]


def test_a_plan_is_balanced_and_a_shape_moved_away_is_not():
    for budget in BUDGETS:
        best = plan(budget)
        verdict = judge(best.depth, best.width)
        assert verdict.guideline_verdict == "balanced", budget
        assert abs(best.params / budget - 1) < 0.12
        step = math.ceil(verdict.tolerance) + 2
        for depth in (best.depth - step, best.depth + step):
            if depth < 1:
                continue
            expected = "too deep" if depth > best.depth else "too shallow"
            assert judge(depth, best.width).guideline_verdict == expected, (budget, depth)  # the width kept
            narrower = round(best.width * math.sqrt(best.depth / depth))
            assert judge(depth, narrower).guideline_verdict == expected, (budget, depth)  # the size kept


def test_suggested_shapes_are_balanced():
    for budget in BUDGETS[::3]:
        depth = max(1, plan(budget).depth // 2)
        width = round(math.sqrt(budget / 12 / depth))
        for params in (None, 1.4 * 12 * depth * width**2):
            wrong = judge(depth, width, params)
            assert wrong.nearest, budget
            for shape in wrong.nearest:
                assert judge(shape.depth, shape.width).guideline_verdict == "balanced", (budget, shape)
                assert shape.params == pytest.approx(wrong.params, rel=0.11 if budget > 3e6 else 0.25)


def test_a_requested_coarse_grid_is_called_unbalanced():
    coarse = plan(1e7, multiple_of=512)
    assert coarse.width == 512
    assert not coarse.shape.balanced
    assert judge(coarse.depth, coarse.width).guideline_verdict == "too shallow"


def test_total_budget_pays_for_embeddings():
    best = plan(1.3e9, total=True)
    assert best.budget + 50257 * best.optimum.exact_width == pytest.approx(1.3e9, rel=1e-6)
    with pytest.raises(ConfigError, match="besides the embeddings"):
        plan(2e6, total=True)


def test_extrapolation_and_errors():
    assert plan(1e12).extrapolated
    assert not plan(1e9).extrapolated
    assert plan(1e9).optimum.depth_error == pytest.approx(0.888, abs=1e-3)
    assert plan(1e12).optimum.exact_depth == pytest.approx(94.75, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"params": 0}, "params: expected 1e[+]05 to 1e[+]15, got 0"),
        ({"params": 1e30}, "params: expected 1e[+]05 to 1e[+]15, got 1e[+]30"),
        ({"params": 1e9, "head_size": 0}, "head_size and multiple_of: expected at least 1"),
        ({"params": 1e6, "multiple_of": 4096}, "lower multiple_of or head_size"),
    ],
)
def test_bad_plans(arguments, words):
    with pytest.raises(ConfigError, match=words):
        plan(**arguments)


def test_the_embeddings_are_those_of_the_vocabulary():
    few, many = plan(1.3e9, vocab=1_000), plan(1.3e9, vocab=50_000)
    assert (few.depth, few.width, few.count.layers) == (many.depth, many.width, many.count.layers)
    assert many.count.embeddings - few.count.embeddings == 49_000 * few.width
