"""Workers of experiments, forked from a process that has imported torch instead of spawned: two seconds less
for each, where how a worker comes to be is not what is tested."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

LIBRARIES = ["torch._dynamo", "plait.models", "plait.lab.training.supervised", "plait.lab.experiments.worker"]


class Warm:
    """What `plait.lab.experiments.processes` needs of `multiprocessing`."""

    def __init__(self) -> None:
        self.server = multiprocessing.get_context("forkserver")
        self.server.set_forkserver_preload(LIBRARIES)
        self.Pipe = self.server.Pipe

    def get_context(self, name: str) -> Warm:
        assert name == "spawn"
        return self

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> BaseProcess:
        return self.server.Process(target=_begin, args=(target, args, dict(os.environ)), daemon=daemon)


def _begin(target: Callable[..., None], args: tuple[Any, ...], environment: dict[str, str]) -> None:
    """In the environment of now, not of when the server began; the server is the parent of all of them."""
    os.environ.clear()
    os.environ.update(environment)
    pipe, _, threads = args
    target(pipe, os.getppid(), threads)
