"""Runs on the disk: finding them, reading them, loading what they trained."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from plait.errors import CheckpointError, ConfigError, PlaitError
from plait.training.checkpoint import load_weights, read_checkpoint
from plait.training.description import build, run_id
from plait.training.files import Journal, is_locked, read_json
from plait.training.process import device_named

__all__ = ["RunRecord", "all_runs", "find_run", "load", "read_run"]


@dataclass(frozen=True)
class RunRecord:
    """What a run folder says. `status`: complete, stopped, diverged, running, interrupted (killed, can be
    resumed), or damaged."""

    folder: Path
    id: str
    status: str
    updates: int
    best_score: float | None
    description: dict[str, Any]
    summary: dict[str, Any]

    @property
    def task(self) -> str:
        return _shown(self.description.get("task", {}), ("delay",))

    @property
    def model(self) -> str:
        return _shown(self.description.get("model", {}), ())


def read_run(folder: Path) -> RunRecord:
    """Read one folder.

    Raises:
        CheckpointError: if it is not a run, or cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is not a run: it has no config.json")
    description = read_json(folder / "config.json")
    try:
        identity = run_id(description)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / 'config.json'} does not describe a run") from error
    summary = read_json(folder / "summary.json") if (folder / "summary.json").exists() else {}
    lines = Journal.read(folder / "metrics.jsonl")
    updates = summary.get("updates", max((line["update"] for line in lines), default=0))
    scores = [next(iter(line["held_out"].values()))["score"] for line in lines if "held_out" in line]
    status = "running" if is_locked(folder) else summary.get("status", "interrupted")
    best = summary.get("best_score", max(scores, default=None))
    return RunRecord(folder, identity, status, updates, best, description, summary)


def all_runs(out: Path) -> list[RunRecord]:
    """Every run in a folder of runs, by name; one that cannot be read is listed as damaged."""
    if not out.is_dir():
        raise ConfigError(f"no folder {out}; train something first, or name another with --out")
    records = []
    for config in sorted(out.glob("*/config.json")):
        folder = config.parent
        try:
            records.append(read_run(folder))
        except PlaitError as error:
            records.append(RunRecord(folder, folder.name, "damaged", 0, None, {}, {"reason": str(error)}))
    return records


def find_run(name: str | Path, out: Path | str = "runs") -> Path:
    """A run's folder from its path, its name in `out`, or the beginning of that name."""
    path, out = Path(name), Path(out)
    for candidate in (path, out / path):
        if (candidate / "config.json").exists():
            return candidate
    names = [config.parent.name for config in sorted(out.glob("*/config.json"))]
    found = [one for one in names if one.startswith(path.name)] if path.name == str(name) else []
    if len(found) == 1:
        return out / found[0]
    if found:
        raise ConfigError(f"run {str(name)!r} is not one run but {len(found)}: {', '.join(found)}")
    close = difflib.get_close_matches(path.name, names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "; plait runs lists them"
    raise ConfigError(f"no run {str(name)!r}, neither here nor in {out}{hint}")


def load(
    run: str | Path, *, device: str = "cpu", backend: str = "auto", model: nn.Module | None = None
) -> nn.Module:
    """The module a run trained, ready for use (`eval` mode).

    Args:
        run: its folder, or its id under `runs/`.
        device: auto, cpu, cuda or cuda:N.
        backend: of the model's scan.
        model: the module to fill, for a run whose model was made in Python and has no name here.
    """
    folder = find_run(run)
    record = read_run(folder)
    network = model if model is not None else build(record.description, backend)[0]
    load_weights(network, read_checkpoint(folder / "checkpoint.safetensors", record.id))
    return network.to(device_named(device)).eval()


def _shown(part: dict[str, Any], keys: tuple[str, ...]) -> str:
    name = str(part.get("name") or part.get("class", "?"))
    return " ".join([name, *(f"{key} {part[key]}" for key in keys if key in part)])
