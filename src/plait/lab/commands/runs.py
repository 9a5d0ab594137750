"""The command `plait runs` and its subcommands."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import CheckpointError, ConfigError
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.table import Table, scored

if TYPE_CHECKING:
    from plait.lab.runs.reading import RunFolder

__all__ = ["list_runs", "pack_runs", "show_run", "unpack_runs"]

_NAMED = 5  # how many run names fit on a line


def list_runs(out: Annotated[Path, option(metavar="OUT")] = Path("runs"), /) -> CommandResult:
    """List runs as a table, the newest first: task or environment, model, length, best score, status, date.

    Args:
        out: the folder of runs.
    """
    from plait.lab.runs.reading import all_runs

    records = sorted(all_runs(out), key=lambda run: run.began, reverse=True)
    rows = [[r.id, r.task, r.model, _length(r), _score(r), _status(r), _date(r)] for r in records]
    table = Table(["id", "task", "model", "length", "best score", "status", "began (UTC)"], rows)
    data = [
        {
            "id": r.id,
            "folder": str(r.folder),
            "task": r.description.get("task"),
            "model": r.description.get("model"),
            "updates": r.updates,
            "length": _length(r),
            "began": r.began,
            "best_score": r.best_score,
            "status": r.status,
            "reason": r.reason,
        }
        for r in records
    ]
    return CommandResult(data, (table if rows else f"no runs in {out}",))


def show_run(run: Annotated[str, option(metavar="RUN")], /, out: Path = Path("runs")) -> CommandResult:
    """Show one run: its options, progress and scores, and the commands that repeat or continue it.

    Args:
        run: a run's folder, its id, or the beginning of its id.
        out: the folder of runs in which an id is searched.
    """
    from plait.lab.runs.difference import options_of
    from plait.lab.runs.folder import Journal
    from plait.lab.runs.kinds import how_to_repeat, how_to_resume, kind_of
    from plait.lab.runs.reading import find_run, read_run

    folder = find_run(run, out)
    record = read_run(folder)
    kind, sessions = kind_of(record.description), record.sessions
    try:
        target_updates = kind.updates(record.description)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(f"{folder}: config.json does not say for how many updates or steps") from error
    # Metrics that a killed run wrote after its last checkpoint are not covered by it, so they are left out.
    curve = [line for line in Journal.read(folder / "metrics.jsonl") if "held_out" in line][
        : len(record.marks)
    ]
    rows = [
        [mark.update, name, result.get("loss"), scored(result["score"], kind.score)]
        for mark in _subsample(list(record.marks))
        for name, result in mark.results.items()
    ]
    lines = [
        f"{record.id}: {record.status}, {record.updates} of {target_updates} updates",
        *(
            f"{part:8}{_options_text(options_of(record.description[part]))}"
            for part in ("task", "model", "recipe")
        ),
        *(
            f"session from update {s['from_update']}: {s['began']}, torch {s['torch']}, {s['device_name']}, "
            f"{s['threads']} threads, {s['processes']} processes"
            for s in (defaultdict(lambda: "?", session) for session in sessions)
        ),
    ]
    parts: list[str | Table] = ["\n".join(lines)]
    if rows:
        parts.append(Table(["update", "held out", kind.shown.get("loss", "loss"), kind.score], rows))
    repeat = how_to_repeat(record.description, folder)
    if repeat is not None:
        parts.append(f"repeat: {repeat}")
    if record.status in ("stopped", "interrupted"):
        parts.append(f"continue: {how_to_resume(record.description, folder)}")
    if record.status == "diverged":
        parts.append(str(record.summary.get("reason", "")))
    data = {
        "id": record.id,
        "folder": str(folder),
        "status": record.status,
        "updates": record.updates,
        "best_score": record.best_score,
        "description": record.description,
        "repeat": repeat,
        "summary": record.summary,
        "sessions": sessions,
        "held_out": curve,
    }
    return CommandResult(data, tuple(parts))


def pack_runs(
    runs: Annotated[tuple[str, ...], option(metavar="RUNS")],
    /,
    output: Annotated[Path, option(aliases=("-o",))] = Path("runs.tar.gz"),
    out: Path = Path("runs"),
    light: bool = False,
) -> CommandResult:
    """Pack run folders into one archive, with the experiment's description if they belong to one.

    Args:
        runs: folders of runs, single run folders, or ids.
        output: the archive to write.
        out: the folder of runs in which ids are searched.
        light: leave out checkpoints: small, and enough for a report, but such runs cannot be resumed.
    """
    from plait.lab.runs.archive import pack

    if not runs:
        raise ConfigError("expected at least one run or folder of runs: plait runs pack runs -o runs.tar.gz")
    names = pack(runs, output, out, light)
    size, digest = output.stat().st_size, hashlib.sha256(output.read_bytes()).hexdigest()
    data = {"archive": str(output), "runs": names, "bytes": size, "sha256": digest}
    line = f"{output} holds {_list_names(names)}; {size / 1e6:.1f} MB; SHA-256 {digest}"
    return CommandResult(data, (line,))


def unpack_runs(
    archive: Annotated[Path, option(metavar="FILE")], /, out: Path = Path("runs")
) -> CommandResult:
    """Unpack run folders from an archive; runs that exist already are not overwritten.

    Args:
        archive: an archive written by `plait runs pack`.
        out: the folder of runs to unpack into.
    """
    from plait.lab.runs.archive import unpack

    unpacked, kept = unpack(archive, out)
    parts = [f"unpacked into {out}: {_list_names(unpacked)}"]
    if kept:
        parts.append(f"left unchanged, as they exist already: {_list_names(kept)}")
    return CommandResult({"unpacked": unpacked, "kept": kept, "out": str(out)}, tuple(parts))


def _list_names(names: list[str]) -> str:
    """Return the names separated by commas, or their number if there are many.

    >>> _list_names(["copy-lstm-1", "copy-lstm-2"]), _list_names(["copy-lstm-1"] * 247), _list_names([])
    ('copy-lstm-1, copy-lstm-2', '247 runs', 'nothing')
    """
    return f"{len(names)} runs" if len(names) > _NAMED else ", ".join(names) or "nothing"


def _score(record: RunFolder) -> str:
    from plait.lab.runs.kinds import kind_of

    return scored(record.best_score, kind_of(record.description).score)


def _length(record: RunFolder) -> str:
    """Return how long a run is so far, in the unit of its kind: 30 updates, 20,480 steps."""
    from plait.lab.runs.kinds import kind_of

    kind = kind_of(record.description)
    try:
        length = record.updates * kind.per_update(record.description.get("recipe", {}))
    except (KeyError, TypeError, ValueError):
        return f"{record.updates:,} updates"
    return f"{length:,} {kind.unit}{'' if length == 1 else 's'}"


def _date(record: RunFolder) -> str:
    return record.began[:16].replace("T", " ")


def _status(record: RunFolder) -> str:
    return f"damaged: {record.reason}" if record.status == "damaged" else record.status


def _subsample(lines: list[Any], most: int = 12) -> list[Any]:
    """Return at most `most` lines, evenly spread and including the last one."""
    if len(lines) <= most:
        return lines
    return [lines[(index + 1) * len(lines) // most - 1] for index in range(most)]


def _options_text(values: dict[str, object]) -> str:
    return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in values.items())
