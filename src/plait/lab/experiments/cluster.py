"""Workers as tasks of a Ray cluster, started on this machine or already running; they share a file system."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from plait.errors import BackendError, ConfigError, require
from plait.lab.experiments.event_queue import EventQueue
from plait.lab.experiments.plan import Job
from plait.lab.experiments.pool import ATTEMPTS, Event
from plait.lab.experiments.worker import execute

__all__ = ["Cluster", "quiet"]

_ANSWER_WITHIN = 5.0  # seconds until an address accepts a connection
_JOIN_WITHIN = 60.0  # seconds
_NO_CLUSTER = "--ray {}: no Ray cluster answers ({}); start one with `ray start --head`, or use --ray local"
_OBJECT_STORE = 128 * 2**20  # bytes: descriptions and results are small


class Cluster:
    """A pool of Ray tasks, one core each, or a share of a GPU; Ray retries those whose worker or node dies.

    Args:
        address: "local" for a cluster of this machine alone, "auto" for the one that runs here, or HOST:PORT.
        processes: parallel tasks, for "local" only.
        device: auto, cpu or cuda, as each task sees it (cpu).
        together: tasks per GPU, if the device is one (4).
    """

    retries = True

    def __init__(self, address: str, processes: int, device: str = "cpu", together: int = 4) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray = require("ray", "ray")
        if address not in ("local", "auto"):
            _check(address)
        options: dict[str, Any] = {
            "log_to_driver": False,
            "include_dashboard": False,
            "logging_level": "ERROR",
        }
        if address == "local":
            options |= {"num_cpus": processes, "object_store_memory": _OBJECT_STORE}
        else:
            options = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
        try:
            self.ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BackendError(_NO_CLUSTER.format(address, _first_line(error))) from None
        self.where = f"the Ray cluster {address}"
        self.device = device
        needs = {"num_cpus": 0, "num_gpus": 1 / together} if device != "cpu" else {"num_cpus": 1}
        self.task = self.ray.remote(max_retries=ATTEMPTS - 1, **needs)(_work)
        self._start_queue()
        self.jobs: dict[Any, str] = {}
        self.together = together

    def _start_queue(self) -> None:
        self.queue = self.ray.remote(num_cpus=0)(EventQueue).remote()
        self.messages = self.queue.take.remote()

    def room(self) -> int:
        """Return no limit: Ray queues tasks itself, and an autoscaling cluster grows with its queue."""
        return sys.maxsize

    def start(self, job: Job) -> None:
        here = dataclasses.replace(job, device=self.device, together=self.together)
        self.jobs[self.task.remote(here, self.queue)] = job.id

    def events(self, seconds: float) -> list[Event]:
        ended, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=seconds) if self.jobs else ([], [])
        events = [Event(message.pop("id"), message.pop("event"), message) for message in self._messages()]
        for reference in ended:
            job = self.jobs.pop(reference)
            try:
                events.append(Event(job, "ended", self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                events.append(Event(job, "died", {"reason": _first_line(error)}))
        return events

    def _messages(self) -> list[dict[str, Any]]:
        """Return the queue's messages if the last request was answered, without waiting, and request more."""
        if not self.ray.wait([self.messages], timeout=0)[0]:
            return []
        try:
            taken: list[dict[str, Any]] = self.ray.get(self.messages)
            self.messages = self.queue.take.remote()
        except self.ray.exceptions.RayError:  # its node died: some progress events are lost, no results
            self._start_queue()
            return []
        return taken

    def close(self) -> None:
        for reference in self.jobs:
            self.ray.cancel(reference, force=True)
        self.ray.shutdown()


def _work(job: Job, queue: Any) -> dict[str, Any]:
    """Execute one run as a Ray task, as a process of this machine does."""
    import torch

    torch.set_num_threads(1)

    def tell(message: dict[str, Any]) -> None:
        queue.put.remote(message)

    return execute(job, tell)


def _check(address: str) -> None:
    """Join once from a process that can be killed: Ray blocks at a wrong address for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--ray: expected auto, local or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), _ANSWER_WITHIN).close()
        probe = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
        command = [sys.executable, "-c", probe, address]
        subprocess.run(command, check=True, capture_output=True, timeout=_JOIN_WITHIN)
    except OSError as error:
        raise BackendError(_NO_CLUSTER.format(address, error)) from None
    except subprocess.TimeoutExpired:
        raise BackendError(_NO_CLUSTER.format(address, f"nothing within {_JOIN_WITHIN:.0f} s")) from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise BackendError(_NO_CLUSTER.format(address, reason[:200])) from None


def _first_line(error: BaseException) -> str:
    """Return the first sentence of an error, as Ray's messages are pages long."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.partition('. ')[0][:200]}"


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[TextIO]:
    """Redirect stderr to `log`, as Ray writes pages to it when a node dies; yield the real stderr."""
    sys.stderr.flush()
    original = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        with os.fdopen(os.dup(original), "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
