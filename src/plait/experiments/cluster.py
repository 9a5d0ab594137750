"""Workers as tasks of a Ray cluster: this machine's own, or one that is there. All see one file system."""

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
from plait.experiments.mailbox import Mailbox
from plait.experiments.plan import Job
from plait.experiments.pool import News
from plait.experiments.worker import execute

__all__ = ["Cluster", "quiet"]

_ANSWER_WITHIN = 5.0  # seconds, for an address
_JOIN_WITHIN = 60.0
_NO_CLUSTER = "--ray {}: no Ray cluster answers ({}); start one with `ray start --head`, or use --ray local"
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
        self.task = self.ray.remote(max_retries=0, **needs)(_work)
        self._hang_up_mailbox()
        self.jobs: dict[Any, str] = {}
        self.together = together

    def _hang_up_mailbox(self) -> None:
        self.mailbox = self.ray.remote(num_cpus=0)(Mailbox).remote()
        self.letters = self.mailbox.take.remote()

    def room(self) -> int:
        """Ray keeps its own queue, and a cluster that can grow grows by what waits in it."""
        return sys.maxsize

    def start(self, job: Job) -> None:
        here = dataclasses.replace(job, device=self.device, together=self.together)
        self.jobs[self.task.remote(here, self.mailbox)] = job.id

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
        """What lies in the mailbox; it is asked again when it has answered, and never waited for."""
        if not self.ray.wait([self.letters], timeout=0)[0]:
            return []
        try:
            taken: list[dict[str, Any]] = self.ray.get(self.letters)
            self.letters = self.mailbox.take.remote()
        except self.ray.exceptions.RayError:  # its node died: some progress is not seen, no result is lost
            self._hang_up_mailbox()
            return []
        return taken

    def close(self) -> None:
        for reference in self.jobs:
            self.ray.cancel(reference, force=True)
        self.ray.shutdown()


def _work(job: Job, mailbox: Any) -> dict[str, Any]:
    """A task: one run, as in a process of this machine."""
    import torch

    torch.set_num_threads(1)

    def tell(message: dict[str, Any]) -> None:
        mailbox.put.remote(message)

    return execute(job, tell)


def _check(address: str) -> None:
    """Join once from a process that can be ended: at a wrong address Ray waits for minutes, deaf to all."""
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
    """Ray's messages are pages; the first sentence says what happened."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.partition('. ')[0][:200]}"


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[TextIO]:
    """Ray's processes write pages to stderr when a node dies: they go into `log`. Yields the real stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
