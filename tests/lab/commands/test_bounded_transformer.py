"""A Transformer with a bounded memory on the command line: trained, counted, drawn, refused."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from plait.lab.cli import main

SMALL = [
    "--model",
    "transformer",
    "--hidden",
    "8",
    "--heads",
    "2",
    "--delay",
    "12",
    "--lead-in",
    "6",
    "--updates",
    "4",
    "--batch-size",
    "4",
    "--evaluate-on",
    "8",
    "--evaluate-every",
    "2",
    "--device",
    "cpu",
    "--quiet",
]
MEMORY = ["--memory", "relevancy", "--window", "4", "--capacity", "3"]


def train(out, *more):
    return main(["train", "copy", *SMALL, "--out", str(out), *more])


def test_it_trains_and_says_how_many_states_it_read(tmp_path, capsys):
    assert train(tmp_path, *MEMORY, "--sinks", "1", "--noise", "0.2", "--positions", "rotary") == 0
    assert "states read" in capsys.readouterr().out
    (folder,) = tmp_path.glob("copy-transformer-*")
    model = json.loads((folder / "config.json").read_text())["model"]
    wanted = {"memory": "relevancy", "window": 4, "capacity": 3, "relevance": "learned", "sinks": 1}
    wanted |= {"noise": 0.2, "positions": "rotary"}
    assert {name: model[name] for name in wanted} == wanted
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    counts = [line["held_out"]["copy"]["states_read"] for line in lines if "held_out" in line]
    assert counts == [8, 8], "sinks, window and capacity, filled"
    assert main(["train", "--resume", str(folder), "--updates", "6", "--quiet"]) == 0


def test_every_head_is_drawn(tmp_path):
    assert train(tmp_path / "bounded", *MEMORY) == 0
    assert train(tmp_path / "full") == 0
    sizes = {}
    for name in ("bounded", "full"):
        (folder,) = (tmp_path / name).glob("copy-transformer-*")
        picture = tmp_path / f"{name}.png"
        assert main(["runs", "attention", str(folder), "-o", str(picture)]) == 0
        sizes[name] = imread(picture).shape
        layer = json.loads((folder / "trace.json").read_text())["layers"][0]
        assert layer.get("heads") == (2 if name == "bounded" else None)
        held = np.array(layer["born"][-1]) >= 0
        assert held.sum() == (2 * 7 if name == "bounded" else 38)
    assert sizes["bounded"] != sizes["full"], "a panel for each head"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "relevancy", "--relevance", "earned"], "relevance: expected learned for a Transformer"),
        (["--window", "4"], "window: expected none without a memory, got 4"),
        (["--memory", "relevancy", "--capacity", "-1"], "capacity: expected at least 0, got -1"),
        (["--memory", "relevancy", "--sinks", "-1"], "sinks: expected at least 0, got -1"),
        (["--memory", "window", "--relevance", "learned"], "relevance: expected one of window"),
        (["--memory", "top-k"], "unknown memory 'top-k'"),
        (["--positions", "clamped"], "positions: expected rotary without a memory"),
        ([*MEMORY, "--positions", "far"], "unknown positions 'far'"),
        (["--memory", "relevancy", "--capacity", "2000000000"], "GB are free here; take a smaller window"),
        (["--memory", "relevancy", "--usage", "1"], "unknown option of transformer 'usage'"),
    ],
)
def test_mistakes_are_one_line(options, message, tmp_path, capsys):
    assert train(tmp_path, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("plait: error: ")
    assert message in line
    assert not list(tmp_path.iterdir())
