"""What a plot shows, and what it must not: an untrained run among trained ones, a line over nothing."""

from __future__ import annotations

import math

from plait.report.gather import gather
from plait.report.plots import plots


def gradient_plot(bench, **records):
    for seed, (_, lines) in enumerate(records.items()):
        folder = bench.run(seed=seed, gradients=lines).parent
    (group,) = gather([folder])
    (found,) = [plot for plot in plots(group) if "gradients" in plot.key]
    return {view.name: found.shown(view) for view in found.views}


def record(update, *norms):
    return {"update": update, "norms": [list(norms)]}


def test_a_run_without_a_later_record_is_not_shown_as_trained(bench):
    shown = gradient_plot(
        bench,
        stopped=[record(0, 1.0, 2.0, 3.0)],
        ended=[record(0, 4.0, 5.0, 6.0), record(100, 7.0, 8.0, 9.0)],
    )
    assert [ys for _, _, ys in shown["trained"]] == [[9.0, 8.0, 7.0]]
    assert sorted(ys for _, _, ys in shown["untrained"]) == [[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]


def test_a_norm_of_zero_leaves_a_gap(bench):
    shown = gradient_plot(bench, one=[record(100, 1.0, 0.0, 2.0)])
    ((_, xs, ys),) = shown["trained"]
    assert xs == [0, 1, 2]
    assert ys[0] == 2.0
    assert math.isnan(ys[1])
    assert ys[2] == 1.0


def test_a_line_of_zeros_is_not_drawn(bench):
    shown = gradient_plot(bench, one=[record(0, 0.0, 0.0), record(100, 1.0, 2.0)])
    assert list(shown) == ["trained"]
