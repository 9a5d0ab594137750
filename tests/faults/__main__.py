"""`python -m tests.faults KIND --seed N --count M [--first K] [--minutes X]`: faults by their number; what is
wrong is printed with the command that repeats it.

KIND is damage, hostile, hugging-face, kill, signals, executor (`plait reproduce` and its workers) or ray.
"""

from __future__ import annotations

import argparse
import collections
import functools
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.faults import damage, hostile, kill
from tests.faults.subjects import subjects

Case = Callable[[int, Path], tuple[str, int, list[str]]]  # what it was, how much it counts, what is wrong


def _damage(root: Path, seed: int) -> Case:
    room = damage.Room(root)
    return lambda number, where: _once(damage.one_case(room, number, seed, where))


def _hostile(root: Path, seed: int) -> Case:
    room = damage.Room(root)
    return lambda number, where: _once(hostile.one_case(room, number, seed, where))


def _hugging_face(root: Path, seed: int) -> Case:
    from tests.faults import hugging_face  # needs transformers, which the other kinds do not

    return lambda number, where: _once(hugging_face.one_case(number, seed, where))


def _once(found: tuple[str, list[str]]) -> tuple[str, int, list[str]]:
    return found[0].partition(":")[0], 1, found[1]


def _kill(root: Path, seed: int) -> Case:
    whole = {name: kill.of_subject(one, root / f"whole-{name}") for name, one in subjects(root).items()}

    def case(number: int, where: Path) -> tuple[str, int, list[str]]:
        draw = random.Random(f"{seed} {number}")
        name = draw.choice(sorted(whole))
        return name, *kill.killed_case(whole[name], draw, where / "run", 4)

    return case


def _commands(root: Path, seed: int, *more: str) -> Case:
    whole = kill.of_command(["reproduce", "table5", *kill.SMOKE, *more], root / "whole")

    def case(number: int, where: Path) -> tuple[str, int, list[str]]:
        return "reproduce", *kill.killed_case(whole, random.Random(f"{seed} {number}"), where / "out", 2)

    return case


def _signals(root: Path, seed: int) -> Case:
    every = subjects(root)
    truths = {name: kill.of_subject(one, root / f"whole-{name}").truth[""] for name, one in every.items()}

    def case(number: int, where: Path) -> tuple[str, int, list[str]]:
        draw = random.Random(f"{seed} {number}")
        name = draw.choice(sorted(every))
        what, wrong = kill.asked_case(every[name], truths[name], draw, where)
        return f"{name} {what}", 1, wrong

    return case


KINDS: dict[str, Callable[[Path, int], Case]] = {
    "damage": _damage,
    "hostile": _hostile,
    "hugging-face": _hugging_face,
    "kill": _kill,
    "signals": _signals,
    "executor": _commands,
    "ray": lambda root, seed: _commands(root, seed, "--ray", "local"),
}


def run(
    kind: str,
    seed: int,
    count: int,
    first: int = 0,
    say: Callable[[str], None] = print,
    minutes: float = math.inf,
) -> int:
    """Cases until they count for `count`, or the time is over; how many were wrong."""
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="plait-faults-"))
    began, seen, wrong_ones, counted, number = time.monotonic(), collections.Counter[str](), 0, 0, first
    say(f"{kind}, seed {seed}, from case {first}")
    try:
        case = KINDS[kind](root, seed)
        while counted < count and time.monotonic() - began < 60 * minutes:
            where = root / f"case-{number}"
            where.mkdir()
            what, weight, wrong = case(number, where)
            shutil.rmtree(where, ignore_errors=True)
            seen[what] += weight
            counted += weight
            if wrong:
                wrong_ones += 1
                say(f"WRONG: python -m tests.faults {kind} --seed {seed} --first {number} --count 1: {what}")
                for one in wrong:
                    say(f"    {one[:1500]}")
            number += 1
            if (number - first) % 100 == 0:
                say(f"{number - first} cases, {wrong_ones} wrong, {time.monotonic() - began:.0f} s")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    say(
        f"{kind}: {counted} in {number - first} cases, seed {seed}: {wrong_ones} wrong, "
        f"{time.monotonic() - began:.0f} s; {dict(sorted(seen.items()))}"
    )
    return wrong_ones


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    words.add_argument("kind", choices=sorted(KINDS))
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--count", type=int, default=20)
    words.add_argument("--first", type=int, default=0)
    words.add_argument("--minutes", type=float, default=math.inf, help="begin no case after this many")
    given = words.parse_args()
    say = functools.partial(print, flush=True)
    return run(given.kind, given.seed, given.count, given.first, say, given.minutes) > 0


if __name__ == "__main__":
    sys.exit(main())
