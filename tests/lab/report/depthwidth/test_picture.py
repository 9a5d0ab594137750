"""The picture has the curves of the records, and the predictions at their places."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from plait.depthwidth.planner import transition_params
from plait.lab.report.depthwidth.networks import ShapeLoss, behind, crossing
from plait.lab.report.depthwidth.picture import draw_cells


def made(kind="softmax", depths=(1, 2, 6), sizes=(1e5, 1e6, 1e7)):
    """Deeper is worse at first and better in the end."""
    return [
        ShapeLoss(
            kind,
            depth,
            16,
            int(size * (1 + depth / 50)),
            2 - 0.15 * i * (1 + depth / 10) + 0.02 * depth,
            0.01,
            2,
        )
        for depth in depths
        for i, size in enumerate(sizes)
    ]


def test_curves_of_both_architectures():
    cells = made() + made("linear", (1, 4))
    losses, linear, *_ = draw_cells(cells).axes
    curves = {line.get_label(): line for line in losses.lines if "layer" in str(line.get_label())}
    assert list(curves) == ["1 layer", "2 layers", "6 layers"]
    for depth, line in zip((1, 2, 6), curves.values(), strict=True):
        mine = [cell for cell in cells if (cell.network, cell.depth) == ("softmax", depth)]
        np.testing.assert_allclose(line.get_xdata(), [cell.parameters for cell in mine])
        np.testing.assert_allclose(line.get_ydata(), [cell.loss / np.log(2) for cell in mine])
    assert [t.get_text() for t in linear.get_legend().get_texts()] == ["1 layer", "4 layers"]


def test_predictions_stand_where_the_guideline_and_the_theory_say():
    losses, linear, *_ = draw_cells(made() + made("linear", (1, 4))).axes
    upright = {
        line.get_xdata()[0]: line.get_linestyle() for line in losses.lines if line.get_ydata()[-1] == 1
    }
    expected = {transition_params(depth).value: "--" if depth == 6 else ":" for depth in (1, 2, 6)}
    assert upright == expected
    ticks = [line.get_xdata()[0] for line in linear.lines if line.get_marker() == "^"]
    assert ticks == [4 * 4 * 9.0**4]  # width 81 at 4 layers; one layer's place is off the axis
    assert not [line for line in linear.lines if line.get_linestyle() in ("--", ":")]


def test_crossing_and_lag():
    cells = made(depths=(1, 6))
    shallow, deep = ([cell for cell in cells if cell.depth == depth] for depth in (1, 6))
    size = crossing(shallow, deep)
    assert size is not None
    assert 1e6 < size < 1e7
    lag = behind(cells)
    assert all(value >= 0 for value in lag.values())
    assert lag[deep[0]] > 0.09
    assert lag[shallow[-1]] > 0.04
    assert lag[shallow[1]] == 0
    assert shallow[0] not in lag  # smaller than every other: nothing to compare it with


def test_one_cell_is_enough(tmp_path):
    assert len(draw_cells([ShapeLoss("linear", 1, 16, 1024, 2.0)]).axes) == 2
