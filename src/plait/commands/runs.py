"""`plait runs` and its subcommands."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import CheckpointError, ConfigError
from plait.marks import option
from plait.result import CommandResult, Table, scored

if TYPE_CHECKING:
    from plait.runs.reading import RunFolder

__all__ = ["list_runs", "pack_runs", "show_run", "unpack_runs"]

_NAMED = 5  # runs whose names fit a line


def list_runs(out: Annotated[Path, option(metavar="OUT")] = Path("runs"), /) -> CommandResult:
    """Runs as a table: what, how far, how well, and where they stand.

    Args:
        out: the folder of runs.
    """
    from plait.runs.reading import all_runs

    records = all_runs(out)
    rows = [[r.id, r.task, r.model, r.updates, _score(r), _standing(r)] for r in records]
    table = Table(["id", "task", "model", "updates", "best score", "status"], rows)
    data = [
        {
            "id": r.id,
            "folder": str(r.folder),
            "task": r.description.get("task"),
            "model": r.description.get("model"),
            "updates": r.updates,
            "best_score": r.best_score,
            "status": r.status,
            "reason": r.reason,
        }
        for r in records
    ]
    return CommandResult(data, (table if rows else f"no runs in {out}",))


def show_run(run: Annotated[str, option(metavar="RUN")], /, out: Path = Path("runs")) -> CommandResult:
    """One run: what it is, how far it came, and what to do next.

    Args:
        run: its folder, its id, or the beginning of its id.
        out: the folder of runs, where an id is looked for.
    """
    from plait.runs.difference import options_of
    from plait.runs.folder import Journal
    from plait.runs.kinds import how_to_resume, kind_of
    from plait.runs.reading import find_run, read_run
    from plait.training.repeat import repeat_command

    folder = find_run(run, out)
    record = read_run(folder)
    kind, sessions = kind_of(record.description), record.sessions
    try:
        wanted = kind.updates(record.description)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(f"{folder}: config.json does not say for how many updates or steps") from error
    # What came after the last checkpoint of a run that was killed is not vouched for.
    curve = [line for line in Journal.read(folder / "metrics.jsonl") if "held_out" in line][
        : len(record.marks)
    ]
    rows = [
        [mark.update, name, result.get("loss"), scored(result["score"], kind.score)]
        for mark in _thinned(list(record.marks))
        for name, result in mark.results.items()
    ]
    lines = [
        f"{record.id}: {record.status}, {record.updates} of {wanted} updates",
        *(f"{part:8}{_flat(options_of(record.description[part]))}" for part in ("task", "model", "recipe")),
        *(
            f"session from update {s['from_update']}: {s['began']}, torch {s['torch']}, {s['device_name']}, "
            f"{s['threads']} threads, {s['processes']} processes"
            for s in (defaultdict(lambda: "?", session) for session in sessions)
        ),
    ]
    parts: list[str | Table] = ["\n".join(lines)]
    if rows:
        parts.append(Table(["update", "held out", kind.shown.get("loss", "loss"), kind.score], rows))
    repeat = repeat_command(record.description)
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
    output: Annotated[Path, option(aliases=["-o"])] = Path("runs.tar.gz"),
    out: Path = Path("runs"),
    light: bool = False,
) -> CommandResult:
    """Put run folders into one archive; a folder of an experiment brings its description along.

    Args:
        runs: folders of runs, single run folders, or ids.
        output: the archive to write.
        out: the folder of runs, where an id is looked for.
        light: without checkpoints: small, enough for a report; such runs cannot be resumed.
    """
    from plait.runs.archive import pack

    if not runs:
        raise ConfigError("expected at least one run or folder of runs: plait runs pack runs -o runs.tar.gz")
    names = pack(runs, output, out, light)
    size, digest = output.stat().st_size, hashlib.sha256(output.read_bytes()).hexdigest()
    data = {"archive": str(output), "runs": names, "bytes": size, "sha256": digest}
    line = f"{output} holds {_listed(names)}; {size / 1e6:.1f} MB; SHA-256 {digest}"
    return CommandResult(data, (line,))


def unpack_runs(
    archive: Annotated[Path, option(metavar="FILE")], /, out: Path = Path("runs")
) -> CommandResult:
    """Take run folders out of an archive; a run that is here already is kept as it is.

    Args:
        archive: what `plait runs pack` wrote.
        out: the folder of runs to put them in.
    """
    from plait.runs.archive import unpack

    came, kept = unpack(archive, out)
    parts = [f"unpacked into {out}: {_listed(came)}"]
    if kept:
        parts.append(f"kept as they were, being here already: {_listed(kept)}")
    return CommandResult({"unpacked": came, "kept": kept, "out": str(out)}, tuple(parts))


def _listed(names: list[str]) -> str:
    """In words.

    >>> _listed(["copy-lstm-1", "copy-lstm-2"]), _listed(["copy-lstm-1"] * 247), _listed([])
    ('copy-lstm-1, copy-lstm-2', '247 runs', 'nothing')
    """
    return f"{len(names)} runs" if len(names) > _NAMED else ", ".join(names) or "nothing"


def _score(record: RunFolder) -> str:
    from plait.runs.kinds import kind_of

    return scored(record.best_score, kind_of(record.description).score)


def _standing(record: RunFolder) -> str:
    return f"damaged: {record.reason}" if record.status == "damaged" else record.status


def _thinned(lines: list[Any], most: int = 12) -> list[Any]:
    """At most `most` lines, evenly spread, the last one among them."""
    if len(lines) <= most:
        return lines
    return [lines[(index + 1) * len(lines) // most - 1] for index in range(most)]


def _flat(values: dict[str, object]) -> str:
    return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in values.items())
