"""One registry of kinds: a kind of one's own is trained, resumed, listed and reported without further ado."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.kinds import Kind, kind_of
from plait.lab.training.ppo.policy import Policy
from plait.lab.training.session import load, train_run

SINES = Path(__file__).parent / "sines.py"


def start(folder, updates):
    return subprocess.Popen([sys.executable, str(SINES), str(folder), str(updates)], stderr=subprocess.PIPE)


def outcome(folder):
    checkpoint = read_checkpoint(folder / "checkpoint.safetensors")
    metrics = re.sub(rb'"seconds": [0-9.]+, ', b"", (folder / "metrics.jsonl").read_bytes())
    return {name: value.numpy().tobytes() for name, value in checkpoint.tensors.items()}, metrics


def test_a_kind_of_ones_own(tmp_path, capsys):
    """In under 60 lines: trained, killed with -9, resumed bit-exactly, listed, shown and reported on."""
    assert len([line for line in SINES.read_text().splitlines() if line.strip()]) < 60
    runs = tmp_path / "runs"
    whole = start(runs / "whole", 4000)
    killed = start(runs / "killed", 4000)
    metrics = runs / "killed" / "metrics.jsonl"
    for _ in range(3000):
        if metrics.exists() and metrics.read_bytes().count(b"\n") > 60:
            break
        time.sleep(0.01)
    killed.kill()
    assert killed.wait(timeout=60) == -signal.SIGKILL
    again = start(runs / "killed", 4000)
    assert whole.wait(timeout=120) == 0, whole.stderr.read()
    assert again.wait(timeout=120) == 0, again.stderr.read()
    for process in (whole, killed, again):
        process.stderr.close()
    sessions = json.loads((runs / "killed" / "environment.json").read_text())["sessions"]
    assert [one["from_update"] > 0 for one in sessions] == [False, True], "it went on, and did not begin anew"
    assert outcome(runs / "whole") == outcome(runs / "killed")

    assert main(["runs", str(runs), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["updates"], one["status"]) for one in listed] == [(4000, "complete")] * 2
    assert main(["runs", "show", str(runs / "whole")]) == 0
    assert "complete, 4000 of 4000 updates" in capsys.readouterr().out
    assert main(["report", str(runs), "-o", str(tmp_path / "report.md")]) == 0
    assert "sine" in (tmp_path / "report.md").read_text()


def test_an_unregistered_kind_is_named(tmp_path):
    stranger = {"format": "no such kind 1", "task": {}, "model": {}, "recipe": {"updates": 1}}
    assert kind_of(stranger) == Kind("no such kind 1", per_update=kind_of(stranger).per_update)
    with pytest.raises(ConfigError, match="'no such kind 1' are not known here; register it first"):
        train_run(stranger, device="cpu")


def test_a_policy_is_loaded_as_any_other_run(tmp_path):
    from plait.lab.training.ppo.policy import describe_policy
    from plait.lab.training.recipe import PPOConfig

    settings = PPOConfig(total_timesteps=16, n_envs=2, n_steps=8, n_minibatches=1, evaluate_on=1)
    description = describe_policy("Empty-5x5", "lstm", settings, hidden_size=4)
    train_run(description, folder=tmp_path / "run")
    assert isinstance(load(tmp_path / "run"), Policy)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("task", {"name": "text", "text": 5}),
        ("task", {"name": "text", "text": [5], "symbols": "ab"}),
        ("task", {"name": "minigrid"}),
        ("task", {"name": []}),
        ("model", {"name": {}}),
        ("task", {"name": "minigrid", "env": 5, "test_env": 5, "backend": "minigrid"}),
        ("model", {"name": "rnn", "hidden_size": 4, "mix": "x"}),
        ("task", {"name": "smnist", "images": 5}),
        ("recipe", {"lr": {}}),
        ("recipe", {"updates": "many"}),
    ],
)
def test_problems_of_a_stored_description_are_reported(part, values, tmp_path, capsys):
    """Data, not a fault of ours, whatever stands in it."""
    (tmp_path / "run").mkdir()
    described = {
        "task": {"name": "copy"},
        "model": {"name": "rnn", "hidden_size": 4},
        "recipe": {},
        part: values,
    }
    (tmp_path / "run/config.json").write_text(json.dumps(described))
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "bug in plait" not in said
