"""Fuzz the command line: python tests/fuzz/command_line.py --lines 20000 --seed 0

Every line must end within 20 seconds with exit code 0 or 2, without a traceback, without a fault of ours,
without a warning, with one line of error where it fails and JSON where that was asked for, and must change
nothing outside of what it names. A failure is printed with the words that repeat it.
"""

import argparse
import collections
import gc
import json
import math
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

WARM = """
tyro rich.table matplotlib.pyplot matplotlib.backends.backend_agg gymnasium minigrid starlette.applications
uvicorn torch.utils.tensorboard torch._dynamo scipy.linalg numba transformers plait.lab.training.session
plait.lab.training.ppo plait.lab.report.write plait.lab.report.explore.app plait.lab.bench.layers
plait.lab.bench.rl plait.lab.experiments.launch
"""
STDOUT = ("utf-8", "utf-8", "ascii", "utf-8", "latin-1", "utf-8", "full", "utf-8", "ascii", "utf-8", "closed")


def judge(words: list[str], ended, strays: list[str], stdout: str = "utf-8") -> list[str]:
    """What is wrong with how a line ended; nothing, if nothing is."""
    seen = stdout not in ("full", "closed")
    found = []
    if ended.code is None:
        found.append(f"hangs: {ended.seconds:.0f} s")
    elif ended.code not in ((0, 2, 130) if ended.interrupted else (0, 2)):
        found.append(f"exit code {ended.code}")
    if "Traceback (most recent call last)" in ended.error + ended.out:
        found.append("traceback")
    if "a bug in plait" in ended.error:
        found.append("a fault of ours")
    if "out of memory" in ended.error:
        found.append("tried what does not fit")
    if warned := re.search(r":\d+: (\w*Warning): ", ended.error):
        found.append(f"warns: {warned[1]}")
    errors = [line for line in ended.error.splitlines() if line.startswith("plait: error: ")]
    if ended.code == 2 and (len(errors) != 1 or not ended.error.rstrip().endswith(errors[0].rstrip())):
        found.append(f"exit code 2 with {len(errors)} lines of error")
    if ended.code == 0 and errors:
        found.append("exit code 0 and an error")
    if (
        ended.code == 0
        and "--json" in words
        and seen
        and not (ended.interrupted or _is_json(ended.out, words))
    ):
        found.append("--json, and no JSON")
    found += [f"changed outside: {name}" for name in strays]
    if not stat.S_ISCHR(os.stat("/dev/null").st_mode):
        found.append("/dev/null is no device any more")
    return found


def _is_json(text: str, words: list[str]) -> bool:
    if (
        {"--help", "-h", "--version"} & set(words)
        or words == ["--json"]
        or text.startswith(("usage:", "plait:"))
    ):
        return True
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


class Fuzzer:
    """A warm process, its world, and the commands as they describe themselves."""

    def __init__(self, root: Path) -> None:
        warm()
        from forked import run_forked
        from lines import commands
        from world import World

        self.run = run_forked
        self.world = World(root, lambda words, work: self._furnish(words, work))
        self.commands = commands(self.world.names)

    def _furnish(self, words: list[str], work: Path) -> int:
        for name in ("home", "tmp"):
            (work.parent.parent / name).mkdir(exist_ok=True)
        ended = self.run(words, work, seconds=120)
        if ended.code:
            print(ended.code, ended.out, ended.error, file=sys.stderr)
        return 1 if ended.code is None else ended.code

    def line(self, seed: int, index: int):
        from lines import line

        return line(self.commands, seed, index)

    def try_line(self, words: list[str], usual=(), stops=False, stdout="utf-8"):
        """How the line ended, and what is wrong with that."""
        ended = self.run(words, self.world.renew(), stops, stdout)
        said = [part for word in words for part in (word, word.partition("=")[2]) if 0 < len(part) < 256]
        named = [os.path.realpath(os.path.join(self.world.here, "work", part)) for part in said]
        outside = [place for place in ended.outside if not any(_under(place, name) for name in named)]
        return ended, judge(words, ended, self.world.strays(words, usual) + outside, stdout)


def _under(place: str, name: str) -> bool:
    """Whether the folder that could not be written is one that the line names."""
    return place.strip("'\"").startswith(os.path.dirname(name) if name != "/" else "/")


def warm() -> None:
    """All that lines would import, once; the compiled scan too. Nothing here may start a thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a forked process cannot use a GPU
    for scheme in ("http", "https"):  # no line may reach the net
        os.environ |= {
            f"{scheme}_proxy": "http://127.0.0.1:9",
            f"{scheme.upper()}_PROXY": "http://127.0.0.1:9",
        }
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.expanduser("~/.cache/torch_extensions"))
    for name in ("PLAIT_DATA", "PLAIT_CACHE", "XDG_CACHE_HOME", "TRITON_INTERPRET"):
        os.environ.pop(name, None)
    sys.dont_write_bytecode = True
    import contextlib
    import importlib

    import torch

    torch.set_num_threads(1)
    torch.cuda.is_available()  # asks CUDA once, which takes more memory than a line may
    for name in WARM.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from plait.errors import BackendError
    from plait.ops.scan import cpu_library

    with contextlib.suppress(BackendError):  # where there is no compiler lines run without it, and must end
        cpu_library.library()
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy all of this


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of all lines")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", type=int, help="only the line of this number")
    parser.add_argument(
        "--line", action="append", help="this line instead: 'train copy --delay -1'; may be repeated"
    )
    parser.add_argument("--times", type=float, help="also print every line that takes so many seconds")
    parser.add_argument("--processes", type=int, default=1, help="that share the lines")
    parser.add_argument("--minutes", type=float, help="begin no line after this many")
    given = parser.parse_args()
    given.end = math.inf if given.minutes is None else time.monotonic() + 60 * given.minutes
    folder = Path(
        tempfile.mkdtemp(prefix="plait-fuzz-")
    )  # no TemporaryDirectory: a forked child would tidy it up
    try:
        return fuzz(given, folder)
    finally:
        shutil.rmtree(folder)


def fuzz(given: argparse.Namespace, folder: Path) -> int:
    fuzzer, began = Fuzzer(folder), time.monotonic()
    numbers: Sequence[int] = range(given.first, given.first + given.lines)
    if given.only is not None or given.line:
        numbers = [given.only] if given.only is not None else range(len(given.line))
    seen = shared(fuzzer, given, numbers, folder) if given.processes > 1 else tries(fuzzer, given, numbers)
    codes = collections.Counter(one["code"] for one in seen)
    ends = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items(), key=str))
    longest = ", ".join(
        f"{one['seconds']:.1f} s (line {one['line']})"
        for one in sorted(seen, key=lambda one: -one["seconds"])[:3]
    )
    wrong = sum(one["wrong"] for one in seen)
    print(
        f"seed {given.seed}: {len(seen)} lines in {time.monotonic() - began:.0f} s; {ends}; {wrong} wrong; "
        f"longest {longest}"
    )
    return 1 if wrong else 0


def shared(fuzzer: Fuzzer, given: argparse.Namespace, numbers: Sequence[int], folder: Path) -> list[dict]:
    """The same by several processes, each with every so-manieth line and a world of its own."""
    places = [folder / str(number) for number in range(given.processes)]
    children = []
    for number, place in enumerate(places):
        place.mkdir()
        child = os.fork()
        if not child:
            try:
                fuzzer.world.here = place / "here"
                seen = tries(fuzzer, given, numbers[number :: given.processes])
                (place / "seen.json").write_text(json.dumps(seen))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)  # what the warm process would tidy up is not this one's
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    seen: list[dict] = []
    for place in places:
        try:
            seen += json.loads((place / "seen.json").read_text())
        except FileNotFoundError:
            print(f"the process of lines {place.name}, {place.name} + {given.processes}, … died", flush=True)
            seen.append({"line": int(place.name), "code": None, "seconds": 0.0, "wrong": True})
    return seen


def tries(fuzzer: Fuzzer, given: argparse.Namespace, numbers: Sequence[int]) -> list[dict]:
    """How each line ended; what is wrong is printed with what repeats it."""
    began, seen = time.monotonic(), []
    for index in numbers:
        if time.monotonic() > given.end:
            break
        command, words = fuzzer.line(given.seed, index)
        usual, stops = command.written, command.stops
        if given.line:
            words, usual, stops = shlex.split(given.line[index]), ("runs", "demo", "compare"), False
        try:
            stdout = "utf-8" if given.line else STDOUT[index % len(STDOUT)]
            ended, problems = fuzzer.try_line(words, usual, stops, stdout)
        except KeyboardInterrupt:
            break
        seen.append({"line": index, "code": ended.code, "seconds": ended.seconds, "wrong": bool(problems)})
        if index % 500 == 499:
            print(f"at line {index + 1} after {time.monotonic() - began:.0f} s", flush=True)
        if problems:
            text = (ended.error.strip() or ended.out.strip())[-600:].replace("\n", "\n  ")
            print(
                f"\nline {index}: plait {shlex.join(words)} (stdout {stdout})\n"
                f"  {'; '.join(problems)}\n  {text}\n"
                f"  again: python tests/fuzz/command_line.py --seed {given.seed} --only {index}",
                flush=True,
            )
        elif given.times is not None and ended.seconds > given.times:
            print(
                f"{ended.seconds:6.2f} s  {ended.code}  line {index}: plait {shlex.join(words)}", flush=True
            )
        elif given.only is not None or given.line:
            print(f"plait {shlex.join(words)}\n{ended.out}{ended.error}")
    return seen


if __name__ == "__main__":
    sys.exit(main())
