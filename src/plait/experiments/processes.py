"""Workers as processes of this machine: spawned once, each works through runs one after the other.

One process a core with one torch thread each; on GPUs several a GPU, since one small run leaves most of it
idle.
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

from plait.errors import whole
from plait.experiments.plan import Job
from plait.experiments.pool import News
from plait.experiments.worker import execute

__all__ = ["Processes", "places"]

_TOGETHER_ON_A_GPU = 4


def places(device: str, together: int | None = None) -> list[str]:
    """A device for each worker: as many workers as cores, or `together` for each GPU.

    >>> places("cpu", 3)
    ['cpu', 'cpu', 'cpu']
    """
    import torch

    from plait.training.process import device_named

    if together is not None:
        whole(1, together=together)
    found = device_named(device)
    if found.type == "cpu":
        return ["cpu"] * (together or len(os.sched_getaffinity(0)))
    every_gpu = device in ("auto", "cuda")
    gpus = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if every_gpu else [device]
    return gpus * (together or _TOGETHER_ON_A_GPU)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    place: str
    job: str | None = None


class Processes:
    """A pool of spawned processes. One that dies is replaced when there is a job for it."""

    def __init__(self, devices: list[str], threads: int = 1) -> None:
        self.where = f"{len(devices)} processes on {', '.join(sorted(set(devices)))}"
        self.places, self.idle_places, self.threads = tuple(devices), list(devices), threads
        self.workers: list[_Worker] = []

    def room(self) -> int:
        return len(self.idle_places) + sum(worker.job is None for worker in self.workers)

    def start(self, job: Job) -> None:
        worker = next((w for w in self.workers if w.job is None), None) or self._spawn(
            self.idle_places.pop(0)
        )
        worker.job = job.id
        # One that died while idle is noticed by `news`, as one that died at work.
        with contextlib.suppress(OSError):
            together = self.places.count(worker.place)
            worker.pipe.send(dataclasses.replace(job, device=worker.place, together=together))

    def _spawn(self, place: str) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, os.getpid(), self.threads), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, place)
        self.workers.append(worker)
        return worker

    def news(self, seconds: float) -> list[News]:
        pipes = {worker.pipe: worker for worker in self.workers}
        found: list[News] = []
        for ready in wait(list(pipes), seconds):
            worker = pipes[ready]  # type: ignore[index]
            try:
                while worker.pipe.poll():
                    found += self._heard(worker, worker.pipe.recv())
            except (EOFError, OSError):
                found += self._buried(worker)
        return found

    def _heard(self, worker: _Worker, message: dict[str, Any]) -> list[News]:
        job, kind = worker.job, message.pop("event")
        if kind == "ended":
            worker.job = None
        return [News(job, kind, message)] if job is not None else []

    def _buried(self, worker: _Worker) -> list[News]:
        worker.process.join(5)
        worker.pipe.close()
        self.workers.remove(worker)
        self.idle_places.append(worker.place)
        if worker.job is None:
            return []
        return [News(worker.job, "died", {"reason": _cause(worker.process.exitcode)})]

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
    """A worker's life: take a job, run it, tell how it ended; until the pipe is closed."""
    os.setsid()  # Ctrl-C is for the parent, which lets every worker save first
    import torch

    torch.set_num_threads(threads)

    def tell(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more; `orphaned` ends the run
            pipe.send(message)

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        tell({"event": "ended", **execute(job, tell, lambda: os.getppid() != parent)})
