"""The demonstration trains once, goes on where it was stopped, and says what it did."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.errors import BusyError, OutputError, PlaitError
from plait.lab.cli import main
from plait.lab.experiments.demo import MODELS, Plan, run_demo
from plait.lab.experiments.plan import jobs_of
from plait.lab.report.attention import read_sample
from plait.lab.report.demo_page import headline, results_table
from plait.lab.report.pictures import kept_lines
from plait.lab.runs.folder import locked
from plait.lab.runs.reading import read_run
from plait.lab.tasks.ten_symbols import SYMBOLS

LONG = 100_000  # updates nobody waits for


def test_all_models_make_the_same_updates_from_the_same_seed(trained, small_plan):
    found, _ = trained
    assert list(found) == list(MODELS)
    for run in found.values():
        assert run.summary["status"] == "complete"
        assert run.summary["updates"] == small_plan.recipe.updates
        assert run.session["threads"] == 1
        assert run.held_out()[0] == [3, 6]
    recipes = {
        name: json.loads((run.folder / "config.json").read_text())["recipe"] for name, run in found.items()
    }
    assert recipes["chosen"] == recipes["latest"] == recipes["all"]
    assert {**recipes["lstm"], "lr": recipes["all"]["lr"]} == recipes["all"]


def test_a_head_reads_as_many_states_as_the_page_says(trained, small_plan):
    found, _ = trained
    read = {name: run.states_read for name, run in found.items()}
    assert read == {"chosen": 7, "latest": 7, "all": None, "rellstm": None, "lstm": None}
    sample = read_sample(found["chosen"].folder, SYMBOLS)
    assert len(sample.predictions) == len(sample.targets) == SYMBOLS
    assert sample.targets == sample.inputs[:SYMBOLS], "the copy task's answer"
    marker = small_plan.delay + SYMBOLS
    assert set(range(marker - 3, marker + 1)) <= set(sample.kept_at(marker)), "the window"
    shown, kept = kept_lines(sample, marker).split("\n")
    assert (
        shown.removeprefix("shown  ")
        == "".join(map(str, sample.inputs[:SYMBOLS])) + "·" * (small_plan.delay - 1) + "▮"
    )
    assert [at for at, mark in enumerate(kept[7:], start=1) if mark == "#"] == sample.kept_at(marker)


def test_the_command_shown_makes_the_run_that_is_read(trained, tmp_path):
    """The page says how to repeat each run: that ends in a folder of the same name with the same numbers."""
    found, _ = trained
    for run in found.values():
        config = ["train", "--config", str(run.folder), "--device", "cpu"]
        assert main([*config, "--out", str(tmp_path), "--quiet"]) == 0
        again = tmp_path / run.folder.name
        metrics = [(folder / "metrics.jsonl").read_text() for folder in (again, run.folder)]
        one, two = (re.sub(r'"seconds": [0-9.]+, ', "", text) for text in metrics)  # but for the clock
        assert one == two


def test_complete_runs_are_used_again_and_fresh_trains_again(trained, small_plan, capsys):
    found, out = trained
    stamps = {name: (run.folder / "summary.json").stat().st_mtime_ns for name, run in found.items()}
    again = run_demo(small_plan, out)
    assert capsys.readouterr().err.count("is complete and reused") == 5
    assert {name: run.summary for name, run in again.items()} == {n: run.summary for n, run in found.items()}
    fresh = run_demo(small_plan, out, fresh=True)
    said = capsys.readouterr().err
    assert "reused" not in said
    assert "delay 12  RelLSTM  seed 0  update 6/6" in said
    for name, run in fresh.items():
        assert (run.folder / "summary.json").stat().st_mtime_ns != stamps[name]
        assert run.accuracy == found[name].accuracy


def test_table_and_headline_say_what_the_runs_say(trained, small_plan):
    found, _ = trained
    table = results_table(small_plan, found)
    assert [row[0] for row in table.rows] == list(MODELS.values())
    assert [row[2] for row in table.rows] == [7, 7, "all 32", 7, "one, its own"]
    assert [row[3] for row in table.rows] == [6] * 5
    assert "was meant to reach 99.0% here and did not" in headline(small_plan, found)
    good = dataclasses.replace(found["chosen"], summary={**found["chosen"].summary, "score": 0.995})
    said = headline(small_plan, {**found, "chosen": good})
    assert "may read 7 states recalls 99.5% of the symbols if it chooses them" in said
    assert "meant" not in said


def test_a_run_in_use_is_left_alone(trained, small_plan):
    found, out = trained
    with locked(found["lstm"].folder), pytest.raises(BusyError, match="in use by another process"):
        run_demo(small_plan, out, fresh=True, quiet=True)
    assert all(run.folder.exists() for run in found.values()), "all of them, or none"


def test_what_a_run_complains_of_is_one_error(tmp_path, small_plan):
    """Both runs end, the one that can does so whole, and the next call tries the other again."""
    jobs = dict(zip(MODELS, jobs_of(small_plan.experiment(), tmp_path), strict=True))
    folder = Path(jobs["lstm"].folder)
    folder.mkdir()
    (folder / "thesis.tex").write_text("words")
    with pytest.raises(PlaitError, match=r"^1 run failed; .*LSTM, seed 0\): OutputError: .* not empty"):
        run_demo(small_plan, tmp_path, quiet=True)
    assert read_run(Path(jobs["chosen"].folder)).status == "complete"
    (folder / "thesis.tex").unlink()
    assert run_demo(small_plan, tmp_path, quiet=True)["lstm"].summary["status"] == "complete"


@pytest.fixture
def endless(tmp_path):
    """A demonstration in a process of its own that would take for ever, and the two runs it has begun."""
    script = f"""
import sys
import plait.lab.experiments.demo as demo
from plait.lab.cli import main
from plait.lab.training.recipe import Recipe
recipe = Recipe(updates={LONG}, batch_size=2, evaluate_every=50, evaluate_on=2)
small = demo.Plan(delay=2, hidden=8, window=2, capacity=2, recipe=recipe)
demo.Plan = lambda recipe=recipe: small
sys.exit(main(["demo", "--out", {str(tmp_path)!r}]))
"""
    processes = []

    def start():
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start, tmp_path / "runs"
    for process in processes:
        if process.poll() is None:  # a failed test must not leave two runs at work for ever
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def stopped(process, number, runs):
    """Send the signal; what was said, and how far the runs are."""
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    for run in runs:
        summary = json.loads((run / "summary.json").read_text())
        assert (summary["status"], summary["reason"]) == ("stopped", "asked to")
    return said, [read_run(run).updates for run in runs]


def test_ctrl_c_saves_both_runs(endless):
    start, out = endless
    process = start()
    said, _ = stopped(process, signal.SIGINT, wait_for_both(out))
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "plait: interrupted"


@pytest.mark.slow
def test_sigterm_saves_and_the_next_call_resumes(endless):
    start, out = endless
    process = start()
    runs = wait_for_both(out)
    said, first = stopped(process, signal.SIGTERM, runs)
    assert process.returncode == 143
    assert "Traceback" not in said
    process = start()
    deadline = time.monotonic() + 60
    while any(read_run(run).updates <= last for run, last in zip(runs, first, strict=True)):
        assert time.monotonic() < deadline, "the runs did not go on"
        time.sleep(0.2)
    stopped(process, signal.SIGTERM, runs)
    sessions = [json.loads((run / "environment.json").read_text())["sessions"] for run in runs]
    assert [[entry["from_update"] for entry in of_run] for of_run in sessions] == [[0, n] for n in first]


def wait_for_both(out):
    deadline = time.monotonic() + 60
    while True:
        runs = sorted(path.parent for path in out.glob("*/config.json"))
        files = [run / "metrics.jsonl" for run in runs]
        if len(files) == 2 and all(f.exists() and b"held_out" in f.read_bytes() for f in files):
            return runs
        assert time.monotonic() < deadline, "the runs did not begin"
        time.sleep(0.1)


def test_unwritable_folder_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file"), "--quiet"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("plait: error: cannot make the folder")
    assert captured.err.count("\n") == 1
    with pytest.raises(OutputError):
        run_demo(Plan(), tmp_path / "file" / "runs")


def test_bad_seed_is_one_line(tmp_path, capsys):
    assert main(["demo", "--seed", "-1", "--out", str(tmp_path)]) == 2
    assert "seed: expected at least 0, got -1" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demonstration_shows_what_it_promises(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs["chosen"]["score"] >= 0.99
    assert runs["all"]["score"] >= 0.99
    assert max(runs[name]["score"] for name in ("latest", "rellstm", "lstm")) < 0.5
    sample = read_sample(Path(runs["chosen"]["folder"]), SYMBOLS)
    assert sample.correct == SYMBOLS
    assert sample.share_on(SYMBOLS + 1, SYMBOLS) > 0.5, "symbols are read where they were kept"
