"""A run that is extended ends bit-exactly as one that was as long from the beginning."""

from __future__ import annotations

import json
import re

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import extended, run_id

COPY = [
    "train",
    "copy",
    "--model",
    "relrnn",
    "--hidden",
    "6",
    "--delay",
    "2",
    "--window",
    "3",
    "--capacity",
    "2",
    "--batch-size",
    "4",
    "--evaluate-on",
    "8",
    "--record-every",
    "4",
    "--evaluate-every",
    "5",
    "--quiet",
    "--device",
    "cpu",
    "--threads",
    "1",
]
MINIGRID = [
    "train",
    "minigrid",
    "--env",
    "Empty-5x5",
    "--n-envs",
    "2",
    "--n-steps",
    "8",
    "--n-minibatches",
    "1",
    "--hidden",
    "4",
    "--evaluate-every",
    "2",
    "--evaluate-on",
    "2",
    "--quiet",
    "--threads",
    "1",
]


def only(out):
    (folder,) = out.iterdir()
    return folder


def outcome(folder):
    checkpoint = read_checkpoint(folder / "checkpoint.safetensors")
    tensors = {name: value.numpy().tobytes() for name, value in checkpoint.tensors.items()}
    counters = {k: v for k, v in checkpoint.counters.items() if k not in ("seconds", "journals", "regular")}
    journals = [
        re.sub(rb'"seconds": [0-9.]+, ', b"", (folder / name).read_bytes())
        for name in ("metrics.jsonl", "gradients.jsonl")
        if (folder / name).exists()
    ]
    return tensors, counters, journals


@pytest.mark.parametrize(
    "options",
    [
        ("--updates", 10, 23, "--gradients-every", "3"),  # 10: an evaluation is due, no line of the curve
        ("--updates", 12, 20, "--gradients-every", "4", "--schedule", "halve", "--lr", "0.5"),  # the reverse
        ("--updates", 13, 20, "--schedule", "halve", "--lr", "0.5"),  # neither
    ],
)
def test_a_longer_run_is_as_if_it_had_never_ended(tmp_path, options, capsys):
    units, few, many, *more = options
    assert main([*COPY, *more, units, str(few), "--out", str(tmp_path / "short")]) == 0
    assert main([*COPY, *more, units, str(many), "--out", str(tmp_path / "long")]) == 0
    short, long = only(tmp_path / "short"), only(tmp_path / "long")
    assert outcome(short) != outcome(long)
    assert main(["train", "--resume", str(short), units, str(many), "--quiet", "--device", "cpu"]) == 0
    assert outcome(short) == outcome(long)
    config = json.loads((short / "config.json").read_text())
    assert (config["recipe"]["updates"], config["extended"]) == (many, {"updates": [few]})
    assert run_id(config) == short.name != long.name
    capsys.readouterr()
    assert main(["runs", "show", str(short), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == short.name


def test_a_policy_is_extended_in_steps_or_in_updates(tmp_path, capsys):
    for name, steps in (("a", 48), ("b", 48), ("long", 96)):
        assert main([*MINIGRID, "--total-timesteps", str(steps), "--out", str(tmp_path / name)]) == 0
    expected = outcome(only(tmp_path / "long"))
    extend = ["--quiet", "--resume", str(only(tmp_path / "a"))]
    assert main(["train", "minigrid", *extend, "--total-timesteps", "96"]) == 0
    assert outcome(only(tmp_path / "a")) == expected
    assert main(["train", "--quiet", "--resume", str(only(tmp_path / "b")), "--updates", "6"]) == 0
    assert outcome(only(tmp_path / "b")) == expected


def test_a_run_cannot_be_shortened_nor_changed(tmp_path, capsys):
    assert main([*COPY, "--updates", "4", "--out", str(tmp_path)]) == 0
    folder = only(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--updates", "3"]) == 2
    assert "updates: expected more than the 4 this run was given, got 3" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder), "--updates", "9", "--lr", "1"]) == 2
    assert "--lr cannot be given with --resume" in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_options_without_effect_on_a_finished_run_are_reported(tmp_path, capsys):
    assert main([*COPY, "--updates", "4", "--out", str(tmp_path)]) == 0
    assert "no effect" not in capsys.readouterr().out
    resume = ["train", "--quiet", "--resume", str(only(tmp_path))]
    assert main([*resume, "--checkpoint-every", "2", "--max-minutes", "1"]) == 0
    assert "complete already: --checkpoint-every, --max-minutes had no effect" in capsys.readouterr().out
    assert main(resume) == 0
    assert "no effect" not in capsys.readouterr().out


def test_extended_twice_keeps_its_history():
    plain = {"task": {"name": "a"}, "model": {"name": "b"}, "recipe": {"updates": 10}}
    twice = extended(extended(plain, "updates", 20), "updates", 30)
    assert twice["extended"] == {"updates": [10, 20]}
    assert run_id(twice) == run_id(plain)
    assert extended(plain, "updates", 10) is plain
    with pytest.raises(ConfigError, match="updates: expected more than the 30"):
        extended(twice, "updates", 29)
