"""Random command lines, drawn from what the commands say of themselves: a new flag is fuzzed by itself.

Line `index` of a seed is a function of the two alone. Values are good, bad or hostile; what a command would
work at for minutes when all is well is kept small (`SMALL`): then a line that does not end is a fault.
"""

import importlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plait.lab.annotations import Argument, arguments_of
from plait.lab.cli import COMMANDS

LONG = "n" * 300  # more than a file system takes
WHOLE = (
    "-1",
    "0",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1000000000000",
    "1" + "0" * 400,
    "1.5",
    "nan",
    "",
    "x",
    "None",
    "1_0",
    "٣",
    "-9223372036854775809",
)
MIDDLE = ("1000", "65536", "1000000", "1000000000")  # sizes that fit in a number, and not always in a memory
NUMBER = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e400",
    "1e308",
    "1e38",
    "1e39",
    "1e-320",
    "-0.0",
    "2147483648",
    "9223372036854775808",
    "1" + "0" * 400,
    "",
    "x",
    "None",
    "1,5",
)
WORD = (
    "",
    " ",
    ".",
    "..",
    "/",
    "x",
    "0",
    "-1",
    "nan",
    "1e400",
    "None",
    "é漢🎉",
    "\udcff",
    LONG,
    "a\nb",
    "%s{}$HOME",
    ",",
    "1x1",
    "0x0",
    "9999999999x1",
    "a,b,,",
    "meta",
    "cuda",
    "cuda:99",
    "mps",
    "cpu:7",
    "1" + "0" * 400,
)
PATH = (
    ".",
    "..",
    "/",
    "",
    "/dev/null",
    "/dev/zero",
    "missing",
    "missing/deep/name",
    "notes.txt",
    "notes.txt/x",
    "runs",
    "empty",
    LONG,
    LONG + "/x",
    "é漢🎉",
    "\udcff",
    "dangling",
    "circle",
    "through/x.png",
    "null.png",
    "odd\udcff.csv",
    "odd\udcff/new",
    "/proc/self/mem",
    "/dev/full",
    "~",
    "a\nb",
    "new.png",
    "new.tar.gz",
    "new.html",
    "folder.png",
)
WRONG = ("--no-such-flag", "--", "-", "-x", "extra", "", "--help", "-h", "--=", "--debug=1", "é", "--version")

KINDS = {int: "whole number", float: "number", Path: "path", bool: "switch"}
# What is always given, so that a line whose values are all good ends in a moment. A flag named here may still
# be given something else.
TRAINING = {"--updates": "12", "--batch-size": "123", "--hidden": "48", "--evaluate-on": "14"}
POLICY = {
    "--total-timesteps": ("4", "8"),
    "--n-envs": "12",
    "--n-steps": "24",
    "--hidden": "4",
    "--evaluate-on": "1",
    "--n-minibatches": "1",
    "--max-minutes": ("0.02",),
}
SMALL: dict[str, dict[str, str | tuple[str, ...]]] = {
    "train": {**TRAINING, "--max-minutes": ("0.02",)},
    "train csv": {
        "--updates": "12",
        "--batch-size": "12",
        "--hidden": "48",
        "--max-minutes": ("0.02",),
        "--sequence": "s",
        "--target": "yyz",
    },
    "train minigrid": POLICY,
    "train gym": {**POLICY, "--env": ("CartPole-v1", "Pendulum"), "--time-limit": ("8", "20")},
    "train popgym": {**POLICY, "--env": ("RepeatFirstEasy", "BattleshipEasy")},
    "compare": {
        "--length": ("22", "30"),
        "--hidden": "48",
        "--seconds": ("0.1", "0.2"),
        "--models": ("rnn", "lstm,rellstm"),
    },
    "generate": {"--length": "159"},
    "gradients probe": {"--sequences": "12", "--length": "28"},
    "rank": {"--depth": "12", "--width": "1234", "--runs": "12"},
    "bounds": {"--depth": "1234", "--width": "1234"},
    "reproduce": {"--max-minutes": ("0", "1e-9")},
    "bench sizes": {"--cells": ("1", "2"), "--seconds": "0"},
    "bench rank": {"--size": ("64", "65"), "--repeats": "1"},
    "bench layers": {
        "--shapes": ("2x1", "3x2", "1x1"),
        "--repeats": "1",
        "--hidden": "48",
        "--layers": ("relrnn", "goru"),
    },
    "bench streaming": {"--steps": ("10", "20"), "--hidden": "48"},
    "bench tasks": {"--updates": "1"},
    "bench rl": {
        "--n-envs": "2",
        "--n-steps": "2",
        "--rounds": "1",
        "--n-minibatches": "1",
        "--n-epochs": "1",
    },
    "bench memory": {"--lengths": ("2", "2,3"), "--hidden": "48"},
    "bench attention": {"--lengths": ("2", "2,3"), "--rows": "1"},
    "bench decoding": {"--lengths": ("2", "2,3"), "--batch": "1", "--layers": "1", "--hidden": "256"},
    "demo": {"--seed": WHOLE},  # it trains for a minute, whatever is said, and is interrupted
}
# Work, not size: a large number that is allowed only takes long, and that is what was asked for.
WORK = (
    "--updates",
    "--steps",
    "--total-timesteps",
    "--n-epochs",
    "--seconds",
    "--repeats",
    "--rounds",
    "--epochs",
    "--length",
    "--evaluate-on",
)
NEVER = {"--ray": ("local",)}  # starts a cluster


@dataclass(frozen=True)
class Option:
    """One argument of a command: `flags` is empty for one that goes by its place."""

    flags: tuple[str, ...]
    kind: str
    takes: str
    needed: bool
    words: tuple[str, ...]
    usual: str  # what it is when it is not given; empty for nothing

    def good(self, draw: random.Random) -> str:
        if self.kind == "str" and self.usual and draw.random() < 0.5:
            return self.usual
        if self.words and (self.kind not in ("whole number", "number") or draw.random() < 0.5):
            return draw.choice(self.words)
        if self.kind == "whole number":
            return draw.choice("12345678")
        if self.kind == "number":
            return draw.choice(("0.5", "1", "0.001", "2"))
        return draw.choice(PATH) if self.kind == "path" else draw.choice(WORD)

    def hostile(self, draw: random.Random) -> str:
        pools = {"whole number": WHOLE, "number": NUMBER, "path": PATH}
        if self.kind == "whole number" and not set(self.flags) & set(WORK) and draw.random() < 0.3:
            return draw.choice(MIDDLE)
        return draw.choice(pools.get(self.kind, WORD + PATH) if draw.random() < 0.9 else WORD + PATH + WHOLE)


@dataclass(frozen=True)
class Command:
    """A command as it describes itself; `stops` says that Ctrl-C is its usual end."""

    name: str
    options: tuple[Option, ...]
    stops: bool
    written: tuple[str, ...]  # where it writes when nothing is said


def commands(names: dict[str, tuple[str, ...]]) -> list[Command]:
    """Every command of the table; `names` are values for what a metavar stands for in their world."""
    found = []
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        function = getattr(importlib.import_module(module), attribute)
        arguments = arguments_of(function)
        usual = [argument.default for argument in arguments if not argument.required]
        paths = [
            str(one) for value in usual for one in (value if isinstance(value, list | tuple) else [value])
        ]
        own = {key.removeprefix(f"{name} "): words for key, words in names.items() if key.startswith(name)}
        options = tuple(_option(argument, {**names, **own}) for argument in arguments)
        found.append(
            Command(
                name,
                options,
                "Ctrl-C" in (function.__doc__ or ""),
                tuple(p for p in paths if p not in ("None", "")),
            )
        )
    return found


def _option(argument: Argument, names: dict[str, tuple[str, ...]]) -> Option:
    kind = KINDS.get(argument.kind, "str")
    told = re.findall(r"[\w][\w.:+-]*", argument.description)
    if kind in ("whole number", "number"):
        told = [word for word in told if re.fullmatch(r"\d{1,2}(\.\d+)?", word)]
    known = names.get(argument.metavar, ()) or names.get(argument.name, ())
    words = tuple(map(str, argument.choices)) or known or tuple(told)
    forbidden = {word for flag in argument.flags for word in NEVER.get(flag, ())}
    several = argument.several and not argument.repeated
    takes = "nothing" if argument.kind is bool else "several" if several else "one"
    needed = argument.required
    usual = argument.default if isinstance(argument.default, str) else ""
    words = tuple(word for word in words if word not in forbidden)
    underscored = tuple(f"--{flag[2:].replace('-', '_')}" for flag in argument.flags[:1] if "-" in flag[2:])
    return Option((*argument.flags, *underscored), kind, takes, needed, words, usual)


def line(described: list[Command], seed: int, index: int) -> tuple[Command, list[str]]:
    """The command drawn, and the words after `plait`."""
    draw = random.Random(f"{seed}:{index}")
    (command,) = draw.choices(described, [_weight(command) for command in described])
    spite = draw.choice((0.0, 0.1, 0.25, 0.5))  # the share of values that are hostile
    words = [*command.name.split(), *_placed(command, draw, spite), *_flagged(command, draw, spite)]
    if draw.random() < 0.15:
        # What keeps a command short must not be lost on the way, unless Ctrl-C ends it.
        _disturb(words, draw, whole=command.name in SMALL and not command.stops)
    if draw.random() < 0.15:
        words.append("--json")
    return command, words


def _weight(command: Command) -> float:
    """More options are more to be tried; what takes seconds even when it is small is tried less often."""
    slow = command.name.startswith("bench") or command.name in ("demo", "compare", "doctor", "explore")
    return len(command.options) * (0.1 if slow else 1.0)


def _placed(command: Command, draw: random.Random, spite: float) -> Iterator[str]:
    for option in command.options:
        if not option.flags and draw.random() < (0.95 if option.needed else 0.7):
            yield from _values(option, draw, spite)


def _flagged(command: Command, draw: random.Random, spite: float) -> Iterator[str]:
    small = SMALL.get(command.name, {})
    flags = [option for option in command.options if option.flags]
    chosen = [o for o in flags if (o.needed and draw.random() < 0.97) or set(o.flags) & set(small)]
    others = [option for option in flags if option not in chosen]
    more = draw.choice((0, 0, 1, 1, 2, 3, 6) if spite else (0, 0, 0, 0, 1, 1, 2))
    chosen += draw.sample(others, min(len(others), more))
    draw.shuffle(chosen)
    for option in chosen:
        usual = next((small[flag] for flag in option.flags if flag in small), None)
        for _ in range(2 if draw.random() < 0.03 else 1):
            flag = draw.choice(option.flags)
            if usual:
                values = [option.hostile(draw) if draw.random() < spite / 2 else draw.choice(usual)]
            else:
                values = _values(option, draw, spite)
            if draw.random() < 0.1 and len(values) == 1 and flag.startswith("--"):
                yield f"{flag}={values[0]}"
            else:
                yield from (flag, *values)


def _values(option: Option, draw: random.Random, spite: float) -> list[str]:
    count = {"nothing": 0, "one": 1}.get(option.takes, draw.choice((1, 1, 2, 3)))
    return [option.hostile(draw) if draw.random() < spite else option.good(draw) for _ in range(count)]


def _disturb(words: list[str], draw: random.Random, whole: bool) -> None:
    """What hands do: a word too many, twice, too few, cut short, elsewhere."""
    place, deed = draw.randrange(len(words)), draw.randrange(2 if whole else 5)
    if deed == 0:
        words.insert(draw.randrange(len(words) + 1), draw.choice(WRONG))
    elif deed == 1:
        words.insert(place, words[place])
    elif deed == 2:
        del words[place]
    elif deed == 3:
        words[place] = words[place][: draw.randrange(len(words[place]) + 1)]
    else:
        words[place], words[-1] = words[-1], words[place]
