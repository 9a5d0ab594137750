"""Only missing runs are run; what is finished survives Ctrl-C, a limit of time and a killed writer."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from plait.errors import OutputError
from plait.lab.experiments.depthwidth import FIGURE_1, SMOKE, runner as runner_module
from plait.lab.experiments.depthwidth.runner import RECORDS, read_records, run_missing
from plait.lab.experiments.description import MEANS_NOTHING

CPU = torch.device("cpu")


def copy_of(folder, to):
    shutil.copytree(folder, to)
    return to


def lines_of(folder):
    return (folder / RECORDS).read_text().splitlines()


def comparable(record):
    return {key: value for key, value in record.items() if key not in ("seconds", "environment")}


def test_records_hold_what_a_reader_needs(smoke, text):
    records = read_records(smoke)
    assert [record["id"] for record in records] == [run.run_id(text.fingerprint) for run in SMOKE.runs()]
    for record in records:
        assert record["text"] == text.fingerprint
        assert record["environment"]["device"] == "cpu"
        assert record["training"][0] == [
            1,
            pytest.approx(__import__("math").log(len(text.symbols)), abs=1e-5),
        ]
        assert [at for at, _ in record["validation"]] == [15, 30]
        assert record["test_loss"] < record["training"][0][1]
        assert not record["diverged"]


def test_a_finished_experiment_is_not_run_again(smoke, text, tmp_path):
    folder = copy_of(smoke, tmp_path / "again")
    before = (folder / RECORDS).read_bytes()
    outcome = run_missing(SMOKE, text, folder, CPU)
    assert (outcome.finished, outcome.already, outcome.missing) == (0, 8, 0)
    assert (folder / RECORDS).read_bytes() == before


def test_only_missing_runs_are_run_and_come_out_the_same(smoke, text, tmp_path, monkeypatch):
    folder = copy_of(smoke, tmp_path / "part")
    kept = lines_of(smoke)
    (folder / RECORDS).write_text("\n".join(kept[:6]) + "\n" + kept[6][:100])  # a writer died in line seven
    trained = []
    learner = runner_module.TextLearner
    monkeypatch.setattr(
        runner_module, "TextLearner", lambda run, *rest: trained.append(run) or learner(run, *rest)
    )
    outcome = run_missing(SMOKE, text, folder, CPU)
    assert (outcome.finished, outcome.already) == (2, 6)
    assert trained == SMOKE.runs()[6:]
    for line, again in zip(kept, lines_of(folder), strict=True):
        assert comparable(json.loads(line)) == comparable(json.loads(again))


def test_another_text_is_another_run(smoke, tmp_path):
    from plait.lab.tasks.text import read_text

    (tmp_path / "other.txt").write_text("ab ba " * 2000)
    folder = copy_of(smoke, tmp_path / "other")
    outcome = run_missing(SMOKE, read_text([tmp_path / "other.txt"]), folder, CPU, max_minutes=1e-9)
    assert (outcome.already, outcome.missing, outcome.reason) == (0, 8, "max-minutes")


def test_another_size_is_refused(smoke, text, tmp_path):
    with pytest.raises(OutputError, match="another size; choose another --out"):
        run_missing(FIGURE_1, text, copy_of(smoke, tmp_path / "busy"), CPU)


def test_a_non_finite_loss_is_null_and_reported(text, tmp_path, monkeypatch):
    monkeypatch.setattr(runner_module.TextLearner, "evaluate", lambda self, part: float("nan"), raising=True)
    lines = []
    run_missing(SMOKE, text, tmp_path / "nan", CPU, report=lines.append)
    record = read_records(tmp_path / "nan")[0]
    assert record["diverged"]
    assert record["test_loss"] is None
    assert "diverged" in lines[0]


def test_ctrl_c_keeps_what_is_finished(text_file, tmp_path):
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "plait", "reproduce", "depthwidth-figure1", "--smoke"]
    job = subprocess.Popen(
        [*command, "--text", str(text_file), "--out", str(out), "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert job.stderr is not None
    assert job.stderr.readline() == f"{MEANS_NOTHING.upper()}\n"
    assert "1/8" in job.stderr.readline()
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    assert job.returncode == 130
    finished = len(lines_of(out))
    assert 1 <= finished < 8
