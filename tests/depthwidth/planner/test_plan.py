"""The planner: budgets kept, widths on their grid, verdicts that agree with each other."""

import math

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.planner import MODELS, compare, judge, optimal_shape, param_count, plan
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
    assert best.shape.balanced == (judge(best.depth, best.width).verdict == "balanced")
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
        assert verdict.verdict == "balanced", budget
        assert abs(best.params / budget - 1) < 0.12
        step = math.ceil(verdict.tolerance) + 2
        for depth in (best.depth - step, best.depth + step):
            if depth < 1:
                continue
            expected = "too deep" if depth > best.depth else "too shallow"
            assert judge(depth, best.width).verdict == expected, (budget, depth)  # the width kept
            narrower = round(best.width * math.sqrt(best.depth / depth))
            assert judge(depth, narrower).verdict == expected, (budget, depth)  # the size kept


def test_suggested_shapes_are_balanced():
    for budget in BUDGETS[::3]:
        depth = max(1, plan(budget).depth // 2)
        width = round(math.sqrt(budget / 12 / depth))
        for params in (None, 1.4 * 12 * depth * width**2):
            wrong = judge(depth, width, params)
            assert wrong.nearest, budget
            for shape in wrong.nearest:
                assert judge(shape.depth, shape.width).verdict == "balanced", (budget, shape)
                assert shape.params == pytest.approx(wrong.params, rel=0.11 if budget > 3e6 else 0.25)


def test_a_coarse_grid_that_was_asked_for_is_called_unbalanced():
    coarse = plan(1e7, multiple_of=512)
    assert coarse.width == 512
    assert not coarse.shape.balanced
    assert judge(coarse.depth, coarse.width).verdict == "too shallow"


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


def test_judgements():
    gpt3 = judge(96, 12288)
    assert gpt3.verdict == "too deep"
    assert gpt3.excess_layers == pytest.approx(96 - 80.46230851, abs=1e-6)
    assert gpt3.extrapolated
    assert gpt3.regime == "deep"
    assert gpt3.nearest[0].depth == 80
    small = judge(12, 768)
    assert small.verdict == "too shallow"
    assert not small.extrapolated
    assert small.width_ratio == pytest.approx(768 / 554.2707266)
    assert judge(23, 555).verdict == "balanced"


def test_equal_size_is_counted_in_the_models_own_layers():
    llama, plain = judge(32, 4096, params=6_979_588_096), judge(32, 4096)
    assert llama.params == 6_979_588_096
    assert llama.layer_size == pytest.approx(13.0, abs=0.01)
    assert llama.excess_layers == plain.excess_layers == pytest.approx(-22.3, abs=0.05)
    for shape in llama.nearest:
        assert shape.params == pytest.approx(llama.layer_size * shape.depth * shape.width**2, rel=1e-9)


@pytest.mark.parametrize(
    ("depth", "width", "words"),
    [
        (36, 1280, "slightly too shallow"),  # GPT-2 large, 1.7 layers off
        (32, 4096, "far too shallow"),  # Llama-3-8B, 22 layers off
        (48, 1600, "clearly too deep"),  # GPT-2 XL, 4.9
        (96, 12288, "far too deep"),
        (47, 2112, "balanced"),  # of the paper's table
    ],
)
def test_degrees(depth, width, words):
    assert judge(depth, width).words == words


@given(st.floats(3e6, 1e13))
def test_a_balanced_shape_is_judged_balanced(params):
    best = optimal_shape(params)
    assert judge(int(best.depth), round(best.width)).verdict == "balanced"


def test_bad_judgements():
    with pytest.raises(ConfigError, match="depth: expected at least 1, got 0"):
        judge(0, 768)
    with pytest.raises(ConfigError, match="whole numbers"):
        judge(12.5, 768)
    with pytest.raises(ConfigError, match="params: expected"):
        judge(1, 4)


def test_comparison_of_published_models():
    verdicts = {row.model.name: row.judgement.verdict for row in compare()}
    assert verdicts["GPT-3 175B"] == "too deep"
    assert all(verdicts[f"GPT-3 {size}"] == "too shallow" for size in ("125M", "350M", "1.3B", "13B"))
    assert len(verdicts) == len(MODELS)
    assert all(model.source.startswith(("Levine", "https://")) for model in MODELS)


def test_the_embeddings_are_those_of_the_vocabulary():
    few, many = plan(1.3e9, vocab=1_000), plan(1.3e9, vocab=50_000)
    assert (few.depth, few.width, few.count.layers) == (many.depth, many.width, many.count.layers)
    assert many.count.embeddings - few.count.embeddings == 49_000 * few.width
