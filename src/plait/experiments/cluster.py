"""Workers as tasks of a Ray cluster: this machine's own, or one that is there. All see one file system."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from plait.errors import BackendError, ConfigError, require
from plait.experiments.plan import Job
from plait.experiments.pool import News
from plait.experiments.worker import execute

__all__ = ["Cluster", "quiet"]

_ANSWER_WITHIN = 5.0  # seconds, for an address
_JOIN_WITHIN = 60.0
_OBJECT_STORE = 128 * 2**20  # bytes: descriptions and results are small


class Cluster:
    """A pool of Ray tasks, one core each, or a share of a GPU.

    Args:
        address: "local" for a cluster of this machine alone, "auto" for the one that runs here, or HOST:PORT.
        processes: for "local": how many tasks at a time.
        together: tasks a GPU, where the device is one.
        device: auto or cpu or cuda, as each task sees it.
    """

    def __init__(self, address: str, processes: int, device: str = "cpu", together: int = 4) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray = require("ray", "ray")
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
        self._join(address, options)
        self.where = f"the Ray cluster {address}"
        self.device = device
        needs = {"num_cpus": 0, "num_gpus": 1 / together} if device != "cpu" else {"num_cpus": 1}
        self.task = self.ray.remote(max_retries=0, **needs)(_work)
        self.mailbox = self.ray.remote(num_cpus=0)(_Mailbox).remote()
        self.jobs: dict[Any, str] = {}

    def _join(self, address: str, options: dict[str, Any]) -> None:
        try:
            with _patience(_JOIN_WITHIN):
                self.ray.init(**options)
        except Exception as error:
            reason = " ".join(str(error).split()).partition(". ")[0]
            raise BackendError(
                f"--ray {address}: no Ray cluster answers ({reason}); start one with "
                "`ray start --head`, or use --ray local"
            ) from None

    def room(self) -> int:
        """Ray keeps its own queue, and a cluster that can grow grows by what waits in it."""
        return sys.maxsize

    def start(self, job: Job) -> None:
        self.jobs[self.task.remote(job, self.device, self.mailbox)] = job.id

    def news(self, seconds: float) -> list[News]:
        ended, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=seconds) if self.jobs else ([], [])
        found = [News(message.pop("id"), message.pop("event"), message) for message in self._letters()]
        for reference in ended:
            job = self.jobs.pop(reference)
            try:
                found.append(News(job, "ended", self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                found.append(News(job, "died", {"reason": _first_line(error)}))
        return found

    def _letters(self) -> list[dict[str, Any]]:
        try:
            letters: list[dict[str, Any]] = self.ray.get(self.mailbox.take.remote(), timeout=5)
        except self.ray.exceptions.RayError:  # its node died: progress is lost, results are not
            self.mailbox = self.ray.remote(num_cpus=0)(_Mailbox).remote()
            return []
        return letters

    def close(self) -> None:
        for reference in self.jobs:
            self.ray.cancel(reference, force=True)
        self.ray.shutdown()


class _Mailbox:
    """Where tasks leave word of how they get on."""

    def __init__(self) -> None:
        self.letters: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def put(self, message: dict[str, Any]) -> None:
        self.letters.put(message)

    def take(self) -> list[dict[str, Any]]:
        return [self.letters.get() for _ in range(self.letters.qsize())]


def _work(job: Job, device: str, mailbox: Any) -> dict[str, Any]:
    """A task: one run, as in a process of this machine."""
    import dataclasses

    import torch

    torch.set_num_threads(1)

    def tell(message: dict[str, Any]) -> None:
        mailbox.put.remote(message)

    return execute(dataclasses.replace(job, device=device), tell)


def _check(address: str) -> None:
    """An address that nobody listens at is found out here: Ray itself would wait for minutes."""
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--ray: expected auto, local or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), _ANSWER_WITHIN).close()
    except OSError as error:
        raise BackendError(
            f"--ray {address}: nothing answers there ({error}); "
            "see `ray status` on the cluster, or use --ray local"
        ) from None


def _first_line(error: BaseException) -> str:
    """Ray's messages are pages; the first sentence says what happened."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.partition('. ')[0][:200]}"


@contextlib.contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """An error after so long; only where signals can be heard, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[TextIO]:
    """Ray's processes write pages to stderr when a node dies: they go into `log`. Yields the real stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        with os.fdopen(os.dup(kept), "w") as stream:
            yield stream
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
