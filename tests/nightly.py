"""`python -m tests.nightly`, or `make nightly`: everything that the tests of a change have no time for.

Slow tests, all kernels with their mutations, the fuzzers of command lines, files and processes, and mutants
of the source; two hours on two cores. A part that fails stops no other; the exit code is 1 then. nightly.log,
complete at any time, has what ran and what failed; build/nightly has everything that the parts wrote. SEED is
the day unless the environment names one, SCALE a share of the minutes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOG = "nightly.log"
OUTPUT = "build/nightly"
LINES = 60  # of a failed part's output that stand in the log
SPARE = 10  # minutes that a part may take beyond its own, for what it began before they were over


@dataclass(frozen=True)
class Part:
    """A command; {minutes}, {seed} and {python} stand for their values."""

    name: str
    minutes: float
    command: str


@dataclass(frozen=True)
class Result:
    """End of a part: `code` is None where it had to be ended."""

    part: Part
    command: str
    code: int | None
    seconds: float
    output: str

    @property
    def failed(self) -> bool:
        return self.code != 0


PYTEST = "{python} -m pytest -q -n 0 -p tests.limit --timeout 1800"


def parts() -> list[list[Part]]:
    """Return what runs, in two lanes beside each other."""
    from tests.faults.__main__ import KINDS

    faults = "{python} -m tests.faults %s --seed {seed} --count 1000000 --minutes {minutes}"
    fuzz = "{python} tests/fuzz/command_line.py"
    tests = [
        Part("kernels", 45, f"{PYTEST} -m 'slow or not slow' tests/ops"),
        Part("transformers", 5, "make test-hf"),
        Part("slow", 60, f"{PYTEST} -m slow --ignore tests/ops"),
    ]
    drawn = [
        Part("mutants", 50, "{python} -m tests.mutants --seed {seed} --mutants 1000000 --minutes {minutes}"),
        Part("command-lines", 25, f"{fuzz} --seed {{seed}} --lines 1000000 --minutes {{minutes}}"),
        *(Part(f"faults-{kind}", 30 / len(KINDS), faults % kind) for kind in sorted(KINDS)),
    ]
    return [tests, drawn]


def run(part: Part, seed: int, scale: float, children: list[subprocess.Popen[bytes]]) -> Result:
    """Run a part to its end, or end it well after its minutes."""
    minutes = part.minutes * scale
    values = {"python": sys.executable, "seed": str(seed), "minutes": f"{minutes:g}"}
    words = [word.format(**values) for word in shlex.split(part.command)]
    limits = {"PLAIT_MINUTES": f"{minutes:g}", "PLAIT_FIRST": str(seed), "PLAIT_FUZZ_SEED": str(seed)}
    out = ROOT / OUTPUT / f"{part.name}.txt"
    out.parent.mkdir(parents=True, exist_ok=True)
    began, code = time.monotonic(), None
    with out.open("w", encoding="utf-8") as file:
        try:
            child = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | limits,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            file.write(f"{shlex.join(words)}: {error}\n")
            code = 127
        else:
            children.append(child)
            try:
                code = child.wait(60 * (minutes + SPARE))
            except subprocess.TimeoutExpired:
                file.write(f"ended after {minutes + SPARE:g} minutes\n")
            finally:
                end(child)
    output = out.read_text("utf-8", "replace")
    return Result(part, shlex.join(words), code, time.monotonic() - began, output)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a part and what it started: first by a signal that lets it tidy up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(5)
    child.wait()


def report(results: Sequence[Result], planned: int, seed: int, scale: float) -> str:
    """Return the log: a line for each part, then what the failed ones wrote last."""
    failed = [one.part.name for one in results if one.failed]
    verdict = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    lines = [f"seed {seed}, scale {scale:g}: {len(results)} of {planned} parts have run; {verdict}", ""]
    for one in results:
        ended = "passed" if one.code == 0 else "did not end" if one.code is None else f"FAILED ({one.code})"
        last = one.output.strip().splitlines()[-1:] or [""]
        lines += [f"{ended}  {one.part.name}, {one.seconds / 60:.1f} min: {one.command}", f"    {last[0]}"]
    for one in results:
        if one.failed:
            lines += ["", f"== {one.part.name}: the last lines of {OUTPUT}/{one.part.name}.txt"]
            lines += one.output.splitlines()[-LINES:]
    return "\n".join(lines) + "\n"


def nightly(lanes: Sequence[Sequence[Part]], seed: int, scale: float) -> int:
    """Run the lanes beside each other and return the exit code."""
    from plait.files import write_whole

    results: list[Result] = []
    children: list[subprocess.Popen[bytes]] = []
    lock, planned, log = threading.Lock(), sum(map(len, lanes)), ROOT / LOG

    def walk(lane: Sequence[Part]) -> None:
        for part in lane:
            result = run(part, seed, scale, children)
            with lock:
                results.append(result)
                write_whole(log, report(results, planned, seed, scale).encode())
                print(f"{'FAILED' if result.failed else 'passed'}  {part.name}", flush=True)

    print(f"seed {seed}: the log is {log}", flush=True)
    write_whole(log, report([], planned, seed, scale).encode())
    threads = [threading.Thread(target=walk, args=(lane,), daemon=True) for lane in lanes]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:  # no signal reaches the parts: each has a session of its own
        for child in children:
            end(child)
    print(report(results, planned, seed, scale).splitlines()[0], flush=True)
    return int(len(results) < planned or any(one.failed for one in results))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    today = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%d")
    sys.exit(nightly(parts(), int(os.environ.get("SEED") or today), float(os.environ.get("SCALE") or 1)))
