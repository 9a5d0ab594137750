"""What the page is told, against what the library says itself."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from plait.errors import DataError
from plait.gradients.sparse import depth_to, norms
from plait.gradients.uniform.report import measure_law
from plait.lab.commands.plan import judge_shape, shape
from plait.lab.experiments.trace import write_trace
from plait.lab.report.explore.gradients import support_of
from plait.lab.report.gather import gather
from plait.lab.runs.reading import read_run

TEN = math.log(10)
GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_ctx": 1024}


def test_memory_is_the_trace_of_the_run(ask, relrnn, library_folder):
    folder = library_folder / relrnn
    trace = json.loads(write_trace(folder, read_run(folder).description["recipe"]["seed"]).read_text())
    (folder / "trace.json").unlink()
    found = ask("memory", run=relrnn, sample=0)
    assert found["inputs"][:10] == [str(symbol) for symbol in trace["inputs"][:10]]
    assert (found["inputs"][21], found["inputs"][10]) == ("▮", "·"), "marker at step T + 10, blanks before it"
    assert [str(t) for t in trace["targets"][-10:]] == found["targets"][-10:]
    for born, weights, relevance, step in zip(*trace["layers"][0].values(), found["layers"][0], strict=True):
        there = sorted((b + 1, w, r) for b, w, r in zip(born, weights, relevance, strict=True) if b >= 0)
        assert np.array(step["states"]) == pytest.approx(np.array(there), abs=6e-5)


def test_samples_differ_and_answers_are_the_networks(ask, relrnn):
    first, second = (ask("memory", run=relrnn, sample=n) for n in (0, 1))
    assert first["inputs"] != second["inputs"]
    assert len(first["predictions"]) == first["steps"] == 32
    assert set(first["predictions"]) <= {"·", *"12345678"}


def test_a_run_without_memory_is_not_offered(ask):
    names = [run["name"] for run in ask("memory/runs")]
    assert names[0].startswith("relrnn on copy 12")
    assert names[-1].startswith("an example")
    assert all(name.startswith("rel") for name in names[:-1]), "no LSTM among them"
    lstm = next(run["key"] for run in ask("norms/runs") if "lstm" in run["key"])
    assert "has no memory" in ask.error("memory", run=lstm)


def test_only_tasks_with_sequences_are_offered(tmp_path, bench_at):
    from plait.lab.report.explore.library import Library
    from plait.lab.report.explore.memory import memory_runs

    folder = bench_at(tmp_path).run("runs", "relrnn")
    (folder / "checkpoint.safetensors").touch()
    library = Library(tmp_path / "runs")
    assert len(memory_runs(library)) == 2
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"copy"', '"data"'))
    assert [run["key"] for run in memory_runs(library)] == ["example"]


def test_a_table_and_a_policy_are_traced_like_any_other(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    from plait.lab.cli import main
    from plait.lab.report.explore.library import Library
    from plait.lab.report.explore.memory import memory_runs, memory_view

    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{'ab'[n % 2]},{n % 7}\n" for n in range(60))
    (tmp_path / "table.csv").write_text(f"kind,value\n{rows}")
    small = ["--hidden", "4", "--quiet"]
    assert (
        main(["train", "csv", "table.csv", "--target", "kind", "--length", "10", "--epochs", "1", *small])
        == 0
    )
    policy = "--env CartPole-v1 --n-envs 2 --n-steps 8 --n-minibatches 1 --total-timesteps 16 --evaluate-on 2"
    assert main(["train", "gym", *policy.split(), *small]) == 0
    library = Library(tmp_path / "runs")
    views = [memory_view(library, {"run": run["key"]}) for run in memory_runs(library)[:-1]]
    table, episode = sorted(views, key=lambda view: "CartPole" in view["title"])
    assert table["title"].startswith("rellstm on csv table.csv: kind")
    assert set(table["targets"]) == {"a", "b"}
    assert set(table["predictions"]) <= {"a", "b"}
    assert set(episode["inputs"]) <= {"0", "1", "the end"}
    for view in views:
        assert view["kind"] == "rows"
        assert len(view["layers"][0]) == len(view["inputs"]) == view["steps"]
        assert view["layers"][0][2]["states"][0][0] == 1
        for step in view["layers"][0][1:]:
            assert 0 < sum(weight for _, weight, _ in step["states"]) < 1.01


def test_models_and_tasks_are_known_by_name():
    """Without torch; so what is listed here must be what there is."""
    from plait.lab.report.explore.memory import REMEMBERING, SEQUENCES
    from plait.lab.tasks import TASKS
    from plait.models import MODELS

    remembering = {name for name, model in MODELS.items() if model(3, 4).layers[0].has_memory}
    assert set(REMEMBERING) == remembering
    assert set(SEQUENCES) == set(TASKS) - {"data"}


def test_runs_are_listed_and_the_example_is_shown_without_torch(library_folder):
    code = (
        "import sys; from pathlib import Path\n"
        "from plait.lab.report.explore.library import Library\n"
        "from plait.lab.report.explore.memory import memory_runs, memory_view\n"
        f"library = Library(Path({str(library_folder)!r}))\n"
        "assert len(memory_runs(library)) >= 2\n"
        "assert memory_view(library, {'run': 'example'})['steps'] == 40\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_example_is_a_trace_like_any_other(ask, relrnn):
    example, own = ask("memory", run="example"), ask("memory", run=relrnn)
    assert set(example) == {*own, "command", "step"}
    assert example["predictions"][-10:] == example["targets"][-10:], "it was learned"
    assert len(example["layers"][0]) == example["steps"] == len(example["inputs"])
    weights = np.array([sum(weight for _, weight, _ in step["states"]) for step in example["layers"][0]])
    assert weights == pytest.approx(np.ones(40), abs=2e-3)
    step = example["layers"][0][example["step"] - 1]
    read, weight, _ = max(step["states"], key=lambda state: state[1])
    assert read in step["kept"]
    assert weight > 0.9


def test_every_tab_says_what_it_is_about_before_any_script(ask):
    page = ask.raw("").decode()
    panels = re.findall(
        r'<div role="tabpanel" id="panel-(\w+)"[^>]*?( hidden)?><h2>(.+?)</h2><p>(.+?)</p>', page
    )
    assert [(name, hidden) for name, hidden, _, _ in panels] == [
        ("memory", ""),
        ("gradients", " hidden"),
        ("plane", " hidden"),
        ("runs", " hidden"),
    ]


def test_pixels_of_an_image_and_letters_of_a_text(digits, tmp_path, serve_folder, client_at):
    from plait.lab.cli import main

    book = tmp_path / "book.txt"
    book.write_text("one strand woven from several " * 60)
    out = tmp_path / "runs"
    common = ["--updates", "1", "--hidden", "4", "--batch-size", "4", "--out", str(out), "--quiet"]
    assert main(["train", "pmnist", "--images", str(digits.folder), "--window", "3", *common]) == 0
    assert main(["train", "text", "--text", str(book), "--embedding", "4", "--span", "12", *common]) == 0
    with serve_folder(out) as address:
        client = client_at(address)
        _, image, text = sorted(run["key"] for run in client("memory/runs"))  # the first is the example
        found = client("memory", run=image, sample=1)
        assert found["kind"] == "pixels"
        steps, shades = (np.array(found["image"][key]) for key in ("steps", "shades"))
        assert sorted(steps.ravel().tolist()) == list(range(1, 25))
        assert (np.array(found["inputs"])[steps - 1] == shades).all(), "a step shows the pixel that names it"
        assert "sample: expected 0 to 9, got 11" in client.error("memory", run=text, sample=11)
        assert "".join(client("memory", run=text)["inputs"]) in book.read_text()


def test_data_that_are_not_here_are_not_fetched(tmp_path, bench_at, nowhere, monkeypatch):
    from plait.lab.report.explore.memory import _require_data
    from plait.lab.tasks import sources

    monkeypatch.setattr(sources, "_download", lambda *a: pytest.fail("the explorer asked the net"))
    with pytest.raises(DataError, match="on this machine; set PLAIT_DATA"):
        _require_data({"name": "ptb"})
    _require_data({"name": "copy"})


def test_the_law_is_measured_and_drawn_from_one_beginning(ask):
    found = ask("law", eigenvalues="0.25,-0.5,0.3+0.4j", length=20_000, mix=0.5)
    laws = measure_law([0.25, -0.5, 0.3 + 0.4j], 20_000, mix=0.5)
    for drawn, law in zip(found["laws"], laws, strict=True):
        assert drawn["lengths"] == law.lengths.tolist()
        assert np.array(drawn["measured"]) * TEN == pytest.approx(law.log_values, abs=1e-4)
        assert np.array(drawn["sharp"]) * TEN == pytest.approx(law.sharp_curve(1, 0.5), abs=1e-4)
        slope = (drawn["printed"][-1] - drawn["printed"][0]) / math.log10(law.lengths[-1])
        assert slope == pytest.approx(law.printed, abs=1e-4)
        assert drawn["sharp"][-1] == pytest.approx(drawn["measured"][-1], abs=0.01)
    assert [row[-1] for row in found["parts"][0]["rows"]] == [
        "yes" if law.printed_holds else "no" for law in laws
    ]


def test_the_reach_of_a_window_is_exact(ask):
    found = ask("reach", eigenvalues="0.9,-0.4", steps=60, window=5, capacity=3)
    support, matrix = support_of(60, 5, 3), np.diag([0.9, -0.4])
    assert np.array(found["measured"]) * TEN == pytest.approx(norms(support, matrix), abs=1e-4)
    alone = [np.linalg.norm(np.linalg.matrix_power(matrix, back)) for back in found["back"]]
    assert 10 ** np.array(found["alone"]) == pytest.approx(np.array(alone), rel=1e-3)
    assert (np.array(found["bound"]) <= np.array(found["measured"]) + 1e-9).all()
    assert found["depth"] == depth_to(support).tolist()
    assert found["kappa"] == 5 + 3
    assert ask("reach", eigenvalues="-0.4")["bound"] is None


def test_the_path_is_one_and_has_the_fewest_steps(ask):
    for window, capacity, start in ((3, 2, 4), (1, 0, 1), (2, 4, 9), (12, 0, 1)):
        found = ask("paths", small=14, window=window, capacity=capacity, start=start)
        depth = depth_to(support_of(14, window, capacity))[start - 1]
        begin, *times = found["path"]
        assert (begin, times[-1], len(times) - 1) == (start, 14, depth)
        for at, now in zip([begin, *(t + 1 for t in times[:-1])], times, strict=True):
            assert now == at or at in found["sets"][now - 1], "each hop is read by the step it leads to"
        assert found["summary"].startswith(f"From h_{start} to s_14: {depth} recurrent step")


def test_recorded_norms_are_shown_from_the_end(ask, library_folder):
    key = next(run["key"] for run in ask("norms/runs") if run["key"].startswith("table5"))
    first, last = ask("norms", run=key)["lines"]
    assert first["norms"] == pytest.approx([math.log10(0.3), None, -1.0], abs=1e-4)
    assert last == {"name": "update 300", "back": [0, 1, 2], "norms": [0.0, -3.0, -6.0]}


def test_advice_is_what_the_command_says(ask):
    found, said = ask("plan", budget="1.3B"), shape("1.3B")
    assert (found["depth"], found["width"]) == (42, 1600)
    assert [part["rows"] for part in found["parts"]] == [part.cells() for part in said.parts]
    found, said = ask("plan", depth=48, width=1600), judge_shape(depth=48, width=1600)
    assert [part["rows"] for part in found["parts"]] == [part.cells() for part in said.parts]


def test_a_config_is_judged(ask, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    said = judge_shape(config=tmp_path / "config.json")
    found = ask("config", json.dumps(GPT2).encode())
    assert (found["depth"], found["width"]) == (12, 768)
    assert [part["rows"] for part in found["parts"]] == [part.cells() for part in said.parts]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"not json", "config.json: is not JSON"),
        (b"[1]", "config.json: expected a JSON object"),
        (b'{"name": "x"}', "config.json: is not a Transformer's config.json"),
        (b"\xff\xfe", "config.json: is not JSON"),
        (b" " * 300_000, "expected at most"),
    ],
)
def test_an_invalid_config_gives_one_line(ask, body, words):
    said = ask.error("config", body)
    assert words in said
    assert "/tmp" not in said


def test_runs_are_those_of_the_report(ask, library_folder):
    groups = gather([library_folder])
    assert ask("runs")["groups"] == [group.title for group in groups]
    assert "1 agrees" in ask("runs")["standing"]
    found = ask("group", group=0)
    (row,) = found["grid"]["rows"]
    assert [cell["published"] for cell in row["cells"]] == ["100.0%", "12.0%"]
    plot = ask("plot", group=0, plot=0)
    assert {line["name"]: line["columns"]["score"] for line in plot["lines"]} == {
        "RelRNN": [0.2, 0.6, 1.0],
        "LSTM": [0.12, 0.13, 0.3],
    }
    assert plot["published"] == {"RelRNN": 1.0, "LSTM": 0.12}
    assert ask("plot", group=0, plot=1)["published"] == {}, "a loss has no published score beside it"


def test_one_run_beside_another_is_that_of_the_report(ask, library_folder):
    keys = [run["key"] for run in ask("runs")["runs"] if run["key"].startswith("table5")]
    found = ask("beside", first=keys[0], second=keys[1])
    assert [plot["title"] for plot in found["plots"]][:2] == [
        "held-out accuracy",
        "held-out accuracy: lstm − relrnn",
    ]
    assert [one["command"].split()[:3] for one in found["commands"]] == [["plait", "train", "--config"]] * 2
    alone = ask("beside", first=keys[0])
    assert len(alone["commands"]) == 1
    assert len(alone["tables"][0]["columns"]) == 2
    assert "no run 'nothing'" in ask.error("beside", first="nothing", second=keys[0])
    assert "no run ''" in ask.error("beside")


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("memory", {"run": "../../secret"}, "no run '../../secret'"),
        ("norms", {"run": ""}, "no run ''"),
        ("law", {"eigenvalues": "2"}, "expected |λ| <= 1"),
        ("law", {"eigenvalues": "x"}, "expected numbers like"),
        ("law", {"eigenvalues": "nan"}, "expected |λ| <= 1"),
        ("law", {"length": "1e9"}, "length: expected a number from 100"),
        ("law", {"length": "nan"}, "length: expected a number"),
        ("reach", {"window": "2.5"}, "window: expected a whole number"),
        ("paths", {"small": "8", "start": "9"}, "start: expected a number from 1 to 8"),
        ("plan", {"budget": "much"}, "expected parameters such as"),
        ("plan", {"depth": "3"}, "give a budget"),
        ("group", {"group": "7"}, "group: expected"),
    ],
)
def test_bad_questions_are_answered_in_one_line(ask, path, query, words):
    assert words in ask.error(path, **query)


def test_a_sample_out_of_range_is_refused(ask, relrnn):
    assert "sample: expected a number from 0 to 99" in ask.error("memory", run=relrnn, sample=100)


def test_unknown_addresses_and_foreign_names_are_refused(ask):
    assert "Not Found" in ask.error("nothing", status=404)
    ask.raw("", headers={"Host": "evil.example"})
    assert ask.status == 400
    ask.raw("static/../app.py")
    assert ask.status == 404


def test_the_page_may_only_talk_to_its_own_machine(ask):
    page = ask.raw("").decode()
    assert ask.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http://" not in page
    assert "https://" not in page


def test_a_fault_of_ours_is_a_line_too(address, client_at, monkeypatch, serve_folder, tmp_path):
    from plait.lab.report.explore import app

    def broken():
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(app, "plane_view", broken)
    with serve_folder(tmp_path) as other:
        said = client_at(other).error("plane", status=500)
    assert said == "a bug in plait: ZeroDivisionError: two lines"


def test_without_runs_the_other_views_work(tmp_path, serve_folder, client_at):
    with serve_folder(tmp_path) as address:
        client = client_at(address)
        for path in ("runs", "norms/runs", "group"):
            assert "no runs in" in client.error(path)
        assert [run["key"] for run in client("memory/runs")] == ["example"]
        assert client("law")["laws"]
        assert client("plan", budget="125M")["depth"]


def test_a_new_run_is_seen_without_a_restart(tmp_path, bench_at, serve_folder, client_at):
    bench = bench_at(tmp_path)
    bench.run("runs", "relrnn")
    with serve_folder(tmp_path / "runs") as address:
        client = client_at(address)
        assert client("runs")["headline"].startswith("1 run")
        bench.run("runs", "lstm")
        assert client("runs")["headline"].startswith("2 runs")


def test_answers_come_within_a_fifth_of_a_second(ask, relrnn):
    questions = [
        ("memory/runs", {}),
        ("memory", {"run": relrnn}),
        ("law", {}),
        ("reach", {}),
        ("paths", {}),
        ("norms", {"run": relrnn}),
        ("plane", {}),
        ("plan", {"budget": "1.3B"}),
        ("runs", {}),
        ("group", {}),
        ("plot", {}),
        ("beside", {"first": relrnn}),
    ]
    for path, query in questions:
        times = []
        for _ in range(6):
            ask(path, **query)
            times.append(ask.seconds)
        assert min(times[1:]) < 0.2, path
