"""Still pictures of a page: what they show is read back out of the SVG."""

from __future__ import annotations

import base64
import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from plait.lab.figures import Band, Curve, sketch_curves, sketch_heatmap

SVG = "{http://www.w3.org/2000/svg}"


def read(text):
    return ElementTree.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def sketch(*curves, **options):
    words = {"x_label": "updates", "y_label": "score", "description": "what is seen", **options}
    return read(sketch_curves(curves, **words))


def strokes(svg):
    """Every line's points, gaps where the pen was lifted; by its colour."""
    found = {}
    for path in svg.iter(f"{SVG}path"):
        color = re.fullmatch(r"var\(--c(\d),#\w{6}\)", path.get("stroke", ""))
        if color:
            pieces = [piece for piece in path.get("d").split("M") if piece]
            found[int(color[1])] = [points(piece) for piece in pieces]
    return found


def points(piece):
    start, _, steps = piece.partition("l")
    numbers = [int(n) for n in re.findall(r"-?\d+", steps)]
    moves = np.array([[int(n) for n in start.split()], *zip(numbers[::2], numbers[1::2], strict=True)])
    return moves.cumsum(axis=0)[1:].tolist()  # the first step is nowhere


def labels(svg):
    return [text.text for text in svg.iter(f"{SVG}text")]


def test_points_lie_where_the_axes_say():
    svg = sketch(Curve([0, 50, 100], [0.0, 0.5, 1.0], "a", "solid", 2), percent=True)
    assert strokes(svg) == {2: [[[116, 448], [516, 231], [916, 14]]]}
    assert {"0", "20", "100", "0%", "100%", "updates", "score"} <= set(labels(svg))
    assert svg.get("aria-label") == "what is seen"


def test_a_logarithmic_axis_is_even_in_powers_of_ten():
    (line,) = strokes(sketch(Curve([0, 1, 2], [1e-4, 1e-2, 1.0], "a"), log_y=True))[0]
    heights = [y for _, y in line]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=1)
    assert {"1e-4", "0.01", "1"} <= set(labels(sketch(Curve([0, 1], [1e-4, 1.0], "a"), log_y=True)))
    assert {"2", "4", "6"} <= set(labels(sketch(Curve([0, 1], [1.5, 6.0], "a"), log_y=True)))


def test_what_is_not_there_leaves_a_gap():
    pieces = strokes(sketch(Curve([0, 1, 2, 3, 4], [1, 2, math.nan, 2, 1], "a")))[0]
    assert [len(piece) for piece in pieces] == [2, 2]


def test_a_single_point_and_a_dashed_line_and_a_band_are_drawn():
    svg = sketch(
        Curve([5], [1.0], "dot", "dots", 1),
        Curve([0, 5], [0.0, 2.0], "dashed", "solid", 13),
        bands=[Band([0, 5], [0.0, 0.5], [1.0, 2.0], 4)],
    )
    assert len(list(svg.iter(f"{SVG}circle"))) == 1
    (dashed,) = [path for path in svg.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert dashed.get("stroke").startswith("var(--c3,")
    (band,) = [path for path in svg.iter(f"{SVG}path") if (path.get("fill") or "").startswith("var(--c4")]
    assert band.get("d").endswith("z")


def test_one_place_alone_is_in_the_middle():
    svg = sketch(Curve([733], [0.5], "a"))
    (dot,) = svg.iter(f"{SVG}circle")
    assert int(dot.get("cx")) == (116 + 916) / 2
    assert "733" in labels(svg)


def test_names_are_escaped():
    svg = sketch(Curve([0, 1], [0.0, 1.0], "a"), x_label="<b>", description='"<i>')
    assert "<b>" in labels(svg)
    assert svg.get("aria-label") == '"<i>'


def test_a_heat_map_is_its_matrix():
    matplotlib = pytest.importorskip("matplotlib.image")
    matrix = np.array([[1.0, np.nan, np.nan], [0.25, 0.75, np.nan]])
    svg = read(sketch_heatmap(matrix, x_label="state", y_label="step", description="weights", block=10))
    (image,) = svg.iter(f"{SVG}image")
    pixels = matplotlib.imread(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2])))
    assert pixels.shape == (2, 3, 4)
    assert (pixels[..., 3] == [[1, 0, 0], [1, 1, 0]]).all(), "blank where nothing is"
    assert 255 * pixels[0, 0, :3] == pytest.approx(np.array([253, 231, 37]), abs=1)
    assert 255 * pixels[1, 0, :3] == pytest.approx(np.array([59, 82, 139]), abs=2), "a quarter of the way"
    assert {"5", "10", "20", "30"} <= set(labels(svg)), "the axes count steps, not blocks"
