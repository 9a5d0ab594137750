"""`plait bench check`: a regression test of the layers' times in ratio to `torch.nn.LSTM`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from plait.errors import BackendError, ConfigError, DataError, check_choice, check_int
from plait.lab.annotations import option
from plait.lab.bench import parity
from plait.lab.bench.entries import BASELINE, Entry, entries_of, measured
from plait.lab.bench.layer_config import BOUNDED, LAYERS, PEERS, PRECISIONS, LayerConfig
from plait.lab.bench.sizes import MOST_ROUNDS
from plait.lab.bench.timing import limit_threads
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import read_json, write_json
from plait.lab.training.process import device_named
from plait.table import Table, percent

__all__ = ["Change", "Measured", "bench_check", "changes", "settled"]

PARTS = {"forward + backward": "ratio", "forward": "forward ratio"}
_ATTEMPTS = 3


@dataclass(frozen=True)
class Measured:
    """One row of `plait bench layers --out`: a layer, a backend, a size, and its times."""

    layer: str
    backend: str
    steps: int
    rows: int
    hidden: int
    precision: str
    ratios: dict[str, float]
    error: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.layer, self.backend, self.steps, self.rows, self.hidden, self.precision

    @property
    def name(self) -> str:
        return f"{self.layer} × {self.backend}, {self.steps}x{self.rows}, hidden {self.hidden}"

    @classmethod
    def of(cls, row: dict[str, Any]) -> Measured:
        """Read a row; `error` is the relative standard error of its median, from the interquartile range.

        >>> sizes = {"layer": "RelRNN", "backend": "cpu", "T": 9, "B": 1, "hidden": 8, "precision": "fp32"}
        >>> times = {"ratio": 1.2, "forward ratio": 1, "ms": 8, "spread ms": 1, "rounds": 16}
        >>> measured = Measured.of(sizes | times)
        >>> measured.error, measured.ratios
        (0.03125, {'forward + backward': 1.2, 'forward': 1.0})
        """
        sizes = (row["T"], row["B"], row["hidden"])
        check_int(1, T=sizes[0], B=sizes[1], hidden=sizes[2], rounds=row["rounds"])
        check_choice(row["precision"], PRECISIONS, "precision")
        ratios = {part: float(row[column]) for part, column in PARTS.items()}
        error = float(row["spread ms"]) / float(row["ms"]) / math.sqrt(row["rounds"])
        if not (min(ratios.values()) > 0 and error >= 0):
            raise ValueError("a time that is not positive")
        return cls(str(row["layer"]), str(row["backend"]), *sizes, row["precision"], ratios, error)


@dataclass(frozen=True)
class Change:
    """A ratio before and now; `slower` if it grew by more than the tolerance and the error of measurement."""

    name: str
    part: str
    before: float
    now: float
    slower: bool

    @property
    def growth(self) -> float:
        return self.now / self.before - 1

    @property
    def grown(self) -> str:
        return f"{'+' if self.growth >= 0 else ''}{percent(self.growth)}"

    @property
    def line(self) -> str:
        return f"{self.name}, {self.part}: {self.before:.2f} before, {self.now:.2f} now ({self.grown})"


def changes(before: Measured, now: list[Measured], tolerance: float) -> list[Change]:
    """Compare each part's ratio with the smallest of its new measurements.

    The smallest, because other load on the machine rarely disturbs every measurement. A layer is slower if
    its ratio grew by more than `tolerance` plus the standard error of the two medians.
    """
    measured_changes = []
    for part, then in before.ratios.items():
        best = min(now, key=lambda row: row.ratios[part])
        chance = math.hypot(before.error, best.error)
        growth = best.ratios[part] / then - 1
        measured_changes.append(
            Change(before.name, part, then, best.ratios[part], growth > tolerance + chance)
        )
    return measured_changes


def settled(
    before: list[Measured],
    measure: Callable[[list[Measured]], list[Measured]],
    tolerance: float,
    attempts: int = _ATTEMPTS,
) -> list[Change]:
    """Measure everything, then repeat what seems slower, up to `attempts` measurements each."""
    seen: dict[Any, list[Measured]] = {row.key: [] for row in before}
    doubtful = before
    for _ in range(attempts):
        for row in measure(doubtful):
            seen[row.key].append(row)
        doubtful = [
            row
            for row in doubtful
            if any(change.growth > tolerance for change in changes(row, seen[row.key], tolerance))
        ]
        if not doubtful:
            break
    return [change for row in before for change in changes(row, seen[row.key], tolerance)]


def bench_check(
    file: Annotated[Path, option(metavar="FILE")],
    /,
    tolerance: float = 0.1,
    repeats: int = 20,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Check that no layer became slower, in ratio to torch.nn.LSTM, than in an earlier file.

    The file is written by plait bench layers --out. Its layers, backends and sizes are measured again with
    the same number of threads, in turn with torch.nn.LSTM. A layer that seems slower is measured up to three
    times, and the smallest ratio counts. The command names each ratio that grew by more than the tolerance,
    and then exits with 2. Ratios differ between machines: measure the older commit on this one, as make
    bench-check does.

    Args:
        file: a file written by plait bench layers --out.
        tolerance: largest growth of a ratio; 0.1 is a tenth.
        repeats: rounds of measurement.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(1, MOST_ROUNDS, repeats=repeats)
    if not 0 <= tolerance <= 100:
        raise ConfigError(f"tolerance: expected a number from 0 to 100, as 0.1 for a tenth, got {tolerance}")
    file_data, before = _read(file)
    target = device_named("cuda" if file_data["machine"]["gpu"] else "cpu")
    first = LayerConfig(BASELINE, "auto", target, input_size=file_data["input_size"])
    tf32 = bool(file_data["tf32"]["matmul"])
    with (
        limit_threads(file_data["machine"]["threads"]) as used,
        parity.matmul_precision("high" if tf32 else "highest"),
    ):
        data: dict[str, Any] = circumstances(target, used, commit or None) | {"against": str(file)}
        measured_changes = settled(before, lambda rows: _measure(first, rows, tf32, repeats), tolerance)
    data["changes"] = [{**vars(change), "growth": change.growth} for change in measured_changes]
    if out:
        write_json(out, data)
    slower = [change.line for change in measured_changes if change.slower]
    columns = ["layer", "part", "before", "now", "growth"]
    rows = [[c.name, c.part, f"{c.before:.2f}", f"{c.now:.2f}", c.grown] for c in measured_changes]
    notes = [f"before: {describe(file_data)}", f"now: {describe(data)}"]
    if file_data["machine"]["cpu"] != data["machine"]["cpu"]:
        notes.append("two processors: their ratios need not agree; see make bench-check")
    table = Table(columns, rows, f"ratio to {BASELINE}, may grow by {percent(tolerance)}", notes)
    error = f"slower by more than {percent(tolerance)}: {'; '.join(slower)}" if slower else ""
    return CommandResult(data, (table, *slower), error)


def _read(file: Path) -> tuple[dict[str, Any], list[Measured]]:
    file_data = read_json(file)
    try:
        described = describe(file_data)
        check_int(1, input_size=file_data["input_size"], threads=file_data["machine"]["threads"])
        rows = _ours(file_data["rows"])
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError) as error:
        raise DataError(f"{file}: expected what plait bench layers --out writes ({error})") from error
    if not rows or not described:
        raise DataError(
            f"{file} has no layer with a ratio to {BASELINE}; write one with plait bench layers --out"
        )
    return file_data, rows


def _measure(first: LayerConfig, wanted: list[Measured], tf32: bool, repeats: int) -> list[Measured]:
    """Measure the same rows now; those of one size take turns."""
    now = []
    keys = {row.key for row in wanted}
    for hidden, precision in dict.fromkeys((row.hidden, row.precision) for row in wanted):
        group = [row for row in wanted if (row.hidden, row.precision) == (hidden, precision)]
        sized = replace(first, hidden=hidden, dtype=PRECISIONS[precision])
        entries = _entries(sized, group, tf32)
        for steps, rows in dict.fromkeys((row.steps, row.rows) for row in group):
            now += _ours(measured(entries, steps, rows, {"rounds": repeats}))
    now = [row for row in now if row.key in keys]
    if missing := keys - {row.key for row in now}:
        raise BackendError(f"{sorted(missing)[0][0]} × {sorted(missing)[0][1]} of the file does not run here")
    return now


def _entries(sized: LayerConfig, group: list[Measured], tf32: bool) -> list[Entry]:
    """Return torch's LSTM and the layers of the file, without backends that fail the parity check."""
    titles, backends = ({getattr(row, part) for row in group} for part in ("layer", "backend"))
    learned = {replace(sized, layer=name, relevance="learned").title: name for name in BOUNDED}
    known_as = {replace(sized, layer=name).title: name for name in LAYERS} | learned
    names = {known_as[title] for title in titles if title in known_as}
    relevance = "learned" if titles & {*learned} else "earned"
    entries = [*entries_of(sized, sorted(names), sorted(backends), relevance, tf32)]
    pairs = {(row.layer, row.backend) for row in group}
    there = [e for e in entries if e.config.layer == BASELINE or (e.config.title, e.backend) in pairs]
    if wrong := [line for entry in there for line in entry.failures]:
        raise BackendError(f"parity failed: {'; '.join(wrong)}")
    return there


def _ours(rows: list[dict[str, Any]]) -> list[Measured]:
    return [Measured.of(row) for row in rows if row["ratio"] and row["layer"] not in PEERS]
