"""Parts that pass, fail or hang: all of them run, and the log names each."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import nightly
from tests.nightly import Part

PASSES = Part("passes", 1, "{python} -c 'print({seed}, {minutes})'")
FAILS = Part("fails", 1, "{python} -c 'import sys; print(1234); sys.exit(3)'")
HANGS = Part("hangs", 0.001, "{python} -c 'import time; time.sleep(60)'")


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "SPARE", 0.01)
    return tmp_path / "nightly.log"


def test_what_fails_stops_nothing_and_is_named(log, capfd):
    assert nightly.nightly([[FAILS, PASSES], [HANGS]], 7, 0.5) == 1
    first, _, *lines = log.read_text().splitlines()
    assert first.startswith("seed 7, scale 0.5: 3 of 3 parts have run; failed: ")
    assert {"fails", "hangs"} == set(first.partition("failed: ")[2].split(", "))
    assert {line.split(",")[0] for line in lines if ", 0." in line} == {
        "FAILED (3)  fails",
        "did not end  hangs",
        "passed  passes",
    }
    assert "1234" in lines[lines.index("== fails: the last lines of build/nightly/fails.txt") + 1]
    assert (log.parent / "build/nightly/passes.txt").read_text() == "7 0.5\n"
    assert str(log) in capfd.readouterr().out


def test_nothing_failed(log):
    assert nightly.nightly([[PASSES], [PASSES]], 7, 1) == 0
    assert "2 of 2 parts have run; nothing failed" in log.read_text()


def test_a_part_that_cannot_run_is_a_failure(log):
    assert nightly.nightly([[Part("absent", 1, "no-such-program")]], 7, 1) == 1
    assert "no-such-program" in log.read_text()


def test_every_part_of_a_night_is_a_command_that_is_there():
    lanes = nightly.parts()
    assert all(sum(part.minutes for part in lane) <= 120 for lane in lanes)
    names = [part.name for lane in lanes for part in lane]
    assert len(set(names)) == len(names)
    assert {"kernels", "slow", "mutants", "command-lines", "faults-kill"} <= set(names)


def test_no_test_begins_after_the_minutes(tmp_path):
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "import time\ndef test_first(): time.sleep(0.3)\ndef test_second(): pass\n"
        )
    root = Path(__file__).parent.parent
    environment = {"PATH": "", "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "tests.limit",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        ".",
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**environment, "PLAIT_MINUTES": "0.004", "PLAIT_FIRST": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    begun = [line.split()[:2] for line in done.stdout.splitlines() if "::" in line]
    assert begun == [
        ["test_b.py::test_first", "PASSED"],
        ["test_b.py::test_second", "SKIPPED"],
        ["test_a.py::test_first", "SKIPPED"],
        ["test_a.py::test_second", "SKIPPED"],
    ]
