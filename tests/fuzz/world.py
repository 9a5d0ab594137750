"""Where fuzzed lines run: runs, files and traps, the same for every line, and what a line changed in it."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from plait.lab.tasks import TASKS

ROWS = "".join(
    f"{n // 3},{n % 7},{n / 4},{('mild', 'none', 'severe')[n // 3 % 3]},{n // 3 * 1.5}\n" for n in range(60)
)
TABLES = {
    "words.csv": f"s,a,b,y,z\n{ROWS}".encode(),
    "numbers.csv": f"s,a,b,z,y\n{ROWS}".encode(),
    "odd\udcff.csv": f"s,a,b,y,z\n{ROWS}".encode(),
    "huge.csv": f"s,a,b,y,z\n{ROWS}0,1e39,1e400,1e308,-1e39\n".encode(),
    "gaps.csv": f"s,a,b,y,z\n{ROWS}0,,NA,,?\n".encode(),
    "latin.csv": f"s,a,b,y,z\n{ROWS}".encode() + b"1,2,3,\xe9,4\n",
    "wide.csv": ("s,y," + ",".join(f"c{n}" for n in range(5000)) + "\n0,1" + ",1" * 5000 + "\n").encode(),
    "twice.csv": b"s,a,a,y\n1,2,3,4\n",
}
Run = Callable[[list[str], Path], int]
Entry = tuple[int, int, int]
TINY = [
    "--batch-size",
    "2",
    "--hidden",
    "4",
    "--updates",
    "2",
    "--evaluate-on",
    "2",
    "--quiet",
    "--device",
    "cpu",
]
POLICY = [
    "--total-timesteps",
    "4",
    "--n-envs",
    "2",
    "--n-steps",
    "2",
    "--n-minibatches",
    "1",
    "--hidden",
    "4",
    "--evaluate-on",
    "1",
    "--quiet",
]


class World:
    """`pattern` is what a line finds; `here` is a copy to run in, with a home and a TMPDIR of its own."""

    def __init__(self, root: Path, run: Run) -> None:
        self.pattern, self.here = root / "pattern", root / "here"
        self.names = _furnish(self.pattern / "work", run)
        for name in ("home", "tmp"):
            (self.pattern / name).mkdir()
        self.before = _listed(self.pattern)
        self.after: dict[str, Entry] = {}

    def renew(self) -> Path:
        """The folder to run in, as if nothing had been run; most lines leave it as it is."""
        if self.after != self.before:
            shutil.rmtree(self.here, ignore_errors=True)
            shutil.copytree(self.pattern, self.here, symlinks=True)
        return self.here / "work"

    def strays(self, words: Iterable[str], usual: Iterable[str]) -> list[str]:
        """What changed, came or went, and lies in no place that the line names or that its command uses."""
        named = [
            self.here / "work" / part for word in words for part in (word, word.partition("=")[2]) if part
        ]
        named = [
            Path(os.path.normpath(path)) for path in (*named, *(self.here / "work" / name for name in usual))
        ]
        named += [Path(os.path.realpath(path)) for path in named if len(path.name) < 256]
        self.after = after = _listed(self.here)
        changed = [n for n in self.before.keys() | after.keys() if self.before.get(n) != after.get(n)]
        made = {n for n in changed if n not in self.before and stat.S_ISDIR(after[n][0])}  # mkdir -p
        return sorted(
            name
            for name in changed
            if not any(
                _beside(self.here / name, path) or (name in made and path.is_relative_to(self.here / name))
                for path in named
            )
        )


def _beside(path: Path, named: Path) -> bool:
    """Under the name, or a part of an output of several files: report.csv and report-curves.csv."""
    return path.is_relative_to(named) or (path.parent == named.parent and path.name.startswith(named.stem))


def _listed(root: Path) -> dict[str, Entry]:
    """Every entry: its kind, and of a file its size and time. A folder is told by what is in it."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            about = path.lstat()
            plain = stat.S_ISREG(about.st_mode)
            told = (about.st_size, about.st_mtime_ns) if plain else (0, 0)
            found[str(path.relative_to(root))] = (stat.S_IFMT(about.st_mode), *told)
    return found


def _furnish(work: Path, run: Run) -> dict[str, tuple[str, ...]]:
    """Runs of every kind, an archive, a text, a certificate, a model's description; links to nowhere."""
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    (work / "config.json").write_text(
        json.dumps(
            {
                "model_type": "gpt2",
                "n_layer": 2,
                "n_embd": 8,
                "n_head": 2,
                "vocab_size": 50,
                "n_positions": 32,
            }
        )
    )
    for name, content in TABLES.items():
        (work / name).write_bytes(content)
    for name in ("empty", "folder.png"):
        (work / name).mkdir()
    for name, target in (
        ("dangling", "nowhere"),
        ("circle", "circle"),
        ("through", "empty"),
        ("null.png", "/dev/null"),
    ):
        (work / name).symlink_to(target)
    for words in (
        ["train", "copy", "--delay", "2", "--model", "rellstm", *TINY],
        ["train", "text", "--text", "notes.txt", "--span", "4", "--embedding", "4", *TINY],
        ["train", "minigrid", "--env", "DoorKey-5x5", *POLICY],
        [
            "train",
            "csv",
            "words.csv",
            "--target",
            "y",
            "--sequence",
            "s",
            "--epochs",
            "1",
            "--hidden",
            "4",
            "--device",
            "cpu",
            "--quiet",
        ],
        ["runs", "pack", "runs", "-o", "packed.tar.gz"],
        ["rank", "--depth", "1", "--width", "2", "--out", "certificate.json"],
    ):
        if run(words, work):
            raise RuntimeError(f"the world could not be furnished: plait {' '.join(words)} failed")
    runs = tuple(path.name for path in sorted((work / "runs").iterdir()))
    folders = tuple(f"runs/{name}" for name in runs)
    return {
        "TASK": (*TASKS, "copy", "text"),
        "RUN": (*runs, *folders),
        "RUNS": ("runs", *folders),
        "FILE": ("packed.tar.gz",),
        "CONFIG": ("config.json",),
        "OUT": ("runs", "empty"),
        "check": ("certificate.json",),
        "config": ("config.json",),
        "out": ("new", "runs", "empty"),
        "output": ("new.png", "new.html", "new.tar.gz"),
        "plot": ("new.png", "new.svg"),
        "text": ("notes.txt",),
        "data": ("empty",),
        "reuse": ("runs",),
        "train csv FILE": tuple(TABLES),
        "train csv target": ("y", "y", "y", "z"),
        "train csv sequence": ("s", "s", "s", "a"),
        "train csv order": ("a", "b"),
        "train csv features": ("a", "b", "y"),
        "train csv missing": ("mean", "previous", "refuse"),
        "predict FILE": tuple(TABLES),
        "predict missing": ("mean", "previous", "refuse"),
        "train csv answer": ("class", "number"),
        "train csv asks": ("last", "every"),
    }
