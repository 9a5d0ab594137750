"""What a bounded memory keeps: the recorded runs say what the pages say of them."""

import json
from functools import cache
from pathlib import Path

import pytest

from plait.lab.experiments.catalogue import experiment_named
from plait.lab.report.gather import gather
from tests.pages import table_after

RESULTS = Path(__file__).parents[3] / "results/memory"


@cache
def runs_of(archive):
    return [run for group in gather([RESULTS / archive]) for cell in group.cells for run in cell.runs]


def reached(archive, **wanted):
    """Updates until 99 % of the runs of an archive whose task, model and recipe have these values."""
    found = []
    for run in runs_of(archive):
        parts = {**run.description["recipe"], **run.description["model"], **run.description["task"]}
        parts = {"lead_in": 0, "relevance": "earned", **parts, "model": run.description["model"]["name"]}
        if all(parts.get(key) == value for key, value in wanted.items()):
            found.append(next((mark.update for mark in run.marks if mark.score >= 0.99), None))
    return sorted(found, key=lambda update: (update is None, update))


def test_what_is_kept_decides_what_is_learned():
    """After a lead-in the published rule learns nothing, a learned score what a full memory learns."""
    lead = {"name": "copy", "lead_in": 60, "updates": 6000}
    assert reached("keeping.tar.gz", model="relrnn", relevance="earned", **lead) == [None] * 5
    learned = reached("held-and-late.tar.gz", model="rellstm", relevance="learned", **lead)
    assert learned == [1250, 1500, 2000, 2250, 2250]
    full = reached("peers.tar.gz", model="memlstm", **lead)
    assert full == [2250, 2500, 3000, 3000, None]
    assert all(ours <= 2 * theirs for ours, theirs in zip(learned[:4], full[:4], strict=True))


def test_an_elman_cell_learns_it_in_six_of_ten_runs():
    lead = {"name": "copy", "lead_in": 60, "updates": 6000, "lr": 2e-3, "noise": 0.1, "optimizer": "amsgrad"}
    first, then = (
        reached(archive, model="relrnn", relevance="learned", **lead)
        for archive in ("by-answers.tar.gz", "held-and-late.tar.gz")
    )
    assert (first, then) == ([1250, 1250, 1500, 1750, 4750], [3250, None, None, None, None])


def test_first_things_first_both_rules_learn_as_soon():
    first = {"name": "copy", "model": "relrnn", "lead_in": 0, "updates": 6000}
    earned = reached("keeping.tar.gz", relevance="earned", **first)
    assert (
        reached("held-and-late.tar.gz", relevance="learned", **first)
        == earned
        == [1000, 1000, 1250, 1500, 2250]
    )


@pytest.mark.parametrize(
    ("model", "optimizer", "came", "stayed"),
    [("relrnn", "amsgrad", 5, 5), ("relrnn", "adam", 5, 3), ("rellstm", "amsgrad", 4, 3)],
)
def test_what_was_held_stayed_as_the_page_says(model, optimizer, came, stayed):
    """From first reaching 99 % to the end."""
    held = [
        run
        for run in runs_of("held-and-late.tar.gz")
        if (run.description["task"]["name"], run.description["recipe"]["updates"]) == ("copy", 20_000)
        and run.description["model"]["name"] == model
        and run.description["recipe"].get("optimizer", "adam") == optimizer
    ]
    scores = [[mark.score for mark in run.marks] for run in held]
    after = [one[next(i for i, s in enumerate(one) if s >= 0.99) :] for one in scores if max(one) >= 0.99]
    assert (len(held), len(after), sum(min(one) >= 0.99 for one in after)) == (5, came, stayed)


MODELS = {
    "RelRNN earned": ("relrnn", "earned"),
    "RelRNN learned": ("relrnn", "learned"),
    "MemRNN": ("memrnn", "earned"),
    "RelLSTM earned": ("rellstm", "earned"),
    "RelLSTM learned": ("rellstm", "learned"),
    "MemLSTM": ("memlstm", "earned"),
    "LSTM, chrono": ("lstm", "earned"),
    "Transformer, two layers": ("transformer", "earned"),
}


@pytest.mark.parametrize("model", MODELS)
def test_every_lead_in_as_the_page_says(model):
    """The columns 5, 20 and 200 of the page's table are those of one archive."""
    table = table_after(RESULTS / "README.md", "| model | 0 | 5 | 20 | 60 | 200 |")
    rows = {name: cells for name, *cells in table}
    assert set(rows) == set(MODELS)
    name, relevance = MODELS[model]
    for place, lead_in in ((1, 5), (2, 20), (4, 200)):
        found = reached("held-and-late.tar.gz", name="copy", model=name, relevance=relevance, lead_in=lead_in)
        came = [update for update in found if update is not None]
        said = rows[model][place]
        assert said.startswith(f"{len(came)} of {len(found)}"), (lead_in, said)
        if came:
            assert f"{min(came):,}" in said, (lead_in, said)
            assert f"{max(came):,}" in said, (lead_in, said)


def test_denoise_over_a_thousand_steps_is_learned_at_shorter_delays_too():
    task = {"name": "denoise", "delay": 1000, "shortest_delay": 30}
    assert reached("held-and-late.tar.gz", model="relrnn", relevance="earned", **task) == [
        3250,
        3250,
        3750,
        5250,
        None,
    ]
    assert reached("held-and-late.tar.gz", model="rellstm", relevance="learned", **task) == [None] * 5
    alone = {"name": "denoise", "delay": 1000}
    without = [run for run in runs_of("held-and-late.tar.gz") if run.description["task"] == alone]
    assert without
    assert max(mark.score for run in without for mark in run.marks) < 0.5


READERS = {
    "LSTM, chrono": ("lstm", 1),
    "RelLSTM learned, 10 + 15 states": ("rellstm", 1),
    "RelLSTM learned, two layers": ("rellstm", 2),
    "MemLSTM, all states": ("memlstm", 1),
    "Transformer, two layers (keys and values)": ("transformer", 2),
}


@pytest.mark.parametrize("model", READERS)
def test_pairs_as_the_page_says(model):
    """What every model ends with, at three sizes, its answers due at once and two steps later."""
    ends = {
        (run.description["task"]["length"], run.description["task"].get("after", 0)): run.score
        for run in runs_of("mqar.tar.gz")
        if (run.description["model"]["name"], run.description["model"]["num_layers"]) == READERS[model]
    }
    cells = (ends.get((length, after)) for after in (0, 2) for length in (64, 128, 256))
    told = ["–" if score is None else f"{100 * score:.1f} %" for score in cells]
    head = (
        "| model | bytes of state after 64, 128, 256 steps | 64, 4 pairs | 128, 8 | 256, 16 "
        "| two steps later: 64, 4 | 128, 8 | 256, 16 |"
    )
    rows = {name: cells for name, _, *cells in table_after(RESULTS / "README.md", head)}
    assert set(rows) == set(READERS)
    assert rows[model] == told


def test_use_counted_by_answers_learns_with_every_seed():
    lines = [json.loads(line) for line in (RESULTS / "more-ideas.jsonl").read_text().splitlines()]
    wanted = {"use_by": "answers", "lead": 60}
    runs = [
        one["curve"]
        for one in lines
        if wanted.items() <= one.items()
        and (one["model"]["name"], one["model"]["usage"]) == ("rellstm", 1.0)
        and "optimizer" not in one["recipe"]
    ]
    assert sorted(next(u for u, score, _ in curve if score >= 0.99) for curve in runs) == [
        1250,
        1500,
        1750,
        2000,
        2250,
    ]


@pytest.mark.parametrize(("settles", "stay"), [(None, 0), (0.1, 5), (0.03, 5), (0.01, 5)])
def test_what_settles_is_not_lost(settles, stay):
    """RelRNN on copy at delay 100, from first reaching 99 % to the end of the run."""
    lines = [json.loads(line) for line in (RESULTS / "more-ideas.jsonl").read_text().splitlines()]
    plain = {"updates": 20000, "clip": 1.0, "lr": 0.001, "evaluate_every": 200, "record_every": 100}
    curves = [
        one["curve"]
        for one in lines
        if one["model"] == {"name": "relrnn"}
        and {k: v for k, v in one["recipe"].items() if k not in ("seed", "schedule")} == plain
        and one.get("settles_at") == settles
    ]
    first = [next(u for u, score, _ in curve if score >= 0.99) for curve in curves]
    lowest = [min(score for u, score, _ in c if u >= begin) for c, begin in zip(curves, first, strict=True)]
    assert len(curves) == 5
    assert sum(score >= 0.99 for score in lowest) == stay


def test_the_plan_asks_for_every_lead_in_and_for_what_comes_late():
    rows = {run.row for run in experiment_named("keeping").runs}
    assert {f"lead-in {n}" for n in (0, 5, 20, 60, 200)} <= rows
    assert {"recall at step 60", "recall at any step", "denoise 1000", "mqar 64, 4 pairs"} <= rows
    assert {"denoise 100, tested at delay 1000", "mqar 64, 4 pairs, two steps later"} <= rows
    assert {"lead-in 60, tested at delay 1000", "lead-in 60, tested at delay 5000"} <= rows
