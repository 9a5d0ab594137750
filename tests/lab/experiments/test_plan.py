"""Ids are those of the training room; what is on the disk decides what is missing."""

import dataclasses
import json
import pickle

import pytest

from plait.errors import CheckpointError, ConfigError
from plait.lab.experiments.plan import jobs_of, status_of
from plait.lab.runs.folder import run_id
from plait.lab.training.description import build, describe
from plait.lab.training.recipe import Recipe
from plait.lab.training.run_spec import PlainSpec
from plait.lab.training.spec import SupervisedSpec

from .conftest import experiment, planned


def test_the_id_is_that_of_a_run_made_by_hand(tmp_path):
    one = planned("RelRNN")
    (job,) = jobs_of(experiment(one, seeds=(3,)), tmp_path)
    network, task = build({"task": one.task, "model": one.model})
    assert job.id == run_id(describe(network, task, Recipe(**one.recipe, seed=3)))
    assert job.folder == str(tmp_path / job.id)


def test_every_seed_and_every_change_is_another_run(tmp_path):
    jobs = jobs_of(experiment(planned(), planned(delay=4), planned("RNN"), seeds=(0, 1)), tmp_path)
    assert len({job.id for job in jobs}) == 6
    assert {job.id for job in jobs_of(experiment(planned(updates=13)), tmp_path)}.isdisjoint(
        {job.id for job in jobs}
    )


def test_two_cells_that_are_one_run(tmp_path):
    twice = experiment(planned("LSTM"), planned("again", model={"name": "lstm"}))
    with pytest.raises(ConfigError, match=r"two runs have the id copy-lstm-.*: T = 3, LSTM and T = 3, again"):
        jobs_of(twice, tmp_path)


def test_what_a_run_cannot_be(tmp_path):
    with pytest.raises(ConfigError, match="unknown model 'lst'"):
        jobs_of(experiment(planned("lst")), tmp_path)
    with pytest.raises(ConfigError, match=r"recipe\.speed: is not known here"):
        jobs_of(experiment(planned(speed=1)), tmp_path)
    with pytest.raises(ConfigError, match="lr: expected"):
        jobs_of(experiment(planned(lr=-1.0)), tmp_path)


def test_long_runs_cost_more(tmp_path):
    runs = [planned(delay=50), planned(delay=500), planned("MemRNN", delay=500)]
    short, long, longest = (job.cost for job in jobs_of(experiment(*runs), tmp_path))
    assert short < long < longest


def test_status(tmp_path):
    (job,) = jobs_of(experiment(planned(trace=True)), tmp_path)
    folder = tmp_path / job.id
    assert status_of(job) == "missing"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(job.spec.to_json()))
    assert status_of(job) == "missing"
    (folder / "metrics.jsonl").write_text("{}\n")
    assert status_of(job) == "packed"
    (folder / "checkpoint.safetensors").touch()
    assert status_of(job) == "missing"
    for status, expected in [
        ("complete", "trace"),
        ("stopped", "missing"),
        ("diverged", "diverged"),
        ("failed", "failed"),
    ]:
        (folder / "summary.json").write_text(json.dumps({"status": status}))
        assert status_of(job) == expected
    (folder / "summary.json").write_text(json.dumps({"status": "complete"}))
    (folder / "trace.json").touch()
    assert status_of(job) == "complete"
    (folder / "config.json").write_text(json.dumps({**job.spec.to_json(), "format": "other"}))
    with pytest.raises(CheckpointError, match="does not hold the run of its name"):
        status_of(job)


def test_a_job_travels_as_plain_data(tmp_path):
    """What was validated here is imported and validated again where the run is trained."""
    (job,) = jobs_of(experiment(planned(trace=True), seeds=(3,)), tmp_path)
    copy = pickle.loads(pickle.dumps(dataclasses.replace(job, together=2)))
    assert isinstance(job.spec, SupervisedSpec)
    assert isinstance(copy.spec, PlainSpec)
    assert (copy.id, copy.seed, copy.updates, copy.length) == (job.id, 3, job.updates, job.length)
    assert (copy.folder, copy.trace, copy.together) == (job.folder, True, 2)
