"""The loop over jobs, with a pool that does what the test says: order, retries, stops, nothing lost."""

import json
import os
import signal
from pathlib import Path

import pytest

from plait.lab.experiments import runner
from plait.lab.experiments.launch import summarise
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.pool import ATTEMPTS, Event
from plait.lab.experiments.runner import run_jobs
from plait.lab.experiments.worker import stop_file

from .conftest import experiment, planned


class Scripted:
    """Gives each job's next event from a script, one at a time; `size` jobs at a time."""

    where = "a script"
    retries = False

    def __init__(self, script, size=1):
        self.script, self.size = script, size
        self.running, self.started, self.closed = [], [], False

    def room(self):
        return self.size - len(self.running)

    def start(self, job):
        assert self.room() > 0
        self.running.append(job)
        self.started.append(job.id)
        Path(job.folder).mkdir(exist_ok=True)
        Path(job.folder, "config.json").write_text(json.dumps(job.spec.to_json()))

    def events(self, seconds):
        if not self.running:
            return []
        job = self.running.pop(0)
        return [Event(job.id, "began", {"pid": 1}), self.script(job, self.started.count(job.id))]

    def close(self):
        self.closed = True


def ended(status="complete", **data):
    return lambda job, attempt: Event(job.id, "ended", {"status": status, "updates": 12, **data})


def go(tmp_path, script, *runs, seeds=(0,), **options):
    jobs = jobs_of(experiment(*(runs or (planned(),)), seeds=seeds), tmp_path, "cpu")
    pool = Scripted(script)
    seen = []
    outcome = run_jobs(
        jobs,
        tmp_path,
        lambda count: pool,
        on_progress=lambda p, n: seen.append((p.job.id, n.kind, p.status)),
        **options,
    )
    return outcome, pool, jobs, seen


def test_long_runs_start_first(tmp_path):
    outcome, pool, jobs, _ = go(
        tmp_path, ended(), planned(delay=3), planned(delay=300), planned("RNN", delay=30)
    )
    assert pool.started == [jobs[1].id, jobs[2].id, jobs[0].id]
    assert (outcome.complete, outcome.left, outcome.reason) == (3, 0, "")
    assert pool.closed


def test_a_dead_worker_is_replaced_and_its_run_resumed(tmp_path):
    def script(job, attempt):
        return Event(job.id, "died", {"reason": "signal 9"}) if attempt < 3 else ended()(job, attempt)

    outcome, pool, (job,), seen = go(tmp_path, script)
    assert pool.started == [job.id] * 3
    assert outcome.complete == 1
    assert (job.id, "died", "waiting") in seen
    assert not outcome.troubles


def test_a_pool_that_retries_itself_is_asked_once(tmp_path, monkeypatch):
    """A cluster reports a death when it has given up."""
    monkeypatch.setattr(Scripted, "retries", True)
    outcome, pool, (job,), _ = go(tmp_path, lambda job, attempt: Event(job.id, "died", {"reason": "crash"}))
    assert pool.started == [job.id]
    assert (outcome.interrupted, outcome.left) == (1, 1)
    assert f"crash, {ATTEMPTS} times" in outcome.problem


def test_a_run_whose_workers_are_killed_is_left_for_the_next_call_and_the_others_go_on(tmp_path):
    def script(job, attempt):
        if job.column == "RNN":
            return Event(job.id, "died", {"reason": "the worker was ended by signal 9"})
        return ended()(job, attempt)

    outcome, pool, jobs, _ = go(tmp_path, script, planned("RNN", delay=99), planned())
    assert pool.started == [jobs[0].id] * ATTEMPTS + [jobs[1].id]
    assert (outcome.complete, outcome.failed, outcome.interrupted, outcome.left) == (1, 0, 1, 1)
    (trouble,) = outcome.troubles
    assert f"T = 99, RNN, seed 0): the worker was ended by signal 9, {ATTEMPTS} times" in trouble
    assert outcome.problem.startswith("1 run interrupted repeatedly; "), "so the exit code is 2"
    assert "1 interrupted repeatedly: the same command resumes them" in summarise(outcome)
    assert not Path(jobs[0].folder, "summary.json").exists(), "nothing was recorded against it"
    outcome, pool, _, _ = go(tmp_path, ended(), planned("RNN", delay=99))
    assert (pool.started, outcome.complete, outcome.problem) == ([jobs[0].id], 1, ""), "without --retry"


def test_a_word_that_comes_late_does_not_wake_a_job_that_ended(tmp_path):
    class Late(Scripted):
        def events(self, seconds):
            return [*super().events(seconds), *(Event(job, "began", {}) for job in self.started)]

    jobs = jobs_of(experiment(planned()), tmp_path, "cpu")
    outcome = run_jobs(jobs, tmp_path, lambda count: Late(ended()))
    assert (outcome.complete, outcome.left) == (1, 0)


def test_a_run_stopped_by_another_process_is_resumed(tmp_path):
    def script(job, attempt):
        return ended("stopped" if attempt == 1 else "complete")(job, attempt)

    outcome, pool, _, _ = go(tmp_path, script)
    assert (len(pool.started), outcome.complete) == (2, 1)


def test_a_busy_folder_is_waited_for_and_not_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "RETRY", 0.0)

    def script(job, attempt):
        return ended("busy" if attempt < 7 else "complete", reason="in use")(job, attempt)

    outcome, pool, (job,), _ = go(tmp_path, script)
    assert len(pool.started) == 7, "more often than a run that dies"
    assert (outcome.complete, outcome.problem) == (1, "")
    assert not Path(job.folder, "summary.json").exists(), "nothing was recorded in its folder"


def test_a_folder_that_stays_busy_is_reported_and_unchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PATIENCE", 0.0)
    outcome, _, (job,), _ = go(tmp_path, ended("busy", reason="it is in use"))
    assert (outcome.busy, outcome.failed, outcome.left) == (1, 0, 1)
    assert outcome.problem.startswith("1 run in use by another process; ")
    assert not Path(job.folder, "summary.json").exists()
    assert "1 in use by another process: wait for it to end" in summarise(outcome)


@pytest.mark.parametrize("status", ["complete", "diverged", "failed"])
def test_what_is_settled_is_not_run_again(tmp_path, status):
    _, _, (job,), _ = go(tmp_path, ended())
    Path(job.folder, "summary.json").write_text(json.dumps({"status": status}))
    outcome, pool, _, _ = go(tmp_path, ended())
    assert pool.started == []
    assert not pool.closed, "no pool is made for nothing"
    assert outcome.already == 1
    assert (outcome.diverged, outcome.failed) == (status == "diverged", status == "failed")
    outcome, pool, _, _ = go(tmp_path, ended(), retry=True)
    assert len(pool.started) == (status == "failed")


def test_diverged_and_failed_runs_are_counted_and_reported(tmp_path):
    outcome, pool, _, _ = go(tmp_path, ended("diverged", reason="update 3: loss is nan"))
    assert (outcome.diverged, len(pool.started)) == (1, 1)
    assert "update 3: loss is nan" in outcome.troubles[0]


def test_time_that_is_up_asks_every_worker_to_stop(tmp_path):
    asked = []

    def script(job, attempt):
        asked.append(stop_file(tmp_path).exists())
        return ended("stopped")(job, attempt) if asked[-1] else Event(job.id, "progress", PROGRESS)

    jobs = jobs_of(experiment(planned(), planned("RNN")), tmp_path, "cpu")
    pool = Endless(script)
    outcome = run_jobs(jobs, tmp_path, lambda count: pool, max_minutes=0.3 / 60)
    assert asked[0] is False
    assert asked[-1] is True
    assert (outcome.left, outcome.reason) == (2, "max-minutes")
    assert pool.started == [jobs[0].id], "nothing new is begun"


PROGRESS = {"update": 3, "speed": 1.0, "score": None}


class Endless(Scripted):
    """Its job goes on until the script says it ended."""

    def events(self, seconds):
        if not self.running:
            return []
        news = self.script(self.running[0], 1)
        if news.kind == "ended":
            self.running.pop(0)
        return [news]


def test_ctrl_c_waits_for_the_workers_and_is_passed_on(tmp_path):
    def script(job, attempt):
        if not stop_file(tmp_path).exists():
            os.kill(os.getpid(), signal.SIGINT)
            return Event(job.id, "progress", PROGRESS)
        return ended("stopped")(job, attempt)

    jobs = jobs_of(experiment(planned()), tmp_path, "cpu")
    pool = Endless(script)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path, lambda count: pool)
    assert pool.closed
    assert not pool.running, "it had saved"


def test_a_worker_that_does_not_stop_is_not_waited_for_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.1)
    jobs = jobs_of(experiment(planned()), tmp_path, "cpu")
    pool = Endless(lambda job, attempt: Event(job.id, "progress", PROGRESS))
    outcome = run_jobs(jobs, tmp_path, lambda count: pool, max_minutes=0.1 / 60)
    assert outcome.left == 1
    assert pool.closed
