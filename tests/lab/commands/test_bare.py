"""Every command whose room needs torch and numpy alone runs where the command line's libraries are not."""

import importlib
import inspect
import json
import subprocess
import sys

import pytest

from plait.errors import PlaitError
from plait.lab.bench.layers import bench_layers
from plait.lab.cli import COMMANDS, with_argparse
from plait.lab.commands.gradients import law
from plait.lab.commands.runs import pack_runs
from plait.lab.commands.train import train

MISSING = ("tyro", "pydantic", "rich", "gymnasium", "matplotlib", "jinja2", "numba", "scipy", "ray")
# It begins at the file's top, so that workers, which import this file, are refused the same.
SCRIPT = f"""
import importlib.machinery, importlib.metadata, json, sys

class Others:
    # the finders that were there, blind to what is missing
    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {MISSING}:
            return next(filter(None, (f.find_spec(name, path, target) for f in self.finders)), None)

    def find_distributions(self, context):
        found = importlib.machinery.PathFinder.find_distributions(context)
        return [one for one in found if one.metadata["Name"] not in {MISSING}]

sys.meta_path[:] = [Others(sys.meta_path[:])]

if __name__ == "__main__":
    from plait.lab.cli import main
    for line in json.loads(sys.argv[1]):
        print(">>>", *line, flush=True)
        print("<<<", main(line), flush=True)
    assert not {{name.partition(".")[0] for name in sys.modules}} & set({MISSING}), "something was loaded"
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """What each command printed and its exit code, all in one process without those libraries."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "bare.py").write_text(SCRIPT)
    (folder / "book.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    lines = {
        "train": ["train", "copy", "--model", "relrnn", "--hidden", "8", "--delay", "3", "--updates", "4",
                  "--quiet", "--evaluate_on", "8", "--out", "runs"],
        "resume": ["train", "--resume", "copy-relrnn", "--quiet"],
        "runs": ["runs", "--json"],
        "reproduce": ["reproduce", "table5", "--smoke", "--models", "lstm", "--delays", "10",
                      "--device", "cpu", "--together", "1", "--out", "five", "--pack-light", "five.tar.gz"],
        "figure": ["reproduce", "depthwidth-figure1", "--smoke", "--max-minutes", "1e-9", "--device", "cpu",
                   "--text", "book.txt", "--out", "figure"],
        "bench": ["bench", "layers", "--quick", "--layers", "relrnn", "--backends", "torch"],
        "doctor": ["doctor"],
        "rank": ["rank", "--depth", "2", "--width", "3", "--runs", "1"],
        "bounds": ["bounds", "--depth", "2", "--width", "3"],
        "plan": ["plan", "1.3B"],
        "law": ["gradients", "law", "--eigenvalue", "0.25", "--eigenvalue=-0.5", "--length", "1e3"],
        "help": ["train", "--help"],
        "wrong": ["train", "copy", "--updates", "many"],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "bare.py", json.dumps(list(lines.values()))],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split(">>> ")[1:]
    found = {}
    for name, part in zip(lines, parts, strict=True):
        said, _, code = part.rpartition("<<< ")
        found[name] = int(code), said.partition("\n")[2]
    return folder, found, done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train", "complete: 4 updates"),
        ("resume", "complete: 4 updates"),
        ("runs", '"status": "complete"'),
        ("reproduce", "1 runs completed"),
        ("figure", "8 missing (max-minutes), the same command continues"),
        ("bench", "RelRNN         torch     120  10"),
        ("doctor", "C++ scan         works"),
        ("rank", "rank 49"),
        ("bounds", "2 layers, width 3, 1 heads: deep regime"),
        ("plan", "Balanced shape for 1.3B parameters"),
        ("law", "-0.5        T^-1.0000      T^-1.3333"),
        ("help", "Updates between two records of the learning curve. (default: 10)"),
    ],
)
def test_without_the_command_lines_libraries(bare, name, words):
    _, found, errors = bare
    code, said = found[name]
    assert code == (2 if name == "doctor" else 0), errors  # of doctor: what the core needs is missing
    assert words in said if name != "help" else words in " ".join(said.split())


def test_a_page_that_cannot_be_drawn_is_said_and_the_runs_are_packed(bare):
    folder, found, _ = bare
    assert "no page: jinja2 is needed here and not installed" in found["reproduce"][1]
    assert "five.tar.gz holds 1 runs" in found["reproduce"][1]
    assert (folder / "five.tar.gz").exists()


def test_what_is_wrong_is_one_line(bare):
    _, found, errors = bare
    assert found["wrong"] == (2, "")
    line = "plait: error: argument --updates: invalid whole number value: 'many' (plait train --help)"
    assert errors.splitlines()[-1] == line


def test_old_spellings_are_the_same_door(tmp_path):
    for room, options, words in (
        ("bench", ["layers", "--shapes", "4x0"], "shapes: expected steps x rows"),
        ("depthwidth", ["--depth", "2", "--width", "3", "--heads", "2"], "must divide"),
        ("experiments", ["table6"], "unknown experiment 'table6'"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", f"plait.{room}", *options], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_both_doors_read_the_same(capsys):
    """Every command has a form under argparse, and a line of options means the same to both."""
    from plait.lab.cli import with_tyro

    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        function = getattr(importlib.import_module(module), attribute)
        assert with_argparse.read_arguments(function, name, ["--help"]) is None
        assert f"usage: plait {name}" in capsys.readouterr().out
    for function, line in (
        (train, ["copy", "--delay", "7", "--lr", "0.01", "--test-delays", "3", "5", "--evaluate-on", "None"]),
        (train, ["--resume", "some", "--quiet", "--max_minutes", "2"]),
        (law, ["--eigenvalue", "0.25", "--eigenvalue", "0.5", "--length", "1e3", "--plot", "a.png"]),
        (pack_runs, ["one", "two", "-o", "x.tar.gz", "--light"]),
        (bench_layers, ["--device", "cpu", "--quick"]),
    ):
        one, two = (door.read_arguments(function, "x", line) for door in (with_tyro, with_argparse))
        bound = [inspect.signature(function).bind(*f.args, **f.keywords) for f in (one, two)]
        for each in bound:
            each.apply_defaults()
        assert bound[0].arguments == bound[1].arguments
    with pytest.raises(PlaitError, match="unrecognized arguments: --colour"):
        with_argparse.read_arguments(law, "gradients law", ["--colour", "red"])
