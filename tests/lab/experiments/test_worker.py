"""What a worker does with one run: train, resume, stop, record what went wrong."""

import dataclasses
import json

import pytest

from plait.errors import CheckpointError
from plait.lab.experiments.plan import jobs_of, status_of
from plait.lab.experiments.worker import execute, stop_file
from plait.lab.tasks import CopyTask
from plait.lab.training.fit import fit
from plait.lab.training.learner import generator_for
from plait.ops.gpu_share import programs, share_gpu

from .conftest import experiment, planned


def job_of(tmp_path, **options):
    (job,) = jobs_of(experiment(planned(**options)), tmp_path, device="cpu")
    return job


def read(job, name):
    from pathlib import Path

    return json.loads(Path(job.folder, name).read_text())


def test_a_run_to_its_end(tmp_path):
    job, told = job_of(tmp_path), []
    outcome = execute(job, told.append)
    assert (outcome["status"], outcome["updates"]) == ("complete", 12)
    assert status_of(job) == "complete"
    assert [message["event"] for message in told[:2]] == ["began", "progress"]
    assert told[0]["pid"] > 0


def test_workers_pass_the_gpu_share_to_kernels(tmp_path):
    execute(job_of(tmp_path), lambda message: None)
    assert programs() == 1
    try:
        execute(dataclasses.replace(job_of(tmp_path, updates=13), together=3), lambda message: None)
        assert programs() == 3
    finally:
        share_gpu(1)


def test_it_stops_on_request_and_resumes(tmp_path):
    job = job_of(tmp_path, updates=300)
    outcome = execute(job, lambda message: stop_file(tmp_path).touch())
    assert (outcome["status"], outcome["reason"]) == ("stopped", "asked to")
    assert 0 < outcome["updates"] < 300
    assert execute(job, unheard := [].append) == {"status": "stopped", "reason": "asked to"}
    assert unheard.__self__ == [], "it did not even begin"
    stop_file(tmp_path).unlink()
    assert execute(job, lambda message: None)["status"] == "complete"
    assert len(read(job, "environment.json")["sessions"]) == 2


def test_an_orphaned_worker_stops(tmp_path):
    outcome = execute(job_of(tmp_path, updates=300), lambda message: None, orphaned=lambda: True)
    assert outcome["status"] == "stopped"


def test_a_run_begun_by_another_worker_is_resumed(tmp_path, monkeypatch):
    """A runner is killed; its worker begins the run and lets go of it, as an orphan, just before the worker
    of the next runner takes the folder: that one had seen nothing there yet."""
    from plait.lab.runs.folder import Run

    job, opened = job_of(tmp_path), Run.open

    def late(*given):
        monkeypatch.setattr(Run, "open", staticmethod(opened))
        assert execute(job, lambda message: None, orphaned=lambda: True)["status"] == "stopped"
        return opened(*given)

    monkeypatch.setattr(Run, "open", staticmethod(late))
    outcome = execute(job, lambda message: None)
    assert (outcome["status"], outcome["updates"]) == ("complete", 12)
    assert [s["from_update"] for s in read(job, "environment.json")["sessions"]] == [0, 1]


def test_a_run_that_diverges_is_recorded(tmp_path):
    job = job_of(tmp_path, column="RNN", model={"name": "rnn", "nonlinearity": "relu"}, lr=1e30)
    outcome = execute(job, lambda message: None)
    assert outcome["status"] == "diverged"
    assert "not finite" in outcome["reason"]
    assert status_of(job) == "diverged"


def test_an_exception_keeps_its_reason_and_the_checkpoint(tmp_path, monkeypatch):
    job = job_of(tmp_path)
    monkeypatch.setattr(
        "plait.lab.training.supervised.evaluate",
        lambda *a, **k: (_ for _ in ()).throw(MemoryError("no\nroom")),
    )
    outcome = execute(job, lambda message: None)
    assert outcome == {"status": "failed", "reason": "MemoryError: no room"}
    assert read(job, "summary.json")["status"] == "failed"
    assert read(job, "summary.json")["reason"] == "MemoryError: no room"
    assert status_of(job) == "failed"
    monkeypatch.undo()
    assert execute(job, lambda message: None)["status"] == "complete", "a failed run can be resumed"


def test_a_failure_before_there_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    import dataclasses

    job = dataclasses.replace(job_of(tmp_path), folder=str(tmp_path / "file" / "run"))
    assert "OutputError: cannot make the folder" in execute(job, lambda message: None)["reason"]


def test_trace(tmp_path):
    model = {"name": "relrnn", "window": 4, "capacity": 2}
    job = job_of(tmp_path, column="RelRNN", model=model, trace=True)
    assert execute(job, lambda message: None)["status"] == "complete"
    trace = read(job, "trace.json")
    assert sorted(trace) == ["inputs", "layers", "targets"]
    assert len(trace["inputs"]) == len(trace["targets"]) == 23
    assert trace["inputs"][12] == 9, "the marker"
    looked_at = CopyTask(3).batch(4, generator_for(0, "held-out", 0, "cpu"))
    assert trace["inputs"] == looked_at.inputs[:, 0].argmax(-1).tolist(), (
        "sequence 0 of the evaluation's first"
    )
    assert trace["inputs"][:10] == trace["targets"][-10:]
    (layer,) = trace["layers"]
    assert {len(layer[part]) for part in ("born", "weights", "relevance")} == {23}
    assert {len(row) for row in layer["weights"]} == {6}
    for born, weights in zip(layer["born"], layer["weights"], strict=True):
        assert sum(weights) == pytest.approx(1, abs=1e-4)
        assert all(weight == 0 for at, weight in zip(born, weights, strict=True) if at < 0)


def test_a_model_without_memory_completes_with_a_reason_for_no_trace(tmp_path):
    outcome = execute(job_of(tmp_path, trace=True), lambda message: None)
    assert outcome["status"] == "complete"
    assert "no trace: " in outcome["reason"]
    assert "has no memory" in outcome["reason"]


def test_curves_without_a_checkpoint_are_not_overwritten(tmp_path):
    from pathlib import Path

    from plait.lab.training.description import build
    from plait.lab.training.recipe import Recipe

    job = job_of(tmp_path, updates=300)
    execute(job, lambda message: stop_file(tmp_path).touch())
    folder = Path(job.folder)
    (folder / "checkpoint.safetensors").unlink()
    (folder / "metrics.jsonl").write_text('{"update": 1, "loss": 1.0}\n')
    network, task = build(job.spec.to_json())
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        fit(network, task, Recipe(**job.spec.parts()["recipe"]), folder=folder, resume=True, device="cpu")
    assert (folder / "metrics.jsonl").read_text()
