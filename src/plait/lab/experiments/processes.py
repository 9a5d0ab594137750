"""Workers as processes of this machine, spawned once; each trains one run after the other.

One process per core with one torch thread each; on GPUs several per GPU, since one small run leaves most of
it idle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from plait.errors import check_int
from plait.lab.experiments.plan import Job
from plait.lab.experiments.pool import Event
from plait.lab.experiments.worker import execute

__all__ = ["Processes", "places"]

_TOGETHER_ON_A_GPU = 4


def places(device: str, together: int | None = None) -> list[str]:
    """Return a device for each worker: as many workers as cores, or `together` (4) per GPU.

    >>> places("cpu", 3)
    ['cpu', 'cpu', 'cpu']
    """
    import torch

    from plait.lab.training.process import device_named

    if together is not None:
        check_int(1, together=together)
    target = device_named(device)
    if target.type == "cpu":
        return ["cpu"] * (together or len(os.sched_getaffinity(0)))
    every_gpu = device in ("auto", "cuda")
    gpus = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if every_gpu else [device]
    return gpus * (together or _TOGETHER_ON_A_GPU)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    device: str
    job: str | None = None


class Processes:
    """Pool of spawned processes; one that dies is replaced when there is a job for it."""

    retries = False

    def __init__(self, devices: list[str], threads: int = 1) -> None:
        self.where = f"{len(devices)} processes on {', '.join(sorted(set(devices)))}"
        self.devices, self.free_devices, self.threads = tuple(devices), list(devices), threads
        self.workers: list[_Worker] = []

    def room(self) -> int:
        return len(self.free_devices) + sum(worker.job is None for worker in self.workers)

    def start(self, job: Job) -> None:
        worker = next((w for w in self.workers if w.job is None), None) or self._spawn(
            self.free_devices.pop(0)
        )
        worker.job = job.id
        # The death of an idle worker is noticed by `events`, like that of a busy one.
        with contextlib.suppress(OSError):
            together = self.devices.count(worker.device)
            worker.pipe.send(dataclasses.replace(job, device=worker.device, together=together))

    def _spawn(self, device: str) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, os.getpid(), self.threads), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, device)
        self.workers.append(worker)
        return worker

    def events(self, seconds: float) -> list[Event]:
        pipes = {worker.pipe: worker for worker in self.workers}
        events: list[Event] = []
        for ready in wait(list(pipes), seconds):
            worker = pipes[ready]  # type: ignore[index]
            try:
                while worker.pipe.poll():
                    events += self._receive(worker, worker.pipe.recv())
            except (EOFError, OSError):
                events += self._reap(worker)
        return events

    def _receive(self, worker: _Worker, message: dict[str, Any]) -> list[Event]:
        job, kind = worker.job, message.pop("event")
        if kind == "ended":
            worker.job = None
        return [Event(job, kind, message)] if job is not None else []

    def _reap(self, worker: _Worker) -> list[Event]:
        worker.process.join(5)
        worker.pipe.close()
        self.workers.remove(worker)
        self.free_devices.append(worker.device)
        if worker.job is None:
            return []
        return [Event(worker.job, "died", {"reason": _cause(worker.process.exitcode)})]

    def close(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(5)
        self.workers.clear()


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the worker was ended by signal {-code}"
    return f"the worker ended with code {code}"


def _serve(pipe: Connection, parent: int, threads: int) -> None:
    """Execute jobs from the pipe and report how each ended, until the pipe is closed."""
    os.setsid()  # Ctrl-C is for the parent, which lets every worker save first
    import torch

    torch.set_num_threads(threads)

    def tell(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the parent has ended; `orphaned` stops the run
            pipe.send(message)

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        tell({"event": "ended", **execute(job, tell, lambda: os.getppid() != parent)})
