"""NVIDIA's Multi-Process Service: kernels of several processes share a GPU instead of taking turns."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from plait.errors import BackendError

__all__ = ["CONTROL", "multi_process_service"]

CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 20


@contextlib.contextmanager
def multi_process_service() -> Iterator[None]:
    """A daemon of our own in a private folder; processes started inside find it through the environment."""
    control = shutil.which(CONTROL)
    if control is None:
        raise BackendError(f"--mps needs {CONTROL}, which is not on this machine; leave --mps out")
    with tempfile.TemporaryDirectory(prefix="plait-mps-", ignore_cleanup_errors=True) as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
        ours = {name: str(Path(folder, part)) for name, part in names.items()}
        for path in ours.values():
            os.mkdir(path)
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            _ask(control, ["-d"], "")
            try:
                yield
            finally:
                _ask(control, [], "quit\n")
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _ask(control: str, arguments: list[str], words: str) -> None:
    """The daemon keeps whatever it is given open, so it is given nothing to write to."""
    try:
        done = subprocess.run(
            [control, *arguments],
            input=words.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"{CONTROL} does not answer ({error}); leave --mps out") from error
    if done.returncode:
        raise BackendError(f"{CONTROL} ended with code {done.returncode}; leave --mps out")
