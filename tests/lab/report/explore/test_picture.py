"""Files that the explorer's server draws: charts that the page posts, and the plane."""

import json

import pytest

CHART = {
    "title": "a chart of $5 and $6",
    "x": {"label": "updates", "kind": "linear"},
    "y": {"label": "norm", "kind": "power"},
    "curves": [
        {"label": "RelRNN", "x": [1, 2, 3], "y": [0.5, None, -3.0], "color": 0},
        {"label": "RelRNN", "x": [1, 2], "y": [0.25, 0.5], "color": 0},
        {"x": [1, 3], "y": [0.0, 0.0], "color": 13, "style": "dotted"},
    ],
    "bands": [{"x": [1, 2], "low": [0, 0.25], "high": [0.5, 1], "color": 0}],
}


def posted(ask, chart, format="svg"):
    body = chart if isinstance(chart, bytes) else json.dumps(chart).encode()
    return ask.raw(f"api/picture?format={format}", body)


def test_a_chart_is_drawn(ask):
    text = posted(ask, CHART).decode()
    assert ask.headers["content-type"] == "image/svg+xml"
    assert text.count(">RelRNN<") == 1, "seeds share a legend entry"
    assert "a chart of $5 and $6" in text, "no formula is read between the signs"
    assert posted(ask, CHART, "png").startswith(b"\x89PNG")
    assert posted(ask, CHART | {"y": {"label": "score", "kind": "percent"}}).decode().count("score (%)") == 1


@pytest.mark.parametrize(
    "chart",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 10_000,
        CHART | {"curves": [{"x": [1], "y": ["a"], "color": 0}]},
        CHART | {"y": 3},
    ],
)
def test_what_is_no_chart_is_refused(ask, chart):
    answer = json.loads(posted(ask, chart))
    assert ask.status == 400
    assert answer["error"].startswith("chart: expected axes and curves as JSON")


def test_other_refusals(ask):
    assert "expected at least one" in json.loads(posted(ask, CHART | {"curves": []}))["error"]
    assert "unknown format 'bmp'" in json.loads(posted(ask, CHART, "bmp"))["error"]
    assert "expected at most" in json.loads(posted(ask, b" " * (16 * 2**20 + 1)))["error"]
    assert "depth: expected a whole number" in ask.error("plane/picture", depth="1.5", width=3)


def test_the_plane_has_the_shape(ask):
    assert ">this shape<" in ask.raw("api/plane/picture?format=svg&depth=24&width=1024").decode()
    assert ">this shape<" not in ask.raw("api/plane/picture?format=svg").decode()
