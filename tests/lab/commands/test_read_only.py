"""On a disk that cannot be written a command that writes ends in one line and exit code 2; others work."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# The disk is a mount where one may mount, else every way out to it is answered as the kernel would.
SCRIPT = """
import contextlib, errno, io, json, os, subprocess, sys
from plait.lab.cli import main

root, mounted, lines = os.path.realpath(sys.argv[1]), sys.argv[2] == "mount", json.loads(sys.argv[3])

def refuse(event, given):
    names = {"os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.rename": (0, 1), "os.symlink": (1,)}
    flags = given[2] if event == "open" and isinstance(given[2], int) else 0
    writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    for place in (0,) if writes else names.get(event, ()):
        if not isinstance(given[place], int) and os.path.realpath(given[place]).startswith(root):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), given[place])

if mounted:
    subprocess.run(["mount", "-o", "bind", root, root], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
else:
    sys.addaudithook(refuse)
os.chdir(root)
for line in lines:
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(line)
    print(json.dumps([code, out.getvalue(), error.getvalue()]), flush=True)
"""
TINY = ["--hidden", "4", "--updates", "2", "--batch-size", "2", "--evaluate-on", "2", "--device", "cpu"]
WRITING = {
    "train": ["train", "copy", "--delay", "3", *TINY],
    "tensorboard": ["train", "copy", "--delay", "3", "--tensorboard", *TINY],
    "resume": ["train", "--resume", "copy-rellstm", "--updates", "4"],
    "report": ["report", "runs"],
    "csv": ["report", "runs", "-o", "new.csv"],
    "png": ["report", "runs", "-o", "new.png"],
    "pack": ["runs", "pack", "runs"],
    "unpack": ["runs", "unpack", "packed.tar.gz", "--out", "new"],
    "attention": ["runs", "attention", "copy-rellstm"],
    "reproduce": ["reproduce", "table5", "--smoke", "--models", "lstm", "--delays", "10", "--device", "cpu"],
    "figure": ["reproduce", "depthwidth-figure1", "--smoke", "--text", "notes.txt", "--device", "cpu"],
    "compare": ["compare", "--length", "22", "--hidden", "4", "--models", "rnn", "--seconds", "0.1"],
    "demo": ["demo"],
    "rank": ["rank", "--depth", "1", "--width", "2", "--out", "certificate.json"],
    "bench": ["bench", "memory", "--lengths", "2", "--hidden", "4", "--out", "bench.json"],
    "plot": ["plan", "table", "--plot", "plane.png"],
    "law": ["gradients", "law", "--eigenvalue", "0.5", "--length", "1000", "--plot", "law.png"],
}
READING = {"runs": ["runs"], "show": ["runs", "show", "copy-rellstm"], "generate": ["tasks", "show", "copy"]}


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """Code, output and error of each command, all in one process."""
    from plait.lab.cli import main

    folder = tmp_path_factory.mktemp("read-only")
    (folder / "notes.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    runs = ["--out", str(folder / "runs")]
    assert main(["train", "copy", "--delay", "2", "--model", "rellstm", "--quiet", *TINY, *runs]) == 0
    assert main(["runs", "pack", str(folder / "runs"), "-o", str(folder / "packed.tar.gz")]) == 0
    script = folder / "script.py"
    script.write_text(SCRIPT)
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    unshare = next(
        (words for words in (["unshare", "-m"], ["unshare", "-rm"]) if _may_mount(words, folder)), []
    )
    lines = [*WRITING.values(), *READING.values()]
    how = "mount" if unshare else "hook"
    done = subprocess.run(
        [*unshare, sys.executable, str(script), str(folder), how, json.dumps(lines)],
        capture_output=True,
        text=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(found) == len(lines), done.stderr + done.stdout
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == before, "nothing is left behind"
    return dict(zip([*WRITING, *READING], found, strict=True))


def _may_mount(words: list[str], folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run([*words, "mount", "-o", "bind", folder, folder], capture_output=True).returncode == 0
    )


@pytest.mark.parametrize("name", WRITING)
def test_what_cannot_be_written_is_one_line(read_only, name):
    code, _, error = read_only[name]
    assert code == 2
    said = [line for line in error.splitlines() if line.startswith("plait: error: ")]
    assert len(said) == 1, error
    assert "Read-only file system" in said[0]
    assert "a bug in plait" not in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", READING)
def test_what_only_reads_works(read_only, name):
    code, out, error = read_only[name]
    assert code == 0, error
    assert out.strip()
