"""Two processes train as one does, to rounding."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.process import check_threads
from tests.lab.small_runs import COPY

RUN = [*COPY, *shlex.split("--batch-size 7 --evaluate-every 10 --gradients-every 10")]


def torchrun(*arguments, script=None, **options):
    target = [script] if script else ["-m", "plait"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *target,
    ]
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def finish(process):
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    return process.returncode, out, err


def records(out, name="metrics.jsonl"):
    """A journal's lines, without the clock."""
    (path,) = out.glob(f"*/{name}")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_two_processes_give_the_curve_of_one(tmp_path, capsys):
    """A batch of 7 in shares of 3 and 4; loss, score, gradient norm to 1e-5 relative for 30 updates."""
    arguments = [*RUN, "--updates", "30"]
    process = torchrun(*arguments, "--out", str(tmp_path / "two"), "--json")
    assert main([*arguments, "--out", str(tmp_path / "one"), "--json", "--quiet"]) == 0
    alone = json.loads(capsys.readouterr().out)
    code, out, err = finish(process)
    assert code == 0, err
    together = json.loads(out)  # one answer: only the first process speaks
    assert together["run"] == alone["run"]
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert len(one) == len(two) == 33
    for a, b in zip(one, two, strict=True):
        if "loss" in a:
            assert {k: pytest.approx(v, rel=1e-5) for k, v in a.items()} == b
        else:
            assert a["held_out"]["copy"] == pytest.approx(b["held_out"]["copy"], rel=1e-5)
    for a, b in zip(*(records(tmp_path / x, "gradients.jsonl") for x in ("one", "two")), strict=True):
        assert a["norms"][0] == pytest.approx(b["norms"][0], rel=1e-4)
    (environment,) = (tmp_path / "two").glob("*/environment.json")
    assert json.loads(environment.read_text())["sessions"][0]["processes"] == 2


@pytest.mark.slow
def test_one_process_that_cannot_begin_stops_all(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = finish(torchrun(*RUN, "--updates", "3", "--out", str(tmp_path / "file")))
    assert code != 0
    assert "cannot make the folder" in err


CARRY = """
import sys, torch, plait
sys.path.insert(0, {here!r})
from tests.conftest import StreamTask
torch.manual_seed(0)
fitted = plait.fit(plait.GRU(2, 4), StreamTask(), updates=int(sys.argv[2]), batch_size=5, device="cpu",
                   record_every=1, evaluate_on=5, folder=sys.argv[1], resume=True, checkpoint_every=3,
                   max_minutes=float(sys.argv[3]))
"""


@pytest.mark.slow
def test_carried_states_of_all_processes_are_saved(tmp_path):
    from pathlib import Path

    script = tmp_path / "carry.py"
    script.write_text(CARRY.format(here=str(Path(__file__).parents[3])))
    for folder, minutes in (("whole", "9"), ("parts", "1e-9"), ("parts", "1e-9"), ("parts", "9")):
        process = torchrun(str(tmp_path / folder), "7", minutes, script=str(script))
        code, _, err = finish(process)
        assert code == 0, err
    whole, parts = (
        read_checkpoint(tmp_path / x / "checkpoint.safetensors").tensors for x in ("whole", "parts")
    )
    assert any(name.startswith("carry.1.") for name in whole)
    assert all((whole[name] == parts[name]).all() for name in whole)
    assert set(whole) == set(parts)


@pytest.mark.slow
def test_a_signal_to_one_stops_all_and_they_go_on_where_they_were(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    arguments = [*RUN, "--updates", "300", "--quiet"]
    assert finish(torchrun(*arguments, "--out", str(whole)))[0] == 0
    process = torchrun(*arguments, "--out", str(out))
    while not list(out.glob("*/metrics.jsonl")) or len(records(out)) < 20:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code != 0
    (folder,) = out.iterdir()
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped", err
    assert finish(torchrun("train", "--resume", str(folder), "--quiet"))[0] == 0
    assert records(out) == records(whole)


def test_threads_without_room_for_their_stacks_are_refused(monkeypatch):
    """OpenMP ends a process whose `ulimit -v` is too small for them, with exit code 1."""
    monkeypatch.setattr("plait.estimates._left_to_this_process", lambda: 2**30)
    check_threads(128)
    with pytest.raises(ConfigError, match="threads: expected at most 128 within `ulimit -v`, got 129"):
        check_threads(129)
