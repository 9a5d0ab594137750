"""Real processes: killed, interrupted, out of time; what comes out is what an undisturbed run gives."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.lab.cli import main
from plait.lab.experiments import runner
from plait.lab.experiments.catalogue import experiment_named
from plait.lab.experiments.description import MEANS_NOTHING
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.processes import Processes, places
from plait.lab.experiments.runner import run_jobs
from plait.lab.experiments.selection import Selection
from plait.lab.experiments.worker import execute
from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.runs.folder import is_locked, locked

from .conftest import experiment, planned

pytestmark = pytest.mark.usefixtures("spawned_workers")


def outcome_of(folder):
    """What must be bit-exactly equal, but for clocks."""
    tensors, counters, *_ = read_checkpoint(Path(folder, "checkpoint.safetensors"))
    weights = {name: value.tolist() for name, value in tensors.items()}
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("seconds", None)
    return weights, lines, counters["update"]


def test_places():
    assert places("cpu", 2) == ["cpu", "cpu"]
    assert len(places("cpu")) == len(os.sched_getaffinity(0))


def test_a_killed_worker_is_replaced_and_its_run_ends_as_if_nothing_had_happened(tmp_path):
    tiny = experiment(planned("LSTM", 980, updates=300, evaluate_on=1), planned(), planned("RNN"))
    jobs = jobs_of(tiny, tmp_path / "out")
    killed = []

    def on_progress(progress, news):
        if (
            news.kind == "progress"
            and progress.job.id == jobs[0].id
            and news.data["update"] > 60
            and not killed
        ):
            killed.append(pids[progress.job.id])
            os.kill(killed[0], signal.SIGKILL)
        if news.kind == "began":
            pids[progress.job.id] = news.data["pid"]
        if news.kind == "died":
            reasons.append(progress.reason)

    pids, reasons = {}, []
    outcome = run_jobs(
        jobs, tmp_path / "out", lambda count: Processes(["cpu", "cpu"]), on_progress=on_progress
    )
    assert (outcome.complete, outcome.failed, outcome.left) == (3, 0, 0)
    assert reasons == ["the worker was ended by signal 9"]
    assert pids[jobs[0].id] != killed[0], "another process took it up"
    sessions = json.loads(Path(jobs[0].folder, "environment.json").read_text())["sessions"]
    first, second = (session["from_update"] for session in sessions)
    assert first == 0
    assert second >= 50, "from a checkpoint, not from the beginning"
    assert {s["threads"] for s in sessions} == {1}
    alone = jobs_of(tiny, tmp_path / "alone", "cpu")[0]
    assert execute(alone, lambda message: None)["status"] == "complete"
    assert outcome_of(alone.folder) == outcome_of(jobs[0].folder)


JOB = [
    sys.executable,
    "-m",
    "plait",
    "reproduce",
    "table5",
    "--smoke",
    "--models",
    "lstm,relrnn",
    "--device",
    "cpu",
]
JOB += ["--together", "2"]


def start(*options, **kwargs):
    return subprocess.Popen(
        [*JOB, *map(str, options)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def updates(out):
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*/metrics.jsonl"))


def wait_for(condition, job=None):
    for _ in range(1000):
        if condition():
            return
        assert job is None or job.poll() is None, job.communicate()
        time.sleep(0.1)
    raise AssertionError("it does not get on")


def summaries(out):
    return [json.loads(path.read_text()) for path in sorted(out.glob("*/summary.json"))]


def free(out):
    return out.exists() and not any(is_locked(path.parent) for path in out.glob("*/config.json"))


def test_the_runner_killed_then_ctrl_c_then_out_of_time(tmp_path):
    out = tmp_path / "out"
    endless = ("--updates", 1_000_000, "--delays", 10, "--out", out)
    job = start(*endless)
    wait_for(lambda: len(list(out.glob("*/metrics.jsonl"))) == 2, job)
    job.kill()
    job.communicate(timeout=30)
    wait_for(lambda: free(out))
    assert [summary["status"] for summary in summaries(out)] == ["stopped", "stopped"], (
        "orphans save and stop"
    )

    job, before = start(*endless), updates(out)
    wait_for(lambda: updates(out) > before + 4 and not list(out.glob("*/summary.json")), job)
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does: to everyone in the group
    said, errors = job.communicate(timeout=100)
    assert job.returncode == 130, errors
    assert "the same command continues" in errors
    assert "Traceback" not in said + errors
    stopped = summaries(out)
    assert [summary["status"] for summary in stopped] == ["stopped", "stopped"]
    assert not (out / "stop").exists()

    done = start(*endless, "--max-minutes", 0.05, "--pack-light", tmp_path / "light.tar.gz")
    said, errors = done.communicate(timeout=100)
    assert done.returncode == 0, errors
    assert "2 unfinished (max-minutes): the same command resumes them" in said
    assert "light.tar.gz holds 2 runs" in said
    for before, after in zip(stopped, summaries(out), strict=True):
        assert after["updates"] >= before["updates"], "nothing is lost"


def one_run(out):
    options = ["--smoke", "--models", "lstm", "--delays", "10", "--device", "cpu", "--out", str(out)]
    one = Selection.read("lstm", "10").of(experiment_named("table5", smoke=True))
    (job,) = jobs_of(one, out)
    folder = Path(job.folder)
    folder.mkdir(parents=True)
    return options, folder


def test_a_folder_in_use_is_waited_for(tmp_path):
    """As when a runner was killed and its worker is still busy: not failed, and then resumed."""
    options, folder = one_run(tmp_path / "out")
    with locked(folder):
        job = subprocess.Popen(
            [sys.executable, "-m", "plait", "reproduce", "table5", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert job.stderr.readline() == f"{MEANS_NOTHING.upper()}\n"
        line = job.stderr.readline()
        assert "waiting: " in line
        assert "in use by another process" in line
    assert "complete" in job.communicate(timeout=100)[1]
    assert job.returncode == 0
    assert [summary["status"] for summary in summaries(tmp_path / "out")] == ["complete"]


def test_a_folder_in_use_gives_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "PATIENCE", 0.0)
    options, folder = one_run(tmp_path / "out")
    with locked(folder):
        assert main(["reproduce", "table5", *options]) == 2
    said = capsys.readouterr()
    assert "1 in use by another process" in said.out
    assert said.err.splitlines()[-1].startswith("plait: error: 1 run in use by another process; copy-lstm-")
    assert not summaries(tmp_path / "out"), "busy is not failed"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["table6"], "unknown experiment 'table6'"),
        (["table5", "--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1: no Ray cluster answers"),
        (["table5", "--together", "0"], "together: expected at least 1"),
    ],
)
def test_errors_in_one_line(options, words, tmp_path, capsys):
    assert main(["reproduce", *options, "--smoke", "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.removeprefix(f"{MEANS_NOTHING.upper()}\n")
    assert words in error
    assert error.count("\n") == 1
