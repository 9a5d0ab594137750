"""`plait compare`: the numbers are what they say, the runs are kept, wrong questions are refused."""

from __future__ import annotations

import inspect
import json
import re
import sys

import pytest
import torch

from plait.errors import PlaitError
from plait.lab.bench.comparison import MODELS, Contender, Question, run_comparison
from plait.lab.bench.costs import Cost, costs, reach, state_bytes
from plait.lab.cli import main
from plait.lab.commands.compare import compare
from plait.lab.report.compare_page import headline
from plait.lab.tasks import CopyTask
from plait.lab.training.description import build

HIDDEN, STEPS = 16, 40


def network(model: str, **options):
    description = {
        "task": {"name": "copy", "delay": STEPS - 20},
        "model": {"name": model, "hidden_size": HIDDEN, **options},
    }
    return build(description)[0]


def drawn():
    return CopyTask(STEPS - 20).batch(3, torch.Generator().manual_seed(0), torch.device("cpu"))


def test_a_stream_of_bounded_memory_does_not_grow_and_full_memory_does():
    networks = {name: network(name) for name in ("lstm", "rellstm", "memlstm", "transformer")}
    found = costs(networks, CopyTask(STEPS - 20), 3, torch.device("cpu"), seconds=0.01)
    assert found["lstm"].state_growth == found["rellstm"].state_growth == 0
    # a kept state, its relevance (float32) and its time (int64)
    assert found["memlstm"].state_growth == HIDDEN * 4 + 4 + 8
    assert found["memlstm"].state_bytes - found["lstm"].state_bytes >= STEPS * HIDDEN * 4
    assert found["transformer"].state_growth >= 2 * HIDDEN * 4  # a key and a value
    assert found["lstm"].parameters == sum(p.numel() for p in networks["lstm"].parameters())
    assert all(cost.step_seconds > 0 and cost.streamed_seconds > 0 for cost in found.values())
    assert all(cost.step_megabytes > 0 for cost in found.values())


def test_reach_is_counted_in_inputs_and_truncation_shortens_it():
    batch = drawn()
    far = reach(network("rnn"), CopyTask(STEPS - 20), batch)
    cut = reach(network("rnn", truncate=5), CopyTask(STEPS - 20), batch)
    assert far.positions == STEPS == len(far.norms)
    assert cut.positions == 10  # the last ten steps carry the loss; the gradient is cut at every fifth
    assert cut.norms[0] == 0


def test_reach_leaves_gradients_alone():
    one = network("rellstm")
    reach(one, CopyTask(STEPS - 20), drawn())
    assert all(p.grad is None for p in one.parameters())


def test_scores_are_means_of_the_last_batches():
    contender = Contender("LSTM", None, None, None, seconds=10.0, scores=[0.0] * 50 + [1.0] * 50)
    assert contender.updates_after(5.0) == 50
    assert contender.updates_after(100.0) == 100
    assert contender.score_after(50) == 0.0
    assert contender.score_after(60) == 0.5
    assert contender.score_after(100) == 1.0
    assert contender.score_after(0) is None


def test_the_bytes_of_a_state():
    state = network("memlstm")(drawn().inputs)[1]
    assert state_bytes(state) == sum(
        part.numel() * part.element_size() for part in (state.hidden, state.cell_state, *state.memory[0])
    )


def test_the_command_answers_in_a_page_and_in_json_and_trains_once(tmp_path, capsys):
    command = ["compare", "--length", "30", "--hidden", "8", "--models", "rnn,rellstm", "--seconds", "0.2"]
    command += ["--out", str(tmp_path), "--quiet", "--device", "cpu", "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in first["models"]] == ["RNN", "RelLSTM"]
    assert first["equal_updates"] == min(row["updates"] for row in first["models"])
    assert all(0 <= row["score_at_equal_seconds"] <= 1 for row in first["models"]), "scores were read"
    page = (tmp_path / "index.html").read_text()
    assert "RelLSTM" in page
    assert page.count("<figcaption>") == page.count("<svg") == 6, "four of the comparison, two of two runs"
    kept = {path: path.read_bytes() for path in tmp_path.glob("*/metrics.jsonl")}
    assert len(kept) == 2
    assert all(kept.values()), "each was trained, if only for an update that took longer than it had"
    assert main(command) == 0
    second = json.loads(capsys.readouterr().out)
    assert {path: path.read_bytes() for path in kept} == kept
    for one, two in zip(first["models"], second["models"], strict=True):
        assert one["score_at_equal_seconds"] == two["score_at_equal_seconds"]
        assert one["reach_after"] == two["reach_after"]
    assert json.loads((tmp_path / "compare.json").read_text())["models"] == second["models"]


def test_the_headline_is_true_of_the_numbers():
    def contender(name, score, seconds):
        return Contender(name, Cost(1, seconds, 0.0, 1.0, 1, 0.0, 0.1), None, None, 60.0, [score] * 40)

    strong = [
        contender("RNN", 0.13, 0.001),
        contender("RelRNN", 0.875, 0.004),
        contender("LSTM", 0.25, 0.002),
    ]
    assert headline(Question(length=100), strong) == (
        "RelRNN names 87.5% of the symbols after 60 s of training each on copy over 100 steps; LSTM 25.0%, "
        "RNN 13.0% (guessing: 12.5%). RNN has the cheapest step, 1 ms"
    )
    assert headline(Question(length=100), strong[:1]).startswith(
        "No model is better than guessing after 60 s of training each on copy over 100 steps: RNN is best "
        "with 13.0% (guessing: 12.5%); give them more --seconds. "
    )


def test_it_compares_every_model_that_is_here_and_says_how_long_it_takes(capsys, tmp_path, monkeypatch):
    usual = inspect.signature(compare).parameters["models"].default
    assert tuple(usual.split(",")) == tuple(MODELS) == Question().models
    assert {"relrnn", "rellstm", "transformer"} <= set(MODELS)
    assert Question().minutes == pytest.approx(len(MODELS) * 65 / 60)
    monkeypatch.setattr("plait.lab.bench.comparison.costs", lambda *_: sys.exit("far enough"))
    with pytest.raises(SystemExit):
        run_comparison(Question(length=30, hidden=4), tmp_path, "cpu")
    assert "7 models at 30 steps: costs, then 60 s of training each, about 7.6 minutes in all" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": ("lstmm",)}, "did you mean 'lstm'"),
        ({"models": ()}, "at least one"),
        ({"task": "transfer"}, "task to compare on"),
        ({"length": 21}, "at least 22"),
        ({"hidden": 0}, "at least 1"),
        ({"seconds": 0.0}, "above 0"),
        ({"lr": -1.0}, "above 0"),
    ],
)
def test_wrong_questions_are_refused(changes, words):
    with pytest.raises(PlaitError, match=words):
        Question(**changes).check()


def test_a_diverged_model_is_shown_as_such(tmp_path, capsys):
    # It needs two updates of the seconds it is given.
    command = ["compare", "--length", "30", "--hidden", "8", "--models", "rnn", "--seconds", "100"]
    command += ["--lr", "1e37", "--out", str(tmp_path / "out"), "--quiet", "--device", "cpu"]
    assert main([*command, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert row["reach_after"] is None
    assert main(command) == 0
    assert re.search(r"^RNN .* diverged ", capsys.readouterr().out, re.MULTILINE)
