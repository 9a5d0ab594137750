"""The fuzzer of the command line: a sample of its lines, and that it sees what it is there to see."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEED = os.environ.get("PLAIT_FUZZ_SEED", "0")
# Commands with a fault each, run as the fuzzer runs a line.
PLANTED = """
import json, os, pathlib, subprocess, sys, time, types, warnings
sys.path.insert(0, sys.argv[1])
root = pathlib.Path(sys.argv[2])
import command_line, forked, world
from plait.lab import cli
from plait.errors import ConfigError
from plait.lab.result import CommandResult

def good(): return CommandResult({"a": 1}, ("fine",))
def wrong(): raise ConfigError("a: expected b, got c; say b")
def fault(): return {}["missing"]
def leaves(): sys.exit(7)
def hangs(): time.sleep(60)
def crashes(): os.abort()
def warns(): warnings.warn("look out", RuntimeWarning); return good()
def strays(place: str = "", /): pathlib.Path("elsewhere.txt").write_text("x"); return good()
def deep(place: str = "", /, *, more: bool = False):
    pathlib.Path("a/b/c").mkdir(parents=True)
    if more: pathlib.Path("a/x").touch()
    return good()
def home(): (pathlib.Path.home() / ".planted").write_text("x"); return good()
def outside(*, out: str = ""): (root.parent / "outside.txt").write_text("x"); return good()
def device():
    pathlib.Path("part").write_text("x")
    os.replace("part", "/dev/null")
def nan(): print("NaN")

planted = types.ModuleType("planted")
sys.modules["planted"] = planted
deeds = [good, wrong, fault, leaves, hangs, crashes, warns, strays, deep, home, outside, device, nan]
for deed in deeds:
    setattr(planted, deed.__name__, deed)
    cli.COMMANDS[deed.__name__] = (f"planted:{deed.__name__}", "")

class Bare(world.World):
    def __init__(self, root):
        self.pattern, self.here = root / "pattern", root / "here"
        for name in ("work", "home", "tmp"):
            (self.pattern / name).mkdir(parents=True)
        self.before, self.after = world._listed(self.pattern), {}

fuzzer = command_line.Fuzzer.__new__(command_line.Fuzzer)
fuzzer.world, fuzzer.run = Bare(root), lambda *given: forked.run_forked(*given, seconds=2.0)
found = {deed.__name__: fuzzer.try_line([deed.__name__, "--json"])[1] for deed in deeds}
fuzzer.world.renew()
named = fuzzer.try_line(["strays", "elsewhere.txt"])[1]
fuzzer.world.renew()
above = fuzzer.try_line(["deep", "a/b/c"])[1]
fuzzer.world.renew()
beside = fuzzer.try_line(["deep", "a/b/c", "--more"])[1]
told = fuzzer.try_line(["outside", f"--out={root.parent}/outside.txt"])[1]
print(json.dumps({**found, "named": named, "told": told, "above": above, "beside": beside}))
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, str(HERE), str(folder / "world")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "outside.txt").exists(), "the guard let it through"
    return json.loads(done.stdout)


SEEN = {
    "good": None,
    "wrong": None,
    "fault": "a fault of ours",
    "leaves": "exit code 7",
    "hangs": "hangs: ",
    "crashes": "exit code -6",
    "warns": "warns: RuntimeWarning",
    "strays": "changed outside: work/elsewhere.txt",
    "named": None,
    "deep": "changed outside: work/a",
    "above": None,
    "beside": "changed outside: work/a/x",
    "home": "changed outside: home/.planted",
    "outside": "changed outside: '",
    "told": None,
    "device": "changed outside: '/dev/null'",
    "nan": "--json, and no JSON",
}


@pytest.mark.parametrize(("deed", "seen"), SEEN.items())
def test_what_is_wrong_is_seen(planted, deed, seen):
    problems = planted[deed]
    assert problems == [] if seen is None else any(seen in problem for problem in problems), problems


def _fuzz(*words):
    done = subprocess.run(
        [sys.executable, str(HERE / "command_line.py"), "--seed", SEED, *words],
        capture_output=True,
        text=True,
        cwd=HERE.parent.parent,
    )
    print(done.stdout)
    return done


def test_a_sample_of_lines_ends_as_it_must():
    """Some of the lines of the test below; `command_line.py --lines 20000` is the whole, by hand."""
    done = _fuzz("--lines", "60", "--processes", "2")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "60 lines" in done.stdout
    assert "0 wrong" in done.stdout


def test_a_sample_of_tables_ends_as_it_must(monkeypatch):
    """Some of the tables of the test below: one line of error, or a run."""
    found, trained = _tables(monkeypatch, 20)
    assert found == []
    assert trained >= 3


@pytest.mark.slow
def test_300_tables_end_as_they_must(monkeypatch):
    found, trained = _tables(monkeypatch, 300)
    assert found == []
    assert trained >= 60


def _tables(monkeypatch, count):
    monkeypatch.syspath_prepend(str(HERE))
    from tables import fuzz

    return fuzz(int(SEED), range(count))


def test_what_is_wrong_with_a_table_is_seen(monkeypatch, tmp_path):
    """A fault, a warning and a table that is trained on without a word."""
    monkeypatch.syspath_prepend(str(HERE))
    from tables import faults, table

    content, words = b"s,a,t\n1,1,p\n2,2,q\n3,3,p\n", ["--target=t", "--sequence=s"]
    assert faults(content, words, tmp_path) == []
    assert table(1, 7) == table(1, 7) != table(1, 8)
    for mistake in (KeyError("p"), RuntimeWarning("overflow")):
        with monkeypatch.context() as patch:
            patch.setattr(
                "plait.lab.tasks.csv_task._answers",
                lambda *_, mistake=mistake: (_ for _ in ()).throw(mistake),
            )
            (seen,) = faults(content + b"4,4,q\n", words, tmp_path)
        assert "a fault of ours" in seen


@pytest.mark.slow
def test_500_lines_end_as_they_must():
    done = _fuzz("--lines", "500")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "500 lines" in done.stdout


def test_lines_come_from_the_commands_and_from_the_seed_alone(monkeypatch):
    """A flag that a command has is drawn by itself; line 7 of a seed is always the same line."""
    monkeypatch.syspath_prepend(str(HERE))
    from lines import commands, line

    described = commands({"RUN": ("a-run",)})
    named = {command.name for command in described}
    assert {"train", "train minigrid", "runs unpack", "bench rl"} <= named
    drawn = [line(described, 1, number) for number in range(12_000)]
    assert drawn[7] == line(described, 1, 7)
    assert drawn[7] != line(described, 2, 7)
    words = {word.partition("=")[0] for _, line in drawn for word in line}
    flags = {option.flags[0] for command in described for option in command.options if option.flags}
    assert flags <= words | {"-h"}, sorted(flags - words)
