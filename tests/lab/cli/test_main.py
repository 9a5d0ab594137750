"""The command line's last door: whatever happens ends in one line and a code, never in a traceback."""

import os
import subprocess
import sys

import pytest

from plait.lab import cli


@pytest.fixture
def broken(monkeypatch):
    """A command that has a fault."""

    def fault():
        return {}["a key\nthat is not there"]

    monkeypatch.setitem(cli.COMMANDS, "tasks", ("plait.lab.commands.tasks:broken", "broken"))
    monkeypatch.setattr("plait.lab.commands.tasks.broken", fault, raising=False)


def test_a_fault_of_ours_is_one_line_and_says_how_to_report_it(broken, capsys):
    assert cli.main(["tasks"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("plait: error: KeyError: ")
    assert "a bug in plait, please report it" in error
    assert error.count("\n") == 1


def test_debug_shows_where(broken):
    with pytest.raises(KeyError):
        cli.main(["tasks", "--debug"])


@pytest.mark.parametrize("words", [["--help"], ["tasks"], ["bench", "--help"]])
def test_a_closed_pipe_is_not_an_error(words):
    """As under `| head -2`: the pipe is closed before anything is written to it."""
    script = (
        "import os, sys; from plait.lab.cli import entry\n"
        "os.read(0, 1)  # the other side has closed its end by now\n"
        f"sys.argv = ['plait', *{words!r}]\nentry()"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    job.stdout.close()
    job.stdin.write(b"x")
    job.stdin.close()
    assert job.stderr.read() == b""
    job.stderr.close()
    assert job.wait(60) == 0


def test_ctrl_c_while_python_tidies_up_is_too_late_to_say_anything():
    script = (
        "import atexit, os, signal, sys; from plait.lab.cli import entry\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['plait', '--version']\nentry()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# What a shell does to the streams, the command, its exit code, and what it prints on the stream that is left.
STREAMS = [
    (">&-", "--version", 0, ""),
    (">&- 2>&-", "--version", 0, ""),
    ("<&-", "--version", 0, ""),
    (">/dev/full", "runs --help", 2, "plait: error: cannot write the output: No space left on device\n"),
    (">/dev/full", "--help", 2, "plait: error: cannot write the output: No space left on device\n"),
    (">/dev/full", "runs missing", 2, "plait: error: no folder missing"),
    (">&-", "runs missing", 2, "plait: error: no folder missing"),
    ("2>&-", "runs missing", 2, ""),
    ("2>/dev/full", "runs missing", 2, ""),
    (">/dev/full 2>/dev/full", "--version", 2, ""),
]


@pytest.mark.parametrize(("redirection", "words", "code", "error"), STREAMS)
def test_closed_and_full_streams(tmp_path, redirection, words, code, error):
    command = f'"{sys.executable}" -m plait {words} {redirection}'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr[: len(error)]) == (code, error)
    assert done.stderr.count("\n") == (1 if error else 0)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&1 >lines | head -1"])
def test_work_continues_if_progress_cannot_be_written(tmp_path, redirection):
    script = (
        "import sys; from plait.lab.cli.streams import prepare_streams; prepare_streams()\n"
        "for step in range(20000): print(f'step {step}', file=sys.stderr)\n"
        "print('done')"
    )
    command = f'"{sys.executable}" -c "{script}" {redirection}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    lines = tmp_path / "lines"
    assert (done.returncode, done.stderr) == (0, "")
    assert (lines.read_text() if lines.exists() else done.stdout) == "done\n"


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_characters_that_the_encoding_lacks_are_printed_as_escapes(environment):
    command, whole = [sys.executable, "-m", "plait", "--help"], {**os.environ, **environment}
    done = subprocess.run(command, env=whole, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"attention: \u03ba" in done.stdout
