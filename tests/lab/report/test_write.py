"""`plait report` and `write_report`: every format, and what goes wrong on the way."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

import plait.lab.report
from plait.errors import UnknownNameError
from plait.lab.cli import main
from plait.lab.report.write import write_report

VENDOR = Path(plait.lab.report.__file__).parent / "vendor"
NORMS = [{"update": 0, "norms": [[0.1, 0.2, 0.0]]}, {"update": 300, "norms": [[1e-9, 1e-3, 1.0]]}]
TRACE = {
    "inputs": [1, 2, 0],
    "targets": [0, 0, 1],
    "layers": [
        {
            "born": [[0, -1], [0, 1], [1, 2]],
            "weights": [[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]],
            "relevance": [[0.0, 0.0]] * 3,
        }
    ],
}


@pytest.fixture
def runs(bench):
    for seed in (0, 1):
        bench.run(seed=seed, gradients=NORMS, trace=TRACE)
        bench.run(model="lstm", seed=seed, scores=(0.1, 0.2, 0.3), gradients=NORMS)
    return bench.root / "runs"


def test_vendored_files_are_as_they_came():
    listed = dict(
        reversed(line.split()[:2])
        for line in (VENDOR / "README.txt").read_text().splitlines()
        if re.match(r"[0-9a-f]{64} ", line)
    )
    assert set(listed) == {path.name for path in VENDOR.iterdir()} - {"README.txt"}
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    assert "uPlot 1.6.32, MIT" in (VENDOR / "README.txt").read_text()


class Data(HTMLParser):
    """The JSON in a page, and the addresses it names."""

    def __init__(self):
        super().__init__()
        self.inside, self.text, self.addresses = False, "", []

    def handle_starttag(self, tag, attributes):
        self.inside = ("id", "data") in attributes
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.text += data


def page_data(path):
    parser = Data()
    parser.feed(path.read_text(encoding="utf-8"))
    assert not [a for a in parser.addresses if not a.startswith(("#", "data:"))], "the page loads something"
    return json.loads(parser.text, parse_constant=lambda word: pytest.fail(f"{word} in the page"))


def test_the_page_holds_the_curves_of_the_runs(runs, tmp_path):
    written = write_report(runs, tmp_path / "report.html")
    assert written.files == [tmp_path / "report.html"]
    data = page_data(tmp_path / "report.html")
    score = data["g0-runs-0-score"]["lines"]
    assert [(line["name"], line["seed"]) for line in score] == [
        ("lstm", 0),
        ("lstm", 1),
        ("relrnn", 0),
        ("relrnn", 1),
    ]
    assert score[2]["columns"] == {
        "update": [100, 200, 300],
        "seconds": [2.0, 4.0, 6.0],
        "score": [0.2, 0.6, 1.0],
    }
    assert score[0]["color"] != score[2]["color"]
    together = data["g0-runs-0-score"]["views"][0]["together"]
    assert [(one["name"], one["count"], one["mean"]) for one in together] == [
        ("lstm", 2, [0.1, 0.2, 0.3]),
        ("relrnn", 2, [0.2, 0.6, 1.0]),
    ]
    gradients = data["g0-runs-0-gradients"]["lines"][0]["columns"]
    assert gradients == {"distance": [0, 1, 2], "last": [1.0, 0.001, 1e-9], "first": [None, 0.2, 0.1]}
    (attention,) = [value for key, value in data.items() if key.endswith("attention")]
    assert attention == {"rows": [[0, 1000], [0, 250, 1, 750], [1, 500, 2, 500]], "block": 1, "steps": 3}


def test_every_figure_has_a_picture_that_needs_no_script(runs, tmp_path):
    write_report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    figures = re.findall(r"<figure id=.*?</figure>", text, re.DOTALL)
    assert len(figures) == 4, "score, loss, gradients, attention"
    for figure in figures:
        still = figure[figure.index('class="still"') : figure.index('class="live"')]
        assert "<svg" in still
        assert 'role="img"' in still
    assert 'stroke="var(--c0' in figures[0], "relrnn's own colour"
    assert "lstm ×2" in figures[0]
    assert "data:image/png" in figures[-1]
    assert "needs a script" not in text


def test_names_are_escaped(bench, tmp_path):
    plan = [("<script>alert(1)</script>", "</script><b>", "relrnn", 100, 1.0, "")]
    folder = bench.experiment("table5", plan, title="a <i> & b")
    bench.run("table5")
    write_report(folder, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in text
    assert "</script><b>" not in text
    assert "a &lt;i&gt; &amp; b" in text
    assert page_data(tmp_path / "report.html")["g0-table5-0-score"]["lines"][0]["name"] == "</script><b>"


def test_the_page_marks_differences_and_damage(bench, tmp_path):
    folder = bench.experiment("table5", [("T = 100", "RelRNN", "relrnn", 100, 1.0, "")])
    bench.run("table5")
    broken = bench.run("table5", seed=1)
    (broken / "config.json").write_text("{")
    write_report(folder, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert '<small class="agrees">✓ agrees</small>' in text
    assert f"{broken.name}: damaged, not counted: config.json is cut short or not JSON" in text


def test_markdown(runs, tmp_path, capsys):
    assert main(["report", str(runs), "-o", str(tmp_path / "r.md")]) == 0
    text = (tmp_path / "r.md").read_text()
    assert "| copy, delay 100 | relrnn | 100.0% | 2 | 300 | 6.0 | 2 complete |" in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "abcdef012345" in text


def test_csv_has_a_row_a_run_and_a_row_a_point(runs, tmp_path):
    files = write_report(runs, tmp_path / "r.csv", "csv").files
    rows, points = (list(csv.DictReader(path.read_text().splitlines())) for path in files)
    assert [path.name for path in files] == ["r.csv", "r-curves.csv"]
    assert len(rows) == 4
    assert {row["updates_to_target"] for row in rows} == {"300", ""}
    assert len(points) == 4 * (3 + 3 + 3)
    gradient = [p for p in points if p["run"] == rows[2]["run"] and p["curve"] == "gradient"]
    assert [(p["x"], float(p["y"])) for p in gradient] == [("0", 1.0), ("1", 1e-3), ("2", 1e-9)]
    mine = [p for p in points if p["run"] == rows[2]["run"] and p["curve"] == "score"]
    assert [(p["x"], p["seconds"], p["y"]) for p in mine] == [
        ("100", "2.0", "0.2"),
        ("200", "4.0", "0.6"),
        ("300", "6.0", "1.0"),
    ]


@pytest.mark.parametrize(("format", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_are_a_file_each(format, magic, runs, tmp_path):
    files = write_report(runs, tmp_path / "figures" / f"r.{format}", format).files
    assert [path.name for path in files] == [
        f"r-runs-{name}.{format}"
        for name in (
            "score-updates",
            "score-seconds",
            "loss-updates",
            "loss-seconds",
            "gradients-trained",
            "gradients-untrained",
            "1-0-attention",
        )
    ]
    assert all(path.read_bytes().startswith(magic) for path in files)
    if format == "pdf":
        raster = [path.name for path in files if b"/Subtype /Image" in path.read_bytes()]
        assert raster == ["r-runs-1-0-attention.pdf"], "curves are vectors, a heat map is a picture"


def mistake(capsys, arguments, words):
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("plait: error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    return captured


def test_mistakes_are_one_line(runs, tmp_path, capsys):
    mistake(capsys, ["report", tmp_path / "none"], "no folder")
    (tmp_path / "empty").mkdir()
    mistake(capsys, ["report", tmp_path / "empty"], "no runs in")
    mistake(capsys, ["report", runs, "--format", "docx"], "unknown format 'docx'")
    mistake(capsys, ["report", runs, "-o", tmp_path / "r.htm"], "unknown format 'htm': did you mean 'html'?")
    (tmp_path / "file").write_text("")
    mistake(capsys, ["report", runs, "-o", tmp_path / "file" / "r.html"], "cannot make the folder")
    (tmp_path / "folder.html").mkdir()
    mistake(capsys, ["report", runs, "-o", tmp_path / "folder.html"], "cannot write")
    with pytest.raises(UnknownNameError):
        write_report(runs, tmp_path / "r.html", "svg")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_ours(runs, tmp_path, capsys):
    (tmp_path / "theirs").mkdir(mode=0o500)
    mistake(capsys, ["report", runs, "-o", tmp_path / "theirs" / "r.html"], "cannot write")


def test_a_damaged_run_is_a_warning_and_only_damaged_ones_an_error(runs, tmp_path, capsys):
    folders = sorted(runs.iterdir())
    (folders[0] / "config.json").unlink()
    assert main(["report", str(runs), "-o", str(tmp_path / "r.html")]) == 0
    captured = capsys.readouterr()
    (warning,) = [line for line in captured.out.splitlines() if line.startswith("warning:")]
    assert f"{folders[0].name}: damaged, not counted: config.json is missing" in warning
    for folder in folders[1:]:
        (folder / "summary.json").write_text('{"status": "comp')
    mistake(capsys, ["report", runs, "-o", tmp_path / "none.html"], "none of 4 runs can be read")
    assert not (tmp_path / "none.html").exists()


def test_without_matplotlib_one_line_says_what_to_install(runs, tmp_path, monkeypatch, capsys):
    """One rule for the page, whichever command writes it; nothing is trained that could not be shown."""
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    new = tmp_path / "new"
    for words in (
        ["report", runs, "-o", tmp_path / "r.html"],
        ["reproduce", "table5", "--smoke", "--out", new],
    ):
        mistake(
            capsys,
            words,
            f"matplotlib: needed by plait {words[0]} and not installed; pip install 'plait[lab]'",
        )
    assert not new.exists()


def test_json_answer(runs, tmp_path, capsys):
    assert main(["report", str(runs), "-o", str(tmp_path / "r.html"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == [str(tmp_path / "r.html")]
    assert answer["groups"][0]["results"][1]["held-out accuracy"] == "100.0%"


@pytest.mark.parametrize("evaluations", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_two_hundred_runs_take_less_than_ten_seconds(evaluations, bench_at, tmp_path):
    """Runs of 3,000 or 20,000 updates: a line every ten, an evaluation every hundred, 1,020 gradients.

    Processor time, because neighbours on the machine are no fault of the report.
    """
    bench = bench_at(tmp_path)
    scores = [min(1.0, 0.125 + place / evaluations) for place in range(evaluations)]
    losses = [
        2.0 * math.exp(-place / evaluations / 2) + 0.1 * (place % 7) for place in range(10 * evaluations)
    ]
    norms = [{"update": 0, "norms": [[0.999**t for t in range(1020)]]}] * 2
    plan = [(f"T = {d}", m, m, d, 1.0, "") for d in (100, 200, 300, 500, 1000) for m in ("relrnn", "lstm")]
    folder = bench.experiment("table5", plan, seeds=tuple(range(20)))
    for _, _, model, delay, _, _ in plan:
        for seed in range(20):
            bench.run(
                "table5", model, delay, seed, scores=scores, losses=losses, gradients=norms, trace=TRACE
            )
    began = time.process_time()
    written = write_report(folder, tmp_path / "report.html")
    took = time.process_time() - began
    assert len(written.groups[0].runs) == 200
    assert took < 10, f"{took:.1f} s"
    data = page_data(tmp_path / "report.html")
    assert max(len(line["columns"]["update"]) for line in data["g0-table5-0-loss"]["lines"]) <= 400
    size = (tmp_path / "report.html").stat().st_size
    assert size < 6e6, f"{size / 1e6:.1f} MB"
    print(f"200 runs of {100 * evaluations} updates: {took:.2f} s, {size / 1e6:.1f} MB")


def test_many_groups_get_a_page_each_and_a_page_of_contents(bench_at, tmp_path):
    bench = bench_at(tmp_path / "all")
    for name in ("one", "two", "three", "four"):
        bench.run(name, "lstm", scores=(0.2, 0.4))
    written = write_report(tmp_path / "all", tmp_path / "page.html")
    contents, *pages = written.files
    assert contents == tmp_path / "page.html"
    assert sorted(path.name for path in pages) == ["four.html", "one.html", "three.html", "two.html"]
    text = contents.read_text()
    for path in pages:
        assert f'href="page/{path.name}"' in text
        assert f"<h2>Runs in {path.stem}</h2>" in path.read_text()
    assert text.count("<a href=") == 4
    three = [tmp_path / "all" / name for name in ("one", "two", "three")]
    assert len(write_report(three, tmp_path / "few.html").files) == 1


def test_a_report_of_many_pages_can_be_written_again(bench_at, tmp_path):
    bench = bench_at(tmp_path / "all")
    for name in ("one", "two", "three", "four"):
        bench.run(name, "lstm", scores=(0.2, 0.4))
    first, second = (write_report(tmp_path / "all", tmp_path / "page.html").files for _ in range(2))
    assert first == second
