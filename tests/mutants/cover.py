"""Record which tests execute which blocks of the source, in a copy that notes every block it enters."""

from __future__ import annotations

import ast
import collections
import hashlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants import draw
from tests.mutants.copied import ROOT, Copy, forked
from tests.mutants.workers import Queue, side_by_side

SOURCE = "src/plait"
# Tests of everything at once: what they tell about a line is not worth what they cost.
APART = {
    "faults",
    "fuzz",
    "mutants",
    "test_examples.py",
    "test_packaging.py",
    "test_readme.py",
    "test_release.py",
    "test_results.py",
    "test_site.py",
    "test_walk.py",
    "test_workflows.py",
}
FEW = 20  # tests of a module, below which those of the modules that import it are tried too
HOUR = 3600
WORDS = [
    "-q",
    "-p",
    "no:cacheprovider",
    "--tb=line",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
CASES = 5  # of a parametrized test that are run; that others enter the same blocks is taken for granted
HIT = "__plait_hit__"
# Lies beside the package in the copy. A process that a test starts may be killed: it writes at once.
RECORDER = f"""
import os
seen, main = set(), None
def {HIT}(block):
    if block not in seen:
        seen.add(block)
        if os.getpid() != main:
            write(block)
def write(block):
    try:
        file = os.open(os.environ["PLAIT_COVER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b"%d\\n" % block)
        os.close(file)
    except (KeyError, OSError):
        pass
"""


def number_blocks(texts: dict[str, str]) -> dict[str, dict[int, int]]:
    """Return a number for every block of every file, by the block's first line."""
    numbers: dict[str, dict[int, int]] = {}
    count = 0
    for file, text in sorted(texts.items()):
        lines = sorted({block for _, block in draw.statements(draw.parse(text)) if block})
        numbers[file] = {line: count + place for place, line in enumerate(lines)}
        count += len(lines)
    return numbers


def instrument(text: str, numbers: dict[int, int]) -> str:
    """Return a source with a call at the head of every block; `numbers` has its blocks' first lines."""
    tree = draw.parse(text)
    _instrument(tree.body, numbers, inside=False)
    top = draw.has_docstring(tree.body)
    top += any(getattr(one, "module", "") == "__future__" for one in tree.body[top : top + 1])
    tree.body.insert(top, ast.parse(f"from _plait_cover import {HIT}").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _instrument(body: list[ast.stmt], numbers: dict[int, int], inside: bool) -> None:
    changed, previous = body[: draw.has_docstring(body)], 0
    for statement, block in draw.blocks(body):
        for nested, in_function in draw.bodies(statement, inside):
            _instrument(nested, numbers, in_function)
        if inside and block != previous:
            changed += ast.parse(f"{HIT}({numbers[block]})").body
        previous = block
        changed.append(statement)
    body[:] = changed


class Recorder:
    """pytest plugin that writes a line for every test: result, processor time, blocks it entered."""

    def __init__(self, out: Path, others: Path) -> None:
        import _plait_cover

        self.out, self.others, self.blocks = out.open("a", encoding="utf-8"), others, _plait_cover
        self.blocks.main = os.getpid()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Run some cases of every test, evenly spread; the others are noted."""
        functions: dict[str, list[Any]] = collections.defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        items.clear()
        for cases in functions.values():
            run = {round(place * (len(cases) - 1) / (CASES - 1)) for place in range(CASES)}
            for place, case in enumerate(cases):
                if place in run:
                    items.append(case)
                else:
                    self._write({"test": case.nodeid})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.blocks.seen.clear()
        self.passed, self.began = True, _processor()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed &= report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        entered = set(self.blocks.seen)
        if self.others.exists():
            entered |= {int(line) for line in self.others.read_text().split()}
            self.others.unlink()
        seconds = round(_processor() - self.began, 4)
        self._write({"test": nodeid, "passed": self.passed, "seconds": seconds, "blocks": sorted(entered)})

    def _write(self, record: dict[str, Any]) -> None:
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()


def _processor() -> float:
    return sum(os.times()[:4])


class Test(NamedTuple):
    name: str
    seconds: float
    blocks: frozenset[int]


class Cover:
    """The tests that passed in the instrumented copy, and the blocks that each of them entered."""

    def __init__(self, texts: dict[str, str], records: list[dict[str, Any]]) -> None:
        self.texts = texts
        self.numbers = number_blocks(texts)
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


def learn(work: Path, say: Callable[[str], None], end: float, together: int = 1) -> Cover:
    """Return which tests enter which blocks: as `work` has it, or else recorded before `end`."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / SOURCE).rglob("*.py"))
    }
    kept = work / f"cover-{_digest(texts)}"
    kept.mkdir(parents=True, exist_ok=True)
    groups = _groups()
    written = {
        name: kept
        / f"{name}-{_digest({file: (ROOT / file).read_text(encoding='utf-8') for file in files})}.jsonl"
        for name, files in groups.items()
    }
    missing = [name for name in groups if not written[name].exists()]
    if missing:
        numbers = number_blocks(texts)
        instrumented = {
            file: instrument(text, numbers[file]).encode()
            for file, text in texts.items()
            if not Path(file).stem.startswith("triton_")  # Triton compiles no such call
        }
        # The groups with most tests first, so that no worker begins one when the others are done.
        waiting = Queue(sorted(missing, key=lambda name: -sum(_size(file) for file in groups[name])))

        def record(worker: int) -> None:
            copied = Copy(work / f"instrumented-{worker}")
            for file, text in instrumented.items():
                copied.write(file, text)
            copied.write("src/_plait_cover.py", RECORDER.encode())
            for name in waiting:
                if time.monotonic() > end:
                    say(f"no time to record what {name} executes")
                else:
                    _record(name, groups[name], copied, written[name], say)

        side_by_side(min(together, len(missing)), record)
    lines = [
        line for _, file in sorted(written.items()) if file.exists() for line in file.read_text().splitlines()
    ]
    return Cover(texts, [json.loads(line) for line in lines])


def _groups() -> dict[str, list[str]]:
    """Return the files of tests by their folder; those of `tests` itself are each a group."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[1] not in APART:
            groups["-".join(parts[: max(len(parts) - 1, 2)])].append("/".join(parts))
    return groups


def _size(file: str) -> int:
    return (ROOT / file).stat().st_size


def _record(name: str, files: list[str], copied: Copy, written: Path, say: Callable[[str], None]) -> None:
    out, others = copied.home / "records.jsonl", copied.home / "others.txt"
    began = time.monotonic()
    done = forked(copied, partial(_run_recorded, files, out, others), 2 * HOUR)
    if done.status not in (0, 1, 5):
        raise RuntimeError(f"{name}: expected pytest to end, got {done.status}:\n{done.output[-3000:]}")
    last = done.output.strip().splitlines()[-1]
    clock = time.monotonic() - began
    say(f"{name}: {last}, {done.seconds:.0f} s of a processor, {clock:.0f} s by the clock")
    written.with_suffix(".txt").write_text(done.output)
    os.replace(out, written)


def _run_recorded(files: list[str], out: Path, others: Path) -> int:
    import pytest

    out.touch()
    os.environ["PLAIT_COVER"] = str(others)
    return int(pytest.main([*WORDS, *files], plugins=[Recorder(out, others)]))


def _digest(texts: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]
