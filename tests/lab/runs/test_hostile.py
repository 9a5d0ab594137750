"""A run that cannot be read is a row that says so; the others are shown, and no reader fails."""

from __future__ import annotations

import json
import os

import pytest

from plait.lab.cli import main
from plait.lab.runs.reading import all_runs

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from plait.lab.report.explore.app import application


def _config(change):
    def changed(folder):
        path = folder / "config.json"
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return changed


def _summary(**values):
    def changed(folder):
        path = folder / "summary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return changed


def _bytes(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def _line(text):
    def changed(folder):
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(text + "\n")

    return changed


def _instead(name, make):
    def changed(folder):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return changed


DEEP = "[" * 200_000 + "]" * 200_000
DAMAGES = {
    "bytes in metrics": (_bytes("metrics.jsonl", b"\xff\xfe\x00\n"), "metrics.jsonl"),
    "bytes in config": (_bytes("config.json", b"\xff\xfe\x00"), "config.json"),
    "bytes in environment": (_bytes("environment.json", b"\xff"), "environment.json"),
    "a number for a line": (_line("5"), "metrics.jsonl"),
    "deep line": (_line(DEEP), "metrics.jsonl"),
    "infinite update": (_line('{"update": Infinity, "loss": 1}'), "metrics.jsonl"),
    "long number": (_line('{"update": 9, "loss": 1' + "0" * 400 + "}"), "metrics.jsonl"),
    "score of text": (_line('{"update": 9, "held_out": {"test": {"score": "high"}}}'), "metrics.jsonl"),
    "results of text": (
        _line('{"update": 9, "held_out": {"test": {"score": 1}, "long": 3}}'),
        "metrics.jsonl",
    ),
    "lines in gradients": (_bytes("gradients.jsonl", b"5\n"), "gradients.jsonl"),
    "NaN in config": (_config(lambda c: c["recipe"].update(lr=float("nan"))), "config.json"),
    "surrogate in config": (_config(lambda c: c["task"].update(name="\ud800")), "config.json"),
    "deep config": (_bytes("config.json", DEEP.encode()), "config.json"),
    "nested config": (
        lambda folder: (folder / "config.json").write_text(
            '{"task": {"x": ' + "[" * 900 + "]" * 900 + '}, "model": {}, "recipe": {}}'
        ),
        "config.json",
    ),
    "seed of text": (_config(lambda c: c["recipe"].update(seed="one")), "config.json"),
    "format of a list": (_config(lambda c: c.update(format=[])), "config.json"),
    "extended by text": (_config(lambda c: c.update(extended=3)), "config.json"),
    "updates of text": (_summary(updates="many"), "summary.json"),
    "seconds of a list": (_summary(seconds=[1]), "summary.json"),
    "best score of text": (_summary(best_score="high"), "summary.json"),
    "NaN in the summary": (_summary(best_score=float("nan")), "summary.json"),
    "sessions of a number": (_bytes("environment.json", b'{"sessions": [3]}'), "environment.json"),
    "config nowhere": (_instead("config.json", lambda p: p.symlink_to("nowhere")), "config.json"),
    "metrics nowhere": (_instead("metrics.jsonl", lambda p: p.symlink_to("nowhere")), "metrics.jsonl"),
    "metrics in a circle": (_instead("metrics.jsonl", lambda p: p.symlink_to(p.name)), "metrics.jsonl"),
    "metrics a folder": (_instead("metrics.jsonl", lambda p: p.mkdir()), "metrics.jsonl"),
    "metrics a pipe": (_instead("metrics.jsonl", os.mkfifo), "metrics.jsonl"),
    "config a folder": (_instead("config.json", lambda p: p.mkdir()), "config.json"),
    "trace nowhere": (_instead("trace.json", lambda p: p.symlink_to("nowhere")), "trace.json"),
}
ADDRESSES = ("runs", "group", "plot", "memory/runs", "norms/runs")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_bad_run_is_a_row_and_the_others_are_shown(name, bench, capsys):
    good, bad = bench.run(seed=1), bench.run(seed=2)
    damage, file = DAMAGES[name]
    damage(bad)
    bench.seal(bad)
    out = bad.parent

    records = {record.folder.name: record for record in all_runs(out)}
    assert records[good.name].status == "complete"
    assert records[bad.name].status == "damaged"
    assert file in records[bad.name].reason

    assert main(["runs", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "complete" in shown
    assert f"damaged: {file}" in shown
    assert main(["runs", str(out), "--json"]) == 0
    rows = {os.path.basename(row["folder"]): row for row in json.loads(capsys.readouterr().out)}
    assert file in rows[bad.name]["reason"]
    assert main(["runs", "show", str(bad)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "bug in plait" not in said
    assert main(["report", str(out), "-o", str(out / "report.html")]) == 0
    assert file in (out / "report.html").read_text()
    browser = TestClient(application(out), base_url="http://localhost", raise_server_exceptions=False)
    answers = {name: browser.get(f"/api/{name}") for name in ADDRESSES}
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(ADDRESSES, 200)
    assert file in answers["runs"].json()["damaged"][0]


def test_what_lies_between_the_runs_does_not_matter(bench, capsys):
    good = bench.run()
    (good.parent / "gone").symlink_to("nowhere")
    (good.parent / "gone.json").symlink_to("nowhere")
    (good.parent / "circle").symlink_to("circle")
    (good / "lock").unlink(missing_ok=True)
    (good / "lock").mkdir()
    assert main(["runs", str(good.parent)]) == 0
    assert "complete" in capsys.readouterr().out
    browser = TestClient(application(good.parent), base_url="http://localhost", raise_server_exceptions=False)
    assert browser.get("/api/runs").status_code == 200


def test_show_works_with_missing_fields(bench, capsys):
    folder = bench.run()  # its session says neither threads nor processes
    assert main(["runs", "show", str(folder)]) == 0
    assert "torch 2.13.0, A Processor, ? threads" in capsys.readouterr().out
    values = json.loads((folder / "config.json").read_text())
    del values["recipe"]["updates"]
    (folder / "config.json").write_text(json.dumps(values))
    bench.seal(folder)
    assert main(["runs", "show", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "config.json does not say for how many updates" in said


def test_a_file_without_measure_is_not_read(bench, monkeypatch):
    folder = bench.run()
    monkeypatch.setattr("plait.lab.runs.folder.MOST_TEXT", 1000)
    (folder / "metrics.jsonl").write_text("{}\n" * 1000)
    bench.seal(folder)
    (record,) = all_runs(folder.parent)
    assert (record.status, record.reason) == ("damaged", "metrics.jsonl cannot be read")
