"""`plait bench sizes`: layers of odd and random sizes, each as the first call of a fresh process; times."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Literal, cast

import torch

from plait.errors import DataError, check_int, check_min, check_seed
from plait.files import destination, writing
from plait.lab.bench.cell import BOUNDED, SweepCell
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.training.process import device_named
from plait.table import Table

__all__ = ["bench_sizes", "cells_of", "chosen_cells", "command", "memory_group", "timing_command"]

_MODELS = ("relrnn", "rellstm", "relgru", "memrnn", "memlstm", "unirnn", "unilstm")
_WITHOUT_MEMORY = ("rnn", "lstm", "gru", "goru")
_ODD_SIZES = (1, 7, 31, 96, 97, 100, 129, 200, 255, 513)
_ODD_ROWS, _ODD_STEPS, _ODD_SLOTS = (37, 1, 300, 3), (63, 2, 333, 1), (20, 4, 100, 33, 64, 7)
# upper bounds on a cell: steps × rows × features × states read, and steps × rows × features (saved states)
_MOST_WORK = {"cuda": 3e9, "cpu": 2e7}
_MOST_KEPT = {"cuda": 4e7, "cpu": 1e6}
_MOST_CELLS = 100_000
_LONGEST_CELL = 300.0  # seconds
_LONGEST_TIMING = 60.0
_SLOWEST = 15  # rows of the table of the slowest cells


def bench_sizes(
    cells: int = 100,
    seed: int = 0,
    seconds: float = 240.0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    backend: str = "auto",
    parallel: int | None = None,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Run layers of odd and random sizes, each in a fresh process; compare with the definition, then time.

    A cell's first call runs all steps forward and backward, and its results must be finite; then one step
    and a short sequence are compared with the reference in float64 on the CPU. When all have run, one process
    times forward + backward of each in turn with torch.nn.LSTM of the same size. Tables list the failures,
    the cells in which plain torch or another fallback ran, and the slowest as ratios to torch.nn.LSTM. The
    command exits with 2 if a cell failed: by an exception, a signal, a wrong number, or a timeout.

    Args:
        cells: number of cells; the first are fixed, the others random.
        seed: seed of the random cells.
        seconds: time limit; cells that still run then are stopped and counted as not finished or not timed.
        device: device to run on.
        backend: backend of every layer.
        parallel: number of parallel processes; by default one per core, at most 12.
        commit: commit to record if the source is not a git checkout.
        out: write a line of JSON for each cell here as it ends, and again when it is timed; what this file
            holds is not run again.
    """
    check_int(1, _MOST_CELLS, cells=cells)
    check_seed(seed=seed)
    check_min(0, seconds=seconds)
    processes = min(12, os.cpu_count() or 1) if parallel is None else parallel
    check_int(1, 1024, parallel=processes)
    check_folder(out)
    target = device_named(device)
    wanted = cells_of(cells, seed, str(target), backend)
    known = _read(out) if out else {}
    todo = [cell for cell in wanted if _key(asdict(cell)) not in known]
    began, records = time.monotonic(), [known[_key(asdict(c))] for c in wanted if _key(asdict(c)) in known]

    def save(record: dict[str, Any]) -> None:
        if file:
            with writing(str(out)):
                file.write(json.dumps(record) + "\n")
                file.flush()

    with contextlib.closing(_results(todo, processes, began + seconds)) as results, _appending(out) as file:
        try:
            for record in results:
                records.append(record)
                save(record)
            for record in _timed(records, began + seconds):
                save(record)
        except KeyboardInterrupt:
            pass  # the tables show the cells so far
    data = circumstances(target, torch.get_num_threads(), commit or None)
    data |= {"seed": seed, "parallel": processes, "cells": records}
    data["not_finished"] = len(wanted) - len(records)
    return _result(data, time.monotonic() - began)


def cells_of(count: int, seed: int, device: str, backend: str = "auto") -> list[SweepCell]:
    """Return the cells of a sweep: `chosen_cells`, then random ones up to `count`.

    >>> cells_of(50, 0, "cuda")[0].title
    'rellstm 10→96 w10+10 earned T333 B37 float32'
    """
    drawn = random.Random(seed)
    kind = device.partition(":")[0]
    cells = [*chosen_cells()[:count]]
    cells += [_random_cell(drawn) for _ in range(count - len(cells))]
    return [replace(_within(cell, kind), device=device, backend=backend) for cell in cells]


def chosen_cells() -> list[SweepCell]:
    """Return cells of odd sizes with every model and relevance, those most likely to fail first."""
    cells = [
        SweepCell("rellstm", 96, 333, 37),
        SweepCell("relrnn", 96, 63, 3),
        SweepCell("relgru", 160, 63, 37),
    ]
    kinds = [(model, "earned") for model in _MODELS] + [(m, "learned") for m in _MODELS if "rel" in m]
    for n in range(3 * len(_ODD_SIZES)):
        model, relevance = kinds[n * 3 % len(kinds)]
        slots = _ODD_SLOTS[n % len(_ODD_SLOTS)]
        window = max(1, slots // 2 if n % 4 else slots - 1)
        cells.append(
            SweepCell(
                model,
                _ODD_SIZES[n % len(_ODD_SIZES)],
                _ODD_STEPS[(n + n // 10) % len(_ODD_STEPS)],
                _ODD_ROWS[(n + n // 4) % len(_ODD_ROWS)],
                window=window,
                capacity=slots - window,
                relevance=relevance,
                grad_limit=1.0 if n % 5 == 2 and model.startswith("rel") else None,
                carried=n % 3 == 1,
                reset=n % 4 == 2,
                dtype="bfloat16" if n % 6 == 5 else "float32",
                seed=n,
            )
        )
    return cells


def _random_cell(drawn: random.Random) -> SweepCell:
    def size(most: int, least: int = 1) -> int:  # log-uniform
        return round(math.exp(drawn.uniform(math.log(least), math.log(most))))

    model = drawn.choice(_MODELS if drawn.random() < 0.85 else _WITHOUT_MEMORY)
    hidden = drawn.choice([drawn.randint(1, 512), size(512), 32 * drawn.randint(1, 16)])
    slots = drawn.choice([drawn.randint(4, 32), drawn.randint(4, 64), size(512, 4)])
    window = drawn.randint(1, slots - 1)
    return SweepCell(
        model,
        hidden,
        drawn.choice([1, drawn.randint(2, 64), size(1020)]),
        drawn.choice([1, size(300), drawn.randint(1, 300)]),
        input_size=size(64),
        window=window,
        capacity=slots - window,
        relevance=drawn.choice(["earned", "learned"]) if model.startswith("rel") else "earned",
        grad_limit=1.0 if model.startswith("rel") and drawn.random() < 0.3 else None,
        nonlinearity="relu" if model.endswith("rnn") and drawn.random() < 0.2 else "tanh",
        carried=drawn.random() < 0.3,
        reset=drawn.random() < 0.3,
        # no matrix in bfloat16 is orthogonal
        dtype="bfloat16" if model != "goru" and drawn.random() < 0.25 else "float32",
        seed=drawn.randrange(2**31),
    )


def _within(cell: SweepCell, device: str) -> SweepCell:
    """Return the cell with its rows and steps reduced to what the device can compute in reasonable time."""
    most = _MOST_WORK[device]
    while cell.steps * cell.rows > 1:
        read = cell.window + cell.capacity if cell.model in BOUNDED else cell.steps
        kept = cell.steps * cell.rows * cell.hidden
        if kept * max(read, cell.hidden) <= most and kept <= _MOST_KEPT[device]:
            break
        if cell.rows > cell.steps:
            cell = replace(cell, rows=cell.rows * 3 // 4)
        else:
            cell = replace(cell, steps=cell.steps * 3 // 4)
    return cell


def _results(cells: list[SweepCell], processes: int, until: float) -> Generator[dict[str, Any]]:
    """Run cells in parallel and yield their records; kill what still runs at the time limit or on close."""
    waiting, running = [*reversed(cells)], list[_Running]()
    try:
        while (waiting and time.monotonic() < until) or running:
            while waiting and len(running) < processes and time.monotonic() < until:
                running.append(_Running(waiting.pop(), processes))
            if time.monotonic() >= until:
                return
            for process in [process for process in running if process.is_over()]:
                running.remove(process)
                yield process.record()
            time.sleep(0.05)
    finally:
        for process in running:
            process.end()


def _timed(records: list[dict[str, Any]], until: float) -> Iterator[dict[str, Any]]:
    """Add the times to the records of cells that did not fail, and yield each as it is timed.

    A cell whose process ends or does not answer is recorded as such, and another process times the rest.
    """
    process: subprocess.Popen[str] | None = None
    try:
        for record in records:
            left = until - time.monotonic()
            if record["failures"] or "ratio" in record or left <= 0:
                continue
            if process is None:
                process = subprocess.Popen(
                    timing_command(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            line = _answer(process, json.dumps(record["cell"]), min(left, _LONGEST_TIMING))
            if line:
                record.update(json.loads(line))
                yield record
            else:
                _kill(process)
                process = None
                if time.monotonic() < until:
                    record |= {"ratio": None}
                    yield record
    finally:
        if process:
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and close its pipes; what it was not sent is lost."""
    with contextlib.suppress(BrokenPipeError), process:
        process.kill()


def _answer(process: subprocess.Popen[str], line: str, seconds: float) -> str:
    """Send a line to a process and return the line it answers, "" if it ends or takes longer."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        stdin, stdout = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline()
    except BrokenPipeError:
        return ""
    finally:
        timer.cancel()


def timing_command() -> list[str]:
    """Return the command of the process that times cells."""
    return [sys.executable, "-m", "plait.lab.bench.cell_times"]


def command(cell: SweepCell) -> list[str]:
    """Return the command that runs a cell in a process of its own."""
    return [sys.executable, "-m", "plait.lab.bench.cell", json.dumps(asdict(cell))]


class _Running:
    """A process that runs a cell."""

    def __init__(self, cell: SweepCell, processes: int) -> None:
        self.cell, self.began = cell, time.monotonic()
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        threads = str(max(1, (os.cpu_count() or 1) // processes))
        self.process = subprocess.Popen(
            command(cell),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.errors,
            env={"OMP_NUM_THREADS": threads, **os.environ},
        )

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.began > _LONGEST_CELL

    def is_over(self) -> bool:
        return self.process.poll() is not None or self.is_late

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()
        self.errors.close()

    def record(self) -> dict[str, Any]:
        code, late = self.process.poll(), self.is_late
        lines = _lines(self.output)
        errors = _lines(self.errors)
        self.end()
        if code == 0 and lines:
            record: dict[str, Any] = json.loads(lines[-1])
            return record
        if code is None and late:
            failure = f"not finished after {_LONGEST_CELL:.0f} s"
        elif code is not None and code < 0:
            failure = f"killed by signal {-code}"
        else:
            failure = errors[-1] if errors else f"exit code {code}"
        return {
            "cell": asdict(self.cell),
            "title": self.cell.title,
            "failures": [failure],
            "backends": [],
            "warnings": [],
            "errors": errors[-30:],
            "first_seconds": None,
            "seconds": round(time.monotonic() - self.began, 3),
        }


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _key(cell: dict[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a file by cell; an incomplete last line is ignored."""
    if not destination(path).exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    records = {}
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        try:
            record = json.loads(line)
            records[_key(record["cell"])] = record
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: line {number} is no record of plait bench sizes; name another file"
            ) from error
    return records


@contextlib.contextmanager
def _appending(path: Path | None) -> Iterator[IO[str] | None]:
    """Open a file to append lines, after removing an incomplete last line."""
    if path is None:
        yield None
        return
    with writing(path), destination(path).open("ab+") as whole_file:
        size = whole_file.seek(0, os.SEEK_END)
        whole_file.seek(0)
        whole_file.truncate(whole_file.read().rfind(b"\n") + 1 if size else 0)
    with writing(path):
        file = destination(path).open("a", encoding="utf-8")
    with file:
        yield file


def _result(data: dict[str, Any], seconds: float) -> CommandResult:
    records = data["cells"]
    failed = [record for record in records if record["failures"]]
    fell_back = [record for record in records if record["warnings"] and not record["failures"]]
    counts = Counter(backend for record in records for backend in record["backends"])
    ran = ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"
    notes = [f"{len(records)} cells in {seconds:.0f} s, {len(failed)} failed; backends that ran: {ran}"]
    if data["not_finished"]:
        notes.append(f"{data['not_finished']} cells were not run; the same command with --out goes on")
    longest = sorted((r for r in records if r["first_seconds"]), key=lambda r: -r["first_seconds"])[:3]
    notes += [f"first call {record['first_seconds']:.1f} s: {record['title']}" for record in longest]
    timed = sorted((r for r in records if r.get("ratio")), key=lambda r: -r["ratio"])
    data["ratios"] = _ratios(timed)
    tables = [
        _table("failed", failed, "failures"),
        _table("a backend that failed was replaced", fell_back, "warnings"),
        Table(
            ["cells", "timed", "median", "largest"],
            [
                [name, r["cells"], f"{r['median']:.2f}", f"{r['largest']:.2f}"]
                for name, r in data["ratios"].items()
            ],
            "forward + backward, ratio to torch.nn.LSTM",
        ),
        Table(
            ["cell", "backend", "ms", "ratio"],
            [
                [r["title"], " + ".join(r["backends"]), f"{r['ms']:.2f}", f"{r['ratio']:.2f}"]
                for r in timed[:_SLOWEST]
            ],
            "the slowest",
        ),
    ]
    error = f"{len(failed)} of {len(records)} cells failed" if failed else ""
    parts = [table for table in tables if table.rows]
    return CommandResult(data, (*parts, "\n".join([*notes, describe(data)])), error)


def _ratios(timed: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the number, the median and the largest of the ratios for each kind of memory."""
    groups: dict[str, list[float]] = {}
    for record in timed:
        groups.setdefault(memory_group(record["cell"]), []).append(record["ratio"])
    return {
        name: {"cells": len(values), "median": statistics.median(values), "largest": max(values)}
        for name, values in sorted(groups.items())
    }


def memory_group(cell: dict[str, Any]) -> str:
    """Return the kind of memory of a cell, by which its ratio is judged."""
    if cell["model"] not in BOUNDED:
        return "full memory" if cell["model"].startswith("mem") else "without a memory"
    slots = cell["window"] + cell["capacity"]
    return "up to 64 slots" if slots <= 64 else "up to 320 slots" if slots <= 320 else "more slots"


def _table(title: str, records: list[dict[str, Any]], what: str) -> Table:
    rows = [[r["title"], " + ".join(r["backends"]), "; ".join(r[what])] for r in records]
    return Table(["cell", "backend", what], rows, title)
