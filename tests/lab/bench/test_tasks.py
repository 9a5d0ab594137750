"""An epoch of training: how much of it was measured, by what loop, and that the peer is torch's own layer."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from plait.errors import DataError, UnknownNameError
from plait.lab.bench import tasks
from plait.lab.bench.tasks import COMPARISONS, bench_tasks
from plait.lab.tasks import PermutedMNIST, TextTask
from plait.models import RelLSTM, RelRNN


@pytest.fixture
def small(monkeypatch, digits, tmp_path):
    (tmp_path / "book.txt").write_text("to be or not to be\n" * 200)
    comparisons = {
        "pmnist": lambda: tasks._Comparison(PermutedMNIST(images=str(digits.folder)), "RelRNN", RelRNN, 6, 5),
        "ptb": lambda: tasks._Comparison(
            TextTask(text=(str(tmp_path / "book.txt"),), span=10, embedding=4), "RelLSTM", RelLSTM, 6, 8
        ),
    }
    monkeypatch.setattr(tasks, "COMPARISONS", comparisons)


def test_a_whole_epoch_is_measured_and_a_part_is_extrapolated(small, tmp_path):
    result = bench_tasks(updates=7, device="cpu", threads=1, out=tmp_path / "tasks.json")
    rows = result.data["rows"]
    assert [(row["task"], row["layer"]) for row in rows] == [
        ("pmnist", "RelRNN"),
        ("pmnist", "torch.nn.LSTM"),
        ("text", "RelLSTM"),
        ("text", "torch.nn.LSTM"),
    ]
    assert rows[0]["how"] == "extrapolated from 70.0%"
    assert (rows[0]["T"], rows[0]["updates"], rows[0]["of"]) == (24, 7, 10)
    assert rows[0]["ratio"] == pytest.approx(rows[0]["ms per update"] / rows[1]["ms per update"], rel=0.8)
    assert rows[1]["ratio"] == 1
    assert rows[0]["backend"] not in ("", "torch.nn")
    assert json.loads((tmp_path / "tasks.json").read_text())["rows"] == rows
    whole = bench_tasks("pmnist", updates=500, device="cpu", threads=1).data["rows"]
    assert (whole[0]["how"], whole[0]["updates"]) == ("measured", 10)


def test_extrapolation_is_proportional(small, monkeypatch):
    taken = iter(range(1000))

    def walk(learner, first, count, device):
        next(taken)
        return 2.0 * count

    monkeypatch.setattr(tasks, "_walk", walk)
    rows = bench_tasks("pmnist", updates=7, device="cpu").data["rows"]
    assert rows[0]["s per epoch"] == pytest.approx(20.0)
    assert rows[0]["ms per update"] == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("name", "layer", "hidden", "rows"), [("pmnist", RelRNN, 100, 100), ("ptb", RelLSTM, 1024, 128)]
)
def test_the_sizes_are_the_published_ones(name, layer, hidden, rows):
    comparison = COMPARISONS[name]()
    assert (comparison.hidden, comparison.batch_size) == (hidden, rows)
    learner = comparison.learner(comparison.layer, torch.device("cpu"), "fp32")
    assert type(learner.network.recurrent) is layer
    assert learner.network.recurrent.hidden_size == hidden
    assert type(comparison.learner("torch.nn.LSTM", torch.device("cpu"), "fp32").network.recurrent) is nn.LSTM
    assert learner.batches_per_epoch == (500 if name == "pmnist" else 261)


def test_mistakes(nowhere):
    with pytest.raises(UnknownNameError, match="unknown task 'mnist'"):
        bench_tasks("mnist")
    with pytest.raises(DataError, match="looked in"):
        bench_tasks("pmnist", device="cpu")
