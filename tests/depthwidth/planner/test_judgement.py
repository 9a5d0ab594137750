"""Judgements: one word where all evidence agrees, and sentences that are true of the table beneath them."""

import re

import pytest
from hypothesis import given, strategies as st

from plait.depthwidth.planner import MODELS, compare, judge, optimal_shape
from plait.depthwidth.planner.tables import judgement_tables
from plait.errors import ConfigError


def test_distance_from_the_guideline():
    gpt3 = judge(96, 12288)
    assert gpt3.guideline_verdict == "too deep"
    assert gpt3.excess_layers == pytest.approx(96 - 80.46230851, abs=1e-6)
    assert gpt3.extrapolated
    assert gpt3.regime == "deep"
    assert gpt3.nearest[0].depth == 80
    small = judge(12, 768)
    assert small.guideline_verdict == "too shallow"
    assert not small.extrapolated
    assert small.width_ratio == pytest.approx(768 / 554.2707266)
    assert judge(23, 555).guideline_verdict == "balanced"


def test_equal_size_is_counted_in_the_models_own_layers():
    llama, plain = judge(32, 4096, params=6_979_588_096), judge(32, 4096)
    assert llama.params == 6_979_588_096
    assert llama.layer_size == pytest.approx(13.0, abs=0.01)
    assert llama.excess_layers == plain.excess_layers == pytest.approx(-22.3, abs=0.05)
    assert llama.words == plain.words
    for shape in llama.nearest:
        assert shape.params == pytest.approx(llama.layer_size * shape.depth * shape.width**2, rel=1e-9)


@pytest.mark.parametrize(
    ("depth", "width", "verdict"),
    [
        (96, 768, "too deep"),  # by the fit, all 15 models of this size, and the critical depth
        (2, 4096, "too shallow"),
        (64, 5120, "balanced"),  # Qwen2.5-32B
        (32, 4096, None),  # Llama-3-8B: 22 layers fewer than the fit's, among models of 28 to 48 layers
        (96, 12288, None),  # GPT-3: 15 more than the fit's
        (36, 1280, None),  # GPT-2 large: 1.7 fewer, within what published models have
        (32, 576, None),  # deeper than the fit's and all models, and what MobileLLM found best
        (1, 92, None),  # too deep by the fit, too shallow by our own networks
        (12, 288, None),  # balanced by the fit, and nothing else speaks at this size
    ],
)
def test_one_word_only_where_all_agree(depth, width, verdict):
    result = judge(depth, width)
    assert result.verdict == verdict
    assert result.words.startswith(f"{verdict}: ") == (verdict is not None)


def test_words_of_one_model():
    words = (
        "deeper than 3 and shallower than 13 of 25 published models of this size; "
        "the 2020 fit, extrapolated, would take 54. No one verdict: "
        "too shallow by the fit, in range by published models and Depth Delusion"
    )
    assert judge(32, 4096).words == words
    alone = judge(200, 40_000).words
    assert alone.startswith(
        "no published model of this size is known here; the 2020 fit, extrapolated, would"
    )
    assert alone.endswith("take 106, and nothing else was measured at this size")
    assert judge(6, 512).words.startswith(
        "as deep as the only published model of this size; the 2020 fit would"
    )
    assert "deeper than all 15 published models of this size" in judge(96, 768).words


def test_the_interval_holds_the_fit_published_models_and_our_networks():
    large, small = judge(32, 4096), judge(4, 300)
    assert large.interval == (28, pytest.approx(large.optimum.exact_depth + large.tolerance))
    assert large.supported_by == ("the fit", "published models")
    assert small.interval == (pytest.approx(small.optimum.exact_depth - small.tolerance), 12)
    assert small.supported_by == ("the fit", "plait's grid")


@given(st.integers(1, 200), st.floats(5.5, 12.5))
def test_the_sentence_agrees_with_the_evidence(depth, decades):
    width = max(1, round((10**decades / 12 / depth) ** 0.5))
    if 12 * depth * width**2 < 1e5:
        return
    result = judge(depth, width)
    speaking = [row for row in result.evidence if row.counts]
    votes = {row.vote(depth) for row in speaking}
    if result.verdict is None:
        assert len(speaking) == 1 or len(votes) > 1
    else:
        assert votes <= {result.verdict, "balanced"}
        assert [row.vote(depth) for row in speaking].count(result.verdict) > 1
        assert result.guideline_verdict == result.verdict
    size = 12 * depth * width**2
    same_size = [model for model in MODELS if size / 2 <= model.params <= 2 * size]
    assert len(same_size) == result.shallower + result.deeper + result.same
    if match := re.search(r"deeper than (\d+) ", result.words):
        assert int(match[1]) == sum(model.depth < depth for model in same_size)
    low, high = result.interval
    assert low <= max(1, result.optimum.exact_depth) <= high


@given(st.floats(3e6, 1e13))
def test_a_balanced_shape_is_judged_balanced(params):
    best = optimal_shape(params)
    assert judge(int(best.depth), round(best.width)).guideline_verdict == "balanced"


def test_bad_judgements():
    with pytest.raises(ConfigError, match="depth: expected at least 1, got 0"):
        judge(0, 768)
    with pytest.raises(ConfigError, match="whole numbers"):
        judge(12.5, 768)
    with pytest.raises(ConfigError, match="params: expected"):
        judge(1, 4)


def test_comparison_of_published_models():
    rows = {row.model.name: row.judgement for row in compare()}
    assert len(rows) == len(MODELS)  # no name twice
    assert rows["GPT-3 175B"].guideline_verdict == "too deep"
    gpt3 = ("125M", "350M", "1.3B", "13B")
    assert all(rows[f"GPT-3 {size}"].guideline_verdict == "too shallow" for size in gpt3)
    assert all(model.source.startswith(("Levine", "https://")) for model in MODELS)
    # A published model lies among published ones, so that no verdict against all of them is possible.
    assert {result.verdict for result in rows.values()} <= {None, "balanced"}


def test_the_table_of_nearest_shapes_has_a_title_and_a_note_only_if_it_is_empty():
    title = "Shapes of about equal size that the fit calls balanced"
    for depth, width in ((12, 768), (1, 200)):
        nearest = judgement_tables(judge(depth, width))[-1]
        assert nearest.title == title
        assert bool(nearest.rows) != bool(nearest.notes)


def test_heads_of_published_models_divide_their_widths():
    uneven = [model.name for model in MODELS if model.width % model.heads]
    assert uneven == ["GPT-3 1.3B", "GPT-3 13B"], "as printed in their paper"
