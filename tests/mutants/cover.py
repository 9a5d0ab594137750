"""Record which tests execute which blocks of the source, in a copy that notes every block it enters."""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.mutants import draw

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
        functions: dict[str, list[Any]] = defaultdict(list)
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
