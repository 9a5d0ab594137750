"""A run that dies at any moment and is resumed ends bit-exactly as one that never died."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from plait.lab.cli import main
from plait.lab.runs import folder as files
from plait.lab.runs.checkpoint import read_checkpoint
from tests.lab.small_runs import COPY


class Crash(BaseException):
    """Stands for the process's death: nothing catches it."""


def outcome(folder):
    """Everything a run must end with, whatever happened to it."""
    checkpoint = read_checkpoint(folder / "checkpoint.safetensors")
    tensors = {name: value.numpy().tobytes() for name, value in checkpoint.tensors.items()}
    # The clock moves with the machine, and with it the bytes a line takes.
    counters = {k: v for k, v in checkpoint.counters.items() if k not in ("seconds", "journals", "regular")}
    summary = json.loads((folder / "summary.json").read_text())
    kept = {
        key: summary[key] for key in ("status", "updates", "loss", "held_out", "best_score", "best_update")
    }
    journals = [
        re.sub(rb'"seconds": [0-9.]+, ', b"", (folder / name).read_bytes())
        for name in ("metrics.jsonl", "gradients.jsonl")
    ]
    return tensors, counters, kept, journals


def crash_at(monkeypatch, moment):
    """Die at the `moment`-th event: before or after a rename, or with half a line in a journal."""
    count = 0

    def tick():
        nonlocal count
        count += 1
        if count == moment:
            raise Crash

    replace, truncate = os.replace, os.truncate

    def dying_replace(source, target):
        tick()
        replace(source, target)
        tick()

    def dying_truncate(path, size):
        tick()
        truncate(path, size)
        tick()

    def dying_write(self, record):
        line = (json.dumps(record) + "\n").encode()
        for piece in (line[: len(line) // 2], line[len(line) // 2 :]):
            tick()
            with self.path.open("ab") as file:
                file.write(piece)

    monkeypatch.setattr(files.os, "replace", dying_replace)
    monkeypatch.setattr(files.os, "truncate", dying_truncate)
    monkeypatch.setattr(files.Journal, "write", dying_write)
    return lambda: count


def test_dying_at_every_write(small_fit, tmp_path):
    """Every rename and every half of every line, one after the other."""
    small_fit(tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    moment, finished = 0, False
    while not finished:
        moment += 1
        folder = tmp_path / f"run-{moment}"
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, moment)
            try:
                small_fit(folder)
                finished = True
            except Crash:
                pass
        if not finished:
            assert small_fit(folder, resume=True).status == "complete"
        assert outcome(folder) == expected
    assert moment > 35, "so many events have been tried"


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("model", ["exprnn", "goru"])
def test_dying_with_two_learning_rates(small_fit, tmp_path, model, optimizer):
    """The optimiser's order is not the network's: its state must come back to the right parameters."""
    changes = {"model": model, "lr": 0.01, "orthogonal_lr": 0.002, "optimizer": optimizer}
    small_fit(tmp_path / "whole", **changes)
    expected = outcome(tmp_path / "whole")
    for moment in (9, 21, 33):
        folder = tmp_path / f"run-{moment}"
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, moment)
            with pytest.raises(Crash):
                small_fit(folder, **changes)
        assert small_fit(folder, resume=True, **changes).status == "complete"
        assert outcome(folder) == expected


@pytest.mark.parametrize("model", ["orthrnn", "transformer", "unirnn", "unilstm"])
def test_dying_with_every_kind_of_model(small_fit, tmp_path, model):
    small_fit(tmp_path / "whole", model=model)
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 21)
        with pytest.raises(Crash):
            small_fit(tmp_path / "run", model=model)
    assert small_fit(tmp_path / "run", model=model, resume=True).status == "complete"
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_dying_again_while_resuming(small_fit, tmp_path):
    small_fit(tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    for moment in range(1, 12):
        folder = tmp_path / f"run-{moment}"
        for at in (24, moment):
            with pytest.MonkeyPatch.context() as patch:
                crash_at(patch, at)
                with pytest.raises(Crash):
                    small_fit(folder, resume=True)
        small_fit(folder, resume=True)
        assert outcome(folder) == expected


def test_reaching_the_accuracy_is_remembered_by_a_run_that_dies_before_its_summary(small_fit, tmp_path):
    wanted = {"until_accuracy": 1e-9, "updates": 40, "lr": 0.05}
    whole = small_fit(tmp_path / "whole", **wanted)
    assert 0 < whole.summary["updates"] < 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plait.lab.runs.folder.Run.end", lambda *_: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            small_fit(tmp_path / "run", **wanted)
    small_fit(tmp_path / "run", resume=True, **wanted)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


COMMAND = [
    *COPY,
    *shlex.split("--updates 150 --batch-size 4 --checkpoint-every 17 --evaluate-every 40"),
    *shlex.split("--gradients-every 25 --quiet --threads 1"),
]


def lines(out):
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*/metrics.jsonl"))


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "plait", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )


def heed_signals():
    """Undo what a child inherits: `nohup` ignores SIGHUP, and a shell ignores SIGINT for a background job."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_lines(process, out, wanted):
    for _ in range(3000):
        if lines(out) >= wanted or process.poll() is not None:
            return
        time.sleep(0.01)
    raise AssertionError("the run does not get on")


def test_kill_9_at_several_moments(tmp_path, capsys):
    """The real thing: processes that are killed, three times in a row."""
    assert main([*COMMAND, "--out", str(tmp_path / "whole")]) == 0
    (whole,) = (tmp_path / "whole").iterdir()
    capsys.readouterr()
    out = tmp_path / "killed"
    arguments = [*COMMAND, "--out", str(out)]
    for wanted in (3, 60, 110):
        process = start(arguments)
        wait_for_lines(process, out, wanted)
        process.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL, process.stderr.read()
        process.stderr.close()
        (folder,) = out.iterdir()
        assert main(["runs", str(out), "--json"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert listed["status"] == "interrupted"
        arguments = ["train", "--resume", str(folder), "--quiet", "--checkpoint-every", "17"]
    assert main([*COMMAND, "--out", str(out)]) == 2, "the same command does not overwrite it"
    assert f"plait train --resume {folder}" in capsys.readouterr().err
    assert main(arguments) == 0
    assert folder.name == whole.name
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_exit_codes_of_signals(tmp_path, number, code):
    process = start([*COMMAND, "--updates", "100000", "--out", str(tmp_path)])
    wait_for_lines(process, tmp_path, 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in errors
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
