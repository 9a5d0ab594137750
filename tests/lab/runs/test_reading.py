"""A run folder is read in whatever state it is."""

from __future__ import annotations

import json

import pytest

from plait.lab.runs.folder import locked
from plait.lab.runs.reading import is_run, read_folder


def test_a_whole_folder(bench):
    run = read_folder(bench.run(seed=3))
    assert (run.status, run.seed, run.updates, run.seconds, run.score) == ("complete", 3, 300, 7.0, 1.0)
    assert [(mark.update, mark.seconds, mark.score) for mark in run.marks] == [
        (100, 2.0, 0.2),
        (200, 4.0, 0.6),
        (300, 6.0, 1.0),
    ]
    assert run.losses == [(10, 2.0), (20, 1.0), (30, 0.5)]
    assert run.seconds_at([50, 150, 999]) == [1.0, 3.0, 6.0]


DAMAGES = {
    "no config": ("config.json", None, "config.json is missing"),
    "half a config": ("config.json", lambda text: text[: len(text) // 2], "config.json is cut short"),
    "another config": ("config.json", lambda text: '{"task": 3}', "config.json does not describe a run"),
    "a list": ("config.json", lambda text: "[]", "config.json holds no object"),
    "half a summary": ("summary.json", lambda text: text[:30], "summary.json is cut short"),
    "half a line": ("metrics.jsonl", lambda text: text[:-20], "metrics.jsonl ends in half a line"),
    "a broken line": (
        "metrics.jsonl",
        lambda text: text.replace('{"update": 20', "{nonsense", 1),
        "metrics.jsonl is not JSON in line 2",
    ),
    "a line of something else": (
        "metrics.jsonl",
        lambda text: text + '{"held_out": {}, "update": 900, "seconds": 1.0}\n',
        "metrics.jsonl holds a line that is no measurement",
    ),
    "a line without a time": (
        "metrics.jsonl",
        lambda text: text.replace('"seconds": 2.0, ', ""),
        "metrics.jsonl holds a line that is no measurement (KeyError('seconds'))",
    ),
    "half an environment": ("environment.json", lambda text: text[:9], "environment.json is cut short"),
    "half a trace": ("trace.json", lambda text: "{", "trace.json is cut short"),
    "not text": ("metrics.jsonl", lambda text: b"\xff\xfe\x00", "metrics.jsonl cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_never_raised(name, bench):
    folder = bench.run(trace={"layers": []})
    file, change, words = DAMAGES[name]
    if change is None:
        (folder / file).unlink()
    else:
        changed = change((folder / file).read_text())
        (folder / file).write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    bench.seal(folder)
    run = read_folder(folder)
    assert run.status == "damaged"
    assert words in run.reason
    assert is_run(folder)


def test_what_is_before_the_damage_is_kept(bench):
    folder = bench.run()
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text[:-20])
    bench.seal(folder)
    run = read_folder(folder)
    assert [mark.update for mark in run.marks] == [100, 200]
    assert len(run.losses) == 3


def test_a_partial_line_of_a_running_run_is_not_damage(bench):
    folder = bench.run()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 400')
    bench.seal(folder)
    assert read_folder(folder).status == "damaged"
    with locked(folder):
        assert read_folder(folder).status == "running"


def test_values_that_are_not_finite_do_not_reach_a_page(bench):
    from plait.lab.report.gather import gather
    from plait.lab.report.plots import plots

    folder = bench.run(losses=(2.0, float("nan"), 0.0, float("inf"), 1.0))
    (group,) = gather([folder.parent])
    loss = next(plot for plot in plots(group) if plot.key.endswith("loss"))
    assert loss.lines[0].columns["loss"] == [2.0, None, None, None, 1.0]
    json.dumps(loss.lines[0].columns, allow_nan=False)
