"""What a plot shows, and what it must not: an untrained run among trained ones, a line over nothing."""

from __future__ import annotations

import math

from plait.lab.report.figure_files import _figures
from plait.lab.report.gather import gather
from plait.lab.report.plots import plots


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


def test_what_a_longer_delay_costs_is_drawn_from_three_delays_on(bench):
    planned = [(f"T = {delay}", "RelRNN", "relrnn", delay, None, "") for delay in (10, 20, 30)]
    where = bench.experiment("costs", planned, seeds=(0, 1, 2))
    for delay, first in ((10, 1), (20, 2), (30, 4)):
        for seed in (0, 1, 2):
            reached = (0.5,) * (first - 1 + seed) + (1.0,)
            bench.run(
                "costs", delay=delay, seed=seed, scores=reached if delay < 30 or seed == 0 else (0.5, 0.6)
            )
    (group,) = gather([where])
    costs = plots(group)[0]
    assert costs.key == "table5-delays"
    (line,) = costs.lines
    assert line.columns["delay"] == [10, 20, 30]
    assert line.columns["updates"] == [200, 300, None]  # two of three did not get there at 30
    assert line.columns["seconds"] == [4, 6, None]
    assert [view.name for view in costs.views] == ["updates", "seconds"]


def test_two_delays_give_no_cost_plot(bench):
    planned = [(f"T = {delay}", "RelRNN", "relrnn", delay, None, "") for delay in (10, 20)]
    where = bench.experiment("costs", planned, seeds=(0,))
    for delay in (10, 20):
        bench.run("costs", delay=delay)
    (group,) = gather([where])
    assert not [plot for plot in plots(group) if "delays" in plot.key]


def test_figures_on_paper_show_losses_as_they_are_and_accuracies_in_per_cent(bench):
    folder = bench.run(scores=(0.2, 0.6, 1.0), losses=(2.0, 1.0, 0.5)).parent
    (group,) = gather([folder])
    curves = {name: figure.axes[0].lines[0].get_ydata().tolist() for name, figure in _figures(group)}
    assert [2.0, 1.0, 0.5] in curves.values()
    assert [20.0, 60.0, 100.0] in curves.values()
