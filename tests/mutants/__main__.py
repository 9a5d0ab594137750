"""`python -m tests.mutants --seed N --mutants M [--room ops] … [--minutes X] [--seconds S] [--work FOLDER]`:
try M mutants, each on the tests that execute it.

A mutant is a small fault in a file of src/plait: a comparison, a number, an operator, swapped arguments, a
statement that is missing. It is put into a private copy, never into the working tree. Which tests execute
which lines is recorded once for a state of the source (minutes of one core) and kept in FOLDER, where
mutants-N.jsonl has a line for every mutant; those in it already are not tried again. Survivors are for a
person to judge: many change nothing that a user could see.
"""

from __future__ import annotations

import argparse
import collections
import fcntl
import gc
import json
import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutants import draw
from tests.mutants.copied import ROOT, Chosen, Copy, Ended, forked, warm
from tests.mutants.cover import SOURCE, WORDS, Cover, learn
from tests.mutants.workers import Queue, side_by_side

FIRST = 0.25  # share of the time of a mutant that goes to the tests nearest to it, in a process of their own
LONGEST = 0.5  # share of it that one test may take
EACH = 0.02  # seconds of a processor that a test costs besides its own
HOUR = 3600
COLLECTED = 0.3  # and its file
START = 6  # seconds of a processor for importing plait and collecting tests, at most


def chosen(covered: Cover, seed: int, count: int, rooms: Sequence[str]) -> list[draw.Mutant]:
    """Return mutants of lines that tests execute, at most one a line; more of a seed begin with the same."""
    lines: dict[tuple[str, int], list[draw.Mutant]] = collections.defaultdict(list)
    for file, text in covered.texts.items():
        if file.startswith(tuple(f"{SOURCE}/{room}" for room in rooms)):
            for mutant in draw.mutants(file, text):
                lines[file, mutant.line].append(mutant)
    picked: list[draw.Mutant] = []
    rng = random.Random(seed)
    for line in rng.sample(sorted(lines), len(lines)):
        kind = rng.choice(sorted({mutant.kind for mutant in lines[line]}))
        mutant = rng.choice([mutant for mutant in lines[line] if mutant.kind == kind])
        if len(picked) == count:
            break
        if covered.tests_of(mutant):
            picked.append(mutant)
    return picked


def tried(covered: Cover, copied: Copy, mutant: draw.Mutant, seconds: float) -> dict[str, Any]:
    """Return what became of a mutant."""
    text = (copied.folder / mutant.file).read_bytes()
    copied.write(mutant.file, mutant.apply(text))
    names = covered.tests_of(mutant)
    affordable, files, spent = [], set(), 0.0
    for name in names:
        each = covered.seconds[name]
        cost = each + EACH + (COLLECTED if (file := name.partition("::")[0]) not in files else 0)
        if each <= LONGEST * seconds and spent + cost <= seconds:
            affordable.append((name, spent))
            files.add(file)
            spent += cost
    near = [name for name, before in affordable if before <= FIRST * seconds]
    far = [name for name, before in affordable if before > FIRST * seconds]
    result, taken = {"result": "survived"}, 0.0
    try:
        for stage in (near, far):
            if stage and result["result"] == "survived":
                ended, events = _pytest(copied, stage, seconds, "-x")
                taken += ended.seconds
                result = _judged(ended, events)
    finally:
        copied.renew()
    where = {"file": mutant.file, "line": mutant.line, "kind": mutant.kind, "start": mutant.start}
    counts = {"tests": len(affordable), "of": len(names), "seconds": round(taken, 1), "limit": seconds}
    return {**where, "before": mutant.before, "after": mutant.after, **result, **counts}


def _pytest(copied: Copy, names: list[str], seconds: float, *words: str) -> tuple[Ended, list[list[str]]]:
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    out = copied.folder.parent / "events.jsonl"
    out.unlink(missing_ok=True)
    # Tests of one file run together, for the sake of what they share.
    order = sorted(names, key=lambda name: files.index(name.partition("::")[0]))

    def work() -> int:
        import pytest

        return int(pytest.main([*WORDS, *words, *files], plugins=[Chosen(order, out)]))

    ended = forked(copied, work, 3 * seconds + START)
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return ended, [json.loads(line) for line in lines]


def _judged(ended: Ended, events: list[list[str]]) -> dict[str, str]:
    """Return a run's meaning; a mutant that no process survives, or that never ends, has been noticed."""
    failed = [test for event, test in events if event == "failed"]
    latest = events[-1][1] if events else "import"
    if failed:
        return {"result": "killed", "by": failed[0]}
    if ended.status in (0, 5):  # 5: a table without the case that was to be tried
        return {"result": "survived"}
    if ended.status is None or -ended.status in (9, 24):
        return {"result": "timeout", "by": latest}
    if ended.status < 0 or ended.status in (1, 2, 3, 4):
        return {"result": "killed", "by": latest, "how": ended.output.strip()[-300:]}
    raise RuntimeError(f"expected pytest to end, got exit code {ended.status}:\n{ended.output[-3000:]}")


def summary(lines: list[dict[str, Any]]) -> str:
    """Return the counts by room, and every survivor."""
    rooms: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in lines:
        rooms[Path(line["file"]).parts[2].removesuffix(".py")][line["result"]] += 1
    total = sum(rooms.values(), collections.Counter[str]())
    table = ["| room | mutants | killed | timeout | survived |", "|---|---|---|---|---|"]
    for room, counts in [*sorted(rooms.items()), ("all", total)]:
        each = " | ".join(str(counts[result]) for result in ("killed", "timeout", "survived"))
        table.append(f"| {room} | {counts.total()} | {each} |")
    survivors = [
        f"{one['file']}:{one['line']} ({one['kind']}; {one['tests']} of {one['of']} tests): "
        f"{one['before']!r} -> {one['after']!r}"
        for one in sorted(lines, key=lambda one: (one["file"], one["line"]))
        if one["result"] == "survived"
    ]
    return "\n".join([*table, "", *survivors])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=20)
    parser.add_argument(
        "--room", action="append", help="only files below this folder of src/plait; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=30, help="processor time of the tests of one mutant")
    parser.add_argument("--together", type=int, default=1, help="mutants that are tried at the same time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after this many")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "mutants", help="folder of logs and copies"
    )
    options = parser.parse_args()
    say = partial(print, flush=True)
    end = time.monotonic() + 60 * options.minutes
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes end with it
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"{work} is in use: expected one process a folder; name another with --work")
        return 2
    warm()
    covered = learn(work, say, end, options.together)
    drawn = chosen(covered, options.seed, options.mutants, options.room or [""])
    log = work / f"mutants-{options.seed}.jsonl"
    lines = _by_key(log)
    # With more seconds than before, survivors are tried again.
    known = {
        key for key, line in lines.items() if line["result"] != "survived" or line["limit"] >= options.seconds
    }
    new = [(number, mutant) for number, mutant in enumerate(drawn) if _key(vars(mutant)) not in known]
    say(f"seed {options.seed}: {len(drawn)} mutants, {len(drawn) - len(new)} in {log.name} already")
    waiting = Queue(new)

    def try_some(worker: int) -> None:
        copied = Copy(work / f"copy-{worker}")
        _compile_tests(copied)
        gc.collect()
        gc.freeze()
        for number, mutant in waiting:
            if time.monotonic() > end:
                say(f"the {options.minutes:g} minutes are over")
                return
            line = tried(covered, copied, mutant, options.seconds)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": number, **line}) + "\n")
            what = f"{number} {mutant.file}:{mutant.line} {mutant.kind}"
            say(f"{what}: {line['result']}, {line['seconds']} s, {line.get('by', '')}")

    if new:
        side_by_side(min(options.together, len(new)), try_some)
    lines = _by_key(log)
    print(summary([*lines.values()]))
    return int(
        bool(new)
        and _red_anyway(Copy(work / "copy-0"), {line["by"] for line in lines.values() if line.get("by")}, say)
    )


def _red_anyway(copied: Copy, killers: set[str], say: Callable[[str], None]) -> bool:
    """Return whether a test that failed with a mutant fails without one; its verdicts are worth nothing."""
    names = sorted(name for name in killers if "::" in name)
    ended, events = _pytest(copied, names, HOUR)
    red = [test for event, test in events if event == "failed"]
    for name in red:
        say(f"fails without a mutant too: {name}")
    if ended.status not in (0, 1, 5):
        say(f"the tests that failed cannot be run again:\n{ended.output[-3000:]}")
    return bool(red) or ended.status not in (0, 1, 5)


def _by_key(log: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the lines of a log, of each mutant the latest."""
    texts = log.read_text().splitlines() if log.exists() else []
    return {_key(line): line for line in map(json.loads, texts)}


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("file", "line", "start", "before", "after"))


def _compile_tests(copied: Copy) -> None:
    """Have pytest compile the tests once; a faulty program never writes what it compiles."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    subprocess.run(words, cwd=copied.folder, capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
