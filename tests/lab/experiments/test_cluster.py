"""The same runs on a Ray cluster; one of its workers is killed in the middle."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from plait.errors import BackendError, ConfigError
from plait.lab.cli import main
from plait.lab.experiments.plan import jobs_of
from plait.lab.experiments.runner import run_jobs
from plait.lab.experiments.worker import execute

from .conftest import experiment, planned
from .test_processes import outcome_of

pytest.importorskip("ray")


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.filterwarnings("default")
def test_two_workers_and_one_is_killed_in_the_middle(tmp_path):
    from plait.lab.experiments.cluster import Cluster, quiet

    tiny = experiment(planned("LSTM", 980, updates=300, evaluate_on=1), planned(), planned("RNN"))
    jobs = jobs_of(tiny, tmp_path / "out")
    (tmp_path / "out").mkdir()
    killed, pids = [], {}

    def on_progress(progress, news):
        if news.kind == "began":
            pids.setdefault(progress.job.id, []).append(news.data["pid"])
        if (
            news.kind == "progress"
            and progress.job.id == jobs[0].id
            and news.data["update"] > 60
            and not killed
        ):
            killed.append(pids[jobs[0].id][0])
            os.kill(killed[0], signal.SIGKILL)
        assert news.kind != "died", "Ray retries, and the runner hears nothing of it"

    with quiet(tmp_path / "ray.log"):
        outcome = run_jobs(jobs, tmp_path / "out", lambda count: Cluster("local", 2), on_progress=on_progress)
    assert (outcome.complete, outcome.failed, outcome.left) == (3, 0, 0), outcome
    began = pids[jobs[0].id]
    assert len(began) == len(set(began)) == 2, "Ray began it once more, in another process"
    sessions = json.loads(Path(jobs[0].folder, "environment.json").read_text())["sessions"]
    first, second = (session["from_update"] for session in sessions)
    assert first == 0
    assert second >= 50, "from a checkpoint, not from the beginning"
    alone = jobs_of(tiny, tmp_path / "alone", "cpu")[0]
    assert execute(alone, lambda message: None)["status"] == "complete"
    assert outcome_of(alone.folder) == outcome_of(jobs[0].folder)


@pytest.mark.parametrize("address", ["here", "host:", ":1", "ray://x"])
def test_what_is_not_an_address(address):
    from plait.lab.experiments.cluster import Cluster

    with pytest.raises(ConfigError, match="expected auto, local or HOST:PORT"):
        Cluster(address, 1)


def test_an_address_where_nothing_listens():
    from plait.lab.experiments.cluster import Cluster

    with pytest.raises(BackendError, match=r"127.0.0.1:1: no Ray cluster answers .*refused"):
        Cluster("127.0.0.1:1", 1)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("default")
def test_an_address_where_something_else_listens(monkeypatch):
    from plait.lab.experiments import cluster

    monkeypatch.setattr(cluster, "_JOIN_WITHIN", 8.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.listen(5)
        with pytest.raises(BackendError, match=r"no Ray cluster answers .nothing within 8 s"):
            cluster.Cluster(f"127.0.0.1:{server.getsockname()[1]}", 1)


def test_without_ray_installed(monkeypatch, tmp_path, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    options = [
        "--smoke",
        "--models",
        "lstm",
        "--device",
        "cpu",
        "--ray",
        "local",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["reproduce", "table5", *options]) == 2
    assert "ray is needed here and not installed: pip install 'plait[ray]'" in capsys.readouterr().err
