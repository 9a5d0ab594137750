"""`python -m tests.mutants --seed N --mutants M [--room ops] [--minutes X] [--seconds S] [--work FOLDER]`:
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
import gc
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants import cover, draw
from tests.mutants.copied import ROOT, Chosen, Copy, Ended, forked, warm

SOURCE = "src/plait"
# Tests of everything at once: what they tell about a line is not worth what they cost.
APART = {
    "faults", "fuzz", "mutants", "test_examples.py", "test_packaging.py", "test_readme.py", "test_release.py",
    "test_results.py", "test_site.py", "test_walk.py", "test_workflows.py",
}  # fmt: skip
FEW = 20  # tests of a module, below which those of the modules that import it are tried too
FIRST = 0.25  # share of the time of a mutant that goes to the tests nearest to it, in a process of their own
LONGEST = 0.5  # share of it that one test may take
HOUR = 3600
START = 6  # seconds of a processor for importing plait and collecting tests, at most


class Test(NamedTuple):
    name: str
    seconds: float
    blocks: frozenset[int]


class Cover:
    """The tests that passed in the instrumented copy, and the blocks that each of them entered."""

    def __init__(self, texts: dict[str, str], records: list[dict[str, Any]]) -> None:
        self.texts = texts
        self.numbers = cover.number_blocks(texts)
        self.tests = _tests(records)
        self.seconds = {test.name: test.seconds for test in self.tests}
        self.of_block: dict[int, list[Test]] = collections.defaultdict(list)
        for test in self.tests:
            for block in test.blocks:
                self.of_block[block].append(test)

    def tests_of(self, mutant: draw.Mutant) -> list[str]:
        """Return the tests that may notice a mutant, the nearest and cheapest first."""
        numbers = self.numbers[mutant.file]
        if mutant.block:
            tests = self.of_block[numbers[mutant.block]]
        else:
            tests = self._of_files([mutant.file])
            if len(tests) < FEW:
                tests = self._of_files([mutant.file, *self._importers(mutant.file)])
        return _nearest_first(tests, mutant.file)

    def _of_files(self, files: list[str]) -> list[Test]:
        blocks = [number for file in files for number in self.numbers[file].values()]
        unique = {test.name: test for block in blocks for test in self.of_block[block]}
        return list(unique.values())

    def _importers(self, file: str) -> list[str]:
        parts = Path(file).with_suffix("").parts[1:]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        package, _, stem = name.rpartition(".")
        forms = (f"import {name}\n", f"from {name} import", f"from {package} import {stem}", f'"{name}:')
        return [other for other, text in self.texts.items() if any(form in text for form in forms)]


def _tests(records: list[dict[str, Any]]) -> list[Test]:
    """Return the tests that passed, and with them the cases that were not run, as if they were like those."""
    tests = [
        Test(one["test"], one["seconds"], frozenset(one["blocks"])) for one in records if one.get("passed")
    ]
    run: dict[str, list[Test]] = collections.defaultdict(list)
    for test in tests:
        run[_function(test.name)].append(test)
    for one in records:
        if "passed" not in one and (cases := run[_function(one["test"])]):
            seconds = sum(case.seconds for case in cases) / len(cases)
            tests.append(Test(one["test"], seconds, frozenset().union(*(case.blocks for case in cases))))
    return tests


def _function(test: str) -> str:
    return test.partition("[")[0]


def _nearest_first(tests: list[Test], file: str) -> list[str]:
    """Sort by cost, far tests costing more; further cases of a test come after the first of each."""
    room, stem = Path(file).parts[2:-1], Path(file).stem

    def cost(test: Test) -> float:
        path = Path(test.name.partition("::")[0])
        near = path.stem == f"test_{stem}" or (stem == "__init__" and path.parts[1:-1] == room)
        return (test.seconds + 0.05) * (1 if near else 2 if path.parts[1:2] == room[:1] else 5)

    cases: dict[str, int] = collections.Counter()
    ranked = []
    for test in sorted(tests, key=lambda one: (cost(one), one.name)):
        ranked.append((cases[_function(test.name)], cost(test), test.name))
        cases[_function(test.name)] += 1
    return [name for _, _, name in sorted(ranked)]


def learn(work: Path, say: Callable[[str], None]) -> Cover:
    """Return which tests enter which blocks: as `work` has it for this source, or else recorded now."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / SOURCE).rglob("*.py"))
    }
    kept = work / f"cover-{_digest(texts)}"
    kept.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[1] not in APART:
            groups["-".join(parts[:2])].append("/".join(parts))
    written = {
        name: kept
        / f"{name}-{_digest({file: (ROOT / file).read_text(encoding='utf-8') for file in files})}.jsonl"
        for name, files in groups.items()
    }
    missing = {name: files for name, files in groups.items() if not written[name].exists()}
    if missing:
        numbers = cover.number_blocks(texts)
        copied = Copy(work / "instrumented")
        for file, text in texts.items():
            if not Path(file).stem.startswith("triton_"):  # Triton compiles no such call
                copied.write(file, cover.instrument(text, numbers[file]).encode())
        copied.write("src/_plait_cover.py", cover.RECORDER.encode())
        out, others = copied.home / "records.jsonl", copied.home / "others.txt"
        for name, files in missing.items():
            began = time.monotonic()
            done = forked(copied, partial(_record, files, out, others), 2 * HOUR)
            if done.status not in (0, 1, 5):
                raise RuntimeError(
                    f"{name}: expected pytest to end, got {done.status}:\n{done.output[-3000:]}"
                )
            last = done.output.strip().splitlines()[-1]
            clock = time.monotonic() - began
            say(f"{name}: {last}, {done.seconds:.0f} s of a processor, {clock:.0f} s by the clock")
            written[name].with_suffix(".txt").write_text(done.output)
            os.replace(out, written[name])
    lines = [line for _, file in sorted(written.items()) for line in file.read_text().splitlines()]
    return Cover(texts, [json.loads(line) for line in lines])


def _record(files: list[str], out: Path, others: Path) -> int:
    import pytest

    out.touch()
    os.environ["PLAIT_COVER"] = str(others)
    return int(pytest.main([*WORDS, *files], plugins=[cover.Recorder(out, others)]))


WORDS = [
    "-q",
    "-p",
    "no:cacheprovider",
    "--tb=line",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]


def _digest(texts: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]


def chosen(covered: Cover, seed: int, count: int, room: str) -> list[draw.Mutant]:
    """Return mutants of lines that tests execute, at most one a line; more of a seed begin with the same."""
    lines: dict[tuple[str, int], list[draw.Mutant]] = collections.defaultdict(list)
    for file, text in covered.texts.items():
        if file.startswith(f"{SOURCE}/{room}"):
            for mutant in draw.mutants(file, text):
                lines[file, mutant.line].append(mutant)
    picked: list[draw.Mutant] = []
    rng = random.Random(seed)
    for line in rng.sample(sorted(lines), len(lines)):
        kind = rng.choice(sorted({mutant.kind for mutant in lines[line]}))
        mutant = rng.choice([mutant for mutant in lines[line] if mutant.kind == kind])
        if covered.tests_of(mutant):
            picked.append(mutant)
        if len(picked) == count:
            break
    return picked


def tried(covered: Cover, copied: Copy, mutant: draw.Mutant, seconds: float) -> dict[str, Any]:
    """Return what became of a mutant."""
    file = copied.folder / mutant.file
    text = file.read_bytes()
    copied.write(mutant.file, mutant.apply(text))
    names = covered.tests_of(mutant)
    affordable, spent = [], 0.0
    for name in names:
        each = covered.seconds[name]
        if each <= LONGEST * seconds and spent + each <= seconds:
            affordable.append((name, spent))
            spent += each
    near = [name for name, before in affordable if before <= FIRST * seconds]
    far = [name for name, before in affordable if before > FIRST * seconds]
    result, taken = {"result": "survived"}, 0.0
    try:
        for stage in (near, far):
            if stage and result["result"] == "survived":
                ended, events = _pytest(copied, stage, seconds)
                taken += ended.seconds
                result = _judged(ended, events)
    finally:
        copied.renew()
    where = {"file": mutant.file, "line": mutant.line, "kind": mutant.kind, "start": mutant.start}
    counts = {"tests": len(affordable), "of": len(names), "seconds": round(taken, 1)}
    return {**where, "before": mutant.before, "after": mutant.after, **result, **counts}


def _pytest(copied: Copy, names: list[str], seconds: float) -> tuple[Ended, list[list[str]]]:
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    out = copied.folder.parent / "events.jsonl"
    out.unlink(missing_ok=True)
    # Tests of one file run together, for the sake of what they share.
    order = sorted(names, key=lambda name: files.index(name.partition("::")[0]))

    def work() -> int:
        import pytest

        return int(pytest.main([*WORDS, "-x", *files], plugins=[Chosen(order, out)]))

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
    words = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--mutants", type=int, default=20)
    words.add_argument("--room", default="", help="only files below this folder of src/plait")
    words.add_argument("--seconds", type=float, default=30, help="processor time of the tests of one mutant")
    words.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after this many")
    words.add_argument(
        "--work", type=Path, default=ROOT / "build" / "mutants", help="folder of logs and copies"
    )
    given = words.parse_args()
    say = partial(print, flush=True)
    began = time.monotonic()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes end with it
    warm()
    covered = learn(work, say)
    drawn = chosen(covered, given.seed, given.mutants, given.room)
    log = work / f"mutants-{given.seed}.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = {_key(line) for line in lines}
    new = [(number, mutant) for number, mutant in enumerate(drawn) if _key(vars(mutant)) not in known]
    say(f"seed {given.seed}: {len(drawn)} mutants, {len(drawn) - len(new)} in {log.name} already")
    if new:
        copied = Copy(work / "copy")
        _compile_tests(copied)
        gc.collect()
        gc.freeze()
    for number, mutant in new:
        if time.monotonic() - began > 60 * given.minutes:
            say(f"the {given.minutes:g} minutes are over")
            break
        line = tried(covered, copied, mutant, given.seconds)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"number": number, **line}) + "\n")
        lines.append(line)
        what = f"{number} {mutant.file}:{mutant.line} {mutant.kind}"
        say(f"{what}: {line['result']}, {line['seconds']} s, {line.get('by', '')}")
    print(summary(lines))
    return 0


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("file", "line", "start", "before", "after"))


def _compile_tests(copied: Copy) -> None:
    """Have pytest compile the tests once; a faulty program never writes what it compiles."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    subprocess.run(words, cwd=copied.folder, capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
