"""The planner: budgets kept, widths on their grid, verdicts as published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.depthwidth import MODELS, compare, judge, optimal_shape, param_count, plan
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
    assert best.count.layers > best.params  # biases and norms on top of 12·L·d²


@given(st.floats(1e9, 1e14))
def test_fine_grids_reach_the_guideline(params):
    best, exact = plan(params, head_size=1, multiple_of=1), optimal_shape(params)
    assert abs(best.depth - exact.exact_depth) <= 1.01
    assert best.params / params == pytest.approx(1, abs=0.03)


def test_total_budget_pays_for_embeddings():
    best = plan(1.3e9, total=True)
    assert best.budget + 50257 * best.optimum.exact_width == pytest.approx(1.3e9, rel=1e-6)
    with pytest.raises(ConfigError, match="beside the embeddings"):
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
        ({"params": 1e9, "head_size": 0}, "head_size: expected at least 1"),
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
    real = judge(32, 4096, params=6_979_588_096)
    assert real.params == 6_979_588_096
    assert real.excess_layers < judge(32, 4096).excess_layers


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
