"""One run beside another: the difference is that of the curves, and what differs is told."""

from __future__ import annotations

import pytest

from plait.lab.cli import main
from plait.lab.report.pairwise import compare_runs
from plait.lab.report.write import write_report
from plait.lab.runs.reading import read_folder

NORMS = [{"update": 300, "norms": [[1e-6, 1e-3, 1.0]]}]


@pytest.fixture
def pair(bench):
    first = bench.run("runs", "lstm", scores=(0.1, 0.2, 0.3), losses=(2.0, 1.0, 1.0), gradients=NORMS)
    second = bench.run("runs", "relrnn", scores=(0.2, 0.6, 1.0), losses=(2.0, 0.5, 0.1), recipe={"lr": 0.004})
    return first, second


def columns(plot, view=0):
    (line,) = plot.lines
    return line.columns[plot.views[view].x], line.columns[plot.views[view].y]


def test_the_difference_is_that_of_the_curves(pair):
    found = compare_runs(*map(read_folder, pair))
    assert found.title == "lstm beside relrnn"
    titles = {plot.title: plot for plot in found.plots}
    assert list(titles) == [
        "held-out accuracy",
        "held-out accuracy: relrnn − lstm",
        "training loss",
        "training loss: relrnn ÷ lstm",
        "‖∂L/∂hₜ‖",
    ]
    score = titles["held-out accuracy: relrnn − lstm"]
    assert columns(score)[0] == [100, 200, 300]
    assert columns(score)[1] == pytest.approx([10, 40, 70]), "in percentage points"
    assert columns(score, 1)[0] == [2, 4, 6], "by seconds too"
    assert [view.y_label for view in score.views] == ["percentage points"] * 2
    assert {view.y_label for view in titles["training loss: relrnn ÷ lstm"].views} == {"times"}
    assert columns(titles["training loss: relrnn ÷ lstm"])[1] == pytest.approx([1.0, 0.5, 0.1])
    both = titles["held-out accuracy"]
    assert [line.name for line in both.lines] == ["lstm", "relrnn"]


def test_curves_of_other_updates_are_compared_where_both_are(bench):
    first = bench.run("runs", "lstm", scores=(0.1, 0.2, 0.3))
    second = bench.run("runs", "relrnn", scores=(0.2, 0.4))
    plots = compare_runs(read_folder(first), read_folder(second)).plots
    assert columns(plots[1]) == ([100, 200], pytest.approx([10, 20]))


def test_differences_and_repeat_commands_are_shown(pair):
    found = compare_runs(*map(read_folder, pair))
    came, options = found.tables
    rows = {row[0]: row[1:] for row in came.rows}
    assert rows["held-out accuracy"] == ["30.0%", "100.0%"]
    assert rows["seconds"] == ["7.0", "7.0"]
    assert options.rows == [["model", "lstm", "relrnn"], ["lr", "0.001", "0.004"]]
    assert found.commands == [f"plait train --config {folder}" for folder in pair]
    assert came.title == "Results"


def test_names_tell_runs_apart(bench):
    runs = [read_folder(bench.run("runs", "relrnn", seed=seed)) for seed in (0, 1)]
    assert compare_runs(*runs).names == ["relrnn, seed 0", "relrnn, seed 1"]
    longer = read_folder(bench.run("runs", "relrnn", delay=200))
    assert compare_runs(runs[0], longer).names == ["relrnn on copy delay 100", "relrnn on copy delay 200"]
    other = read_folder(bench.run("runs", "relrnn", recipe={"lr": 0.1}))
    assert compare_runs(runs[0], other).names == [f"relrnn ({run.name[-6:]})" for run in (runs[0], other)]
    assert compare_runs(runs[0]).names == ["relrnn"], "alone it needs no more"


def test_a_run_that_says_nothing_has_no_curves_and_no_command(bench):
    first, second = bench.run("runs", "lstm"), bench.run("runs", "relrnn")
    (second / "config.json").write_text("{")
    found = compare_runs(read_folder(first), read_folder(second))
    assert found.commands[1] is None


def test_a_report_of_two_runs_shows_them_side_by_side(pair, tmp_path, capsys):
    """Though they lie in one folder: each is named."""
    assert main(["report", *map(str, pair), "-o", str(tmp_path / "r.html")]) == 0
    assert "2 runs" in capsys.readouterr().out
    text = (tmp_path / "r.html").read_text()
    assert "<h2>lstm beside relrnn</h2>" in text
    assert 'id="b-beside-0-score-difference"' in text
    assert text.count("held-out accuracy</h3>") == 1, "no chart twice"
    assert text.count('<pre class="commands">plait train --config') == 2


def test_a_run_s_page_says_how_to_repeat_it(pair, bench, tmp_path, capsys):
    write_report(pair[0], tmp_path / "one.html")
    text = (tmp_path / "one.html").read_text()
    assert "How to repeat this run: one command" in text
    assert f"plait train --config {pair[0]}" in text
    assert 'id="beside"' not in text
    assert main(["runs", "show", str(pair[0])]) == 0
    assert f"repeat: plait train --config {pair[0]}" in capsys.readouterr().out
    third = bench.run("runs", "gru")
    write_report(third.parent, tmp_path / "three.html")
    text = (tmp_path / "three.html").read_text()
    assert "How to repeat each run" in text
    assert "<h2>lstm beside" not in text
