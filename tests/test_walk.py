"""The first pages as a new user follows them: every console line, in a terminal of 80 and of 120 columns.

Slow: it trains what the pages train. `python -m pytest -m slow tests/test_walk.py -s` prints what was seen.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FIRST_PAGES = (ROOT / "README.md", ROOT / "docs" / "start.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[\w./-]")
ROWS = 3000  # more than any line here prints, so that nothing scrolls away
# What somebody types next, and the exit code that is right: what the README's lines left, and a slip.
NEXT = {
    "plait --help": 0,
    "set -o pipefail; plait --help | head -2": 0,
    "plait demo": 0,
    "plait runs": 0,
    "plait runs show copy-relrnn": 0,
    "plait train copy --model rellstm --help": 0,
    "plait tasks": 0,
    "plait train copy --dealy 5": 2,
    "plait runs nowhere": 2,
    "plait tasks show copy": 0,
    "plait explore runs --no-browser": 0,
}


@dataclass(frozen=True)
class Seen:
    """What one line did: its exit code, its seconds, the screen it left, the words the edge cut in two."""

    line: str
    code: int
    seconds: float
    screen: list[str]
    cut: list[str]


def console_lines(*pages: Path) -> list[str]:
    """Return the commands of pages without comments and installation; `make` only prints what it would do."""
    found = "".join("".join(BLOCK.findall(page.read_text())) for page in pages).splitlines()
    lines = [line.partition("    #")[0].strip() for line in found]
    lines = [line for line in lines if line and not line.startswith(("git clone", "pip install"))]
    return [line.replace("make ", "make -n ") if line.startswith("make ") else line for line in lines]


def typed(line: str, columns: int, folder: Path, timeout: float = 1500) -> Seen:
    """A line in a shell of its own on a terminal of so many columns; a server is ended by Ctrl-C."""
    pyte = pytest.importorskip("pyte", reason="pip install 'plait[test]'")
    screen = pyte.Screen(columns, ROWS)
    stream = pyte.ByteStream(screen)
    began = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.chdir(folder)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"PATH": path, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
        os.execvpe("bash", ["bash", "-c", line], {**os.environ, **ours})
    told = False
    while time.monotonic() - began < timeout:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                stream.feed(os.read(terminal, 65536))
            except OSError:  # the other side is gone
                break
        if not told and any("Ctrl-C ends it" in row for row in screen.display[:40]):
            os.write(terminal, b"\x03")
            told = True
    else:
        os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    rows = [row.rstrip() for row in screen.display]
    while rows and not rows[-1]:
        rows.pop()
    return Seen(line, code, time.monotonic() - began, rows, cut_words(rows, columns))


def cut_words(rows: list[str], columns: int) -> list[str]:
    """Words that begin at the end of one row and go on at the beginning of the next.

    >>> cut_words(["see runs/copy-relr", "nn-a020a59bbe"], 18)
    ['runs/copy-relr|nn-a020a59bbe']
    """
    found = []
    for one, two in itertools.pairwise(rows):
        if len(one) == columns and WORD.match(one[-1]) and WORD.match(two[:1] or " "):
            found.append(f"{one.split()[-1]}|{two.split()[0]}")
    return found


def test_a_cut_word_is_seen():
    assert cut_words(["see runs/copy-relr", "nn-a020a59bbe"], 18) == ["runs/copy-relr|nn-a020a59bbe"]
    assert cut_words(["whole words here", "and there"], 18) == []
    assert cut_words(["│ a │ b", "│ c │ d"], 7) == []


def test_the_walk_has_lines_to_walk():
    lines = console_lines(*FIRST_PAGES)
    assert lines[:2] == ["make -n demo", "make -n test"]
    assert len([line for line in lines if line.startswith("plait ")]) >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_first_pages_in_a_terminal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("w")
    wanted = {**dict.fromkeys(console_lines(*FIRST_PAGES), 0), **NEXT}
    troubles = []
    for columns in (80, 120):
        for line, code in wanted.items():
            seen = typed(line, columns, ROOT if line.startswith("make ") else folder)
            wide = max(map(len, seen.screen), default=0)
            print(
                f"{columns} columns, exit {seen.code}, {seen.seconds:.1f} s, {wide} wide: {line}", flush=True
            )
            if seen.code != code or seen.cut or any("Traceback" in row for row in seen.screen):
                said = "\n".join(seen.screen)
                troubles.append(f"{columns} columns, {line}: exit {seen.code}, cut {seen.cut}\n{said}")
    assert not troubles, "\n\n".join(troubles)
    assert (folder / "demo" / "index.html").exists()
    assert (folder / "report.html").exists()
