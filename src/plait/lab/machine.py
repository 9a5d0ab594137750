"""Provenance of a measurement: machine, versions, commit, command and date."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from plait._version import __version__
from plait.errors import OutputError
from plait.files import destination
from plait.provenance import commit as source_commit, cores, processor, version_of

__all__ = ["check_folder", "circumstances", "describe"]


def check_folder(out: Path | None) -> None:
    """Fail before the measurement if its result could not be written."""
    if out is not None and not destination(out).parent.is_dir():
        raise OutputError(f"out: the folder {out.parent} does not exist; make it first")


def circumstances(device: torch.device, threads: int, commit: str | None = None) -> dict[str, Any]:
    """Return what is needed to repeat a measurement: machine, versions, settings, commit and command.

    `commit` is recorded if the source is not a git checkout. A "+" after it marks changes not committed.
    """
    return {
        "machine": {
            "cpu": processor(),
            "cores": cores(),
            "threads": threads,
            "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {
            "plait": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": version_of("triton"),
            "cuda-bindings": version_of("cuda-bindings"),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if device.type == "cuda" else None,
        },
        "tf32": {
            "matmul": torch.get_float32_matmul_precision() != "highest",
            "cudnn": bool(torch.backends.cudnn.allow_tf32),
        },
        "commit": source_commit() or commit,
        "command": _command(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def describe(data: dict[str, Any]) -> str:
    """Return the machine, versions and commit in one line, as a note to a table."""
    machine, tf32 = data["machine"], data["tf32"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads"
    if machine["gpu"]:
        where = f"{machine['gpu']}, tf32 in matmul {_on(tf32['matmul'])}, in cuDNN {_on(tf32['cudnn'])}"
    commit = (data["commit"] or "unknown")[:12]
    return (
        f"{where}; load {machine['load_average']}; torch {data['versions']['torch']}; commit {commit}; "
        f"{data['date']}"
    )


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _command() -> str:
    program = Path(sys.argv[0])
    room = "plait.lab.bench" if program.parent.name == "bench" else "plait"
    name = f"python -m {room}" if program.name == "__main__.py" else program.name
    return " ".join([name, *sys.argv[1:]])
