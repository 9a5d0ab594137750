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
    """Run a private MPS daemon; processes started inside the context find it by environment variables."""
    control = shutil.which(CONTROL)
    if control is None:
        raise BackendError(f"--mps needs {CONTROL}, which is not on this machine; leave --mps out")
    with tempfile.TemporaryDirectory(prefix="plait-mps-", ignore_cleanup_errors=True) as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
        variables = {name: str(Path(folder, part)) for name, part in names.items()}
        for path in variables.values():
            os.mkdir(path)
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            _control(control, ["-d"], "")
            try:
                yield
            finally:
                _control(control, [], "quit\n")
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _control(program: str, arguments: list[str], commands: str) -> None:
    """Run the control program without output pipes, as the daemon would keep them open."""
    try:
        done = subprocess.run(
            [program, *arguments],
            input=commands.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"{CONTROL} does not answer ({error}); leave --mps out") from error
    if done.returncode:
        raise BackendError(f"{CONTROL} ended with code {done.returncode}; leave --mps out")
