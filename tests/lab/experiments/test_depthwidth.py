"""Depth against width: what is planned, and a smoke run from the command line to its page."""

import json

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.experiments.catalogue import experiment_named
from plait.lab.experiments.depthwidth import PER_LAYER, Grid, grids_of
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.selection import Selection

FIGURE, TUNED = experiment_named("depthwidth-figure1"), experiment_named("depthwidth-tuned")


def test_grid_must_rise():
    with pytest.raises(ConfigError, match="budgets: expected rising"):
        Grid("softmax", depths=(1, 2), budgets=(1000, 500))
    with pytest.raises(ConfigError, match="head_size"):
        Grid("softmax", depths=(1,), budgets=(1000,), head_size=0)


def test_runs_of_a_budget_are_nearly_equal_in_size():
    """Whole heads cost the smallest networks up to half of their budget, those of a million under 12 %."""
    for grid in grids_of("depthwidth-figure1"):
        for budget in grid.budgets:
            for depth in grid.depths:
                share = PER_LAYER[grid.network] * depth * grid.width(depth, budget) ** 2 / budget
                assert 0.5 < share < 1.7
                assert budget < 1_000_000 or abs(share - 1) < 0.12


def test_every_shape_is_planned_and_its_jobs_are_complete(tmp_path):
    assert FIGURE.count == 2 * sum(len(g.depths) * len(g.budgets) for g in grids_of("depthwidth-figure1"))
    jobs = jobs_of(FIGURE, tmp_path)
    assert len({job.id for job in jobs}) == FIGURE.count == 144
    assert jobs[0].spec.parts()["recipe"]["warmup"] == 100
    assert jobs[0].spec.parts()["task"]["sha256"] == "78b9ef32b1d965e4"
    assert {job.spec.parts()["recipe"]["peak"] for job in jobs} == {0.024, 0.032}


def test_the_tuned_grid():
    assert TUNED.count == 4 * 4 * 5 * 2
    assert {run.model["name"] for run in TUNED.runs} == {"softmax"}
    peaks = {run.recipe["peak"] for run in TUNED.runs}
    assert min(peaks) <= 0.032 < max(peaks)
    assert {run.recipe["updates"] for run in TUNED.runs} == {1500, 4500}


def test_a_text_of_ones_own_is_for_these_networks_alone(tmp_path):
    selection = Selection.read(text=("book.txt",))
    assert selection.of(FIGURE).needs == ""
    assert selection.of(FIGURE).runs[0].task["text"][0].endswith("/book.txt")
    with pytest.raises(ConfigError, match="--text does not apply"):
        selection.of(experiment_named("table5"))
    with pytest.raises(ConfigError, match="compares shapes of networks"):
        Selection.read("mine:first").of(FIGURE)


def test_smoke_runs_are_trained_and_shown(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("a strand over a strand under a strand <unk>\n" * 700)
    out = tmp_path / "out"
    command = ["reproduce", "depthwidth-figure1", "--smoke", "--text", str(tmp_path / "book.txt"), "--json"]
    command += ["--device", "cpu", "--together", "1", "--rows", "softmax", "--out", str(out)]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["outcome"]["complete"] == len(first["cells"]) == 4
    page = (out / "report.html").read_text()
    for words in ("What this does not show", "4 of 4 runs", "test loss (bits per character)", "1 → 2"):
        assert words in page
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["outcome"]["complete"], again["outcome"]["already"]) == (0, 4)
    assert again["cells"] == first["cells"]
    assert main(["report", str(out), "-o", str(out / "figures.png"), "--format", "png"]) == 0
    assert (out / "figures-depthwidth-figure1-smoke-figure1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["depthwidth-figure"], "did you mean 'depthwidth-figure1'"),
        (["depthwidth-figure1", "--smoke"], "set PLAIT_DATA"),
        (["depthwidth-figure1", "--smoke", "--text", "absent.txt"], "absent.txt"),
    ],
)
def test_errors(arguments, words, capsys, monkeypatch, tmp_path, nowhere):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
