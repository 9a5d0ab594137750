"""Random CSV files as people have them: table `index` of a seed is a function of the two alone.

python tests/fuzz/tables.py --tables 300 --seed 0
"""

import argparse
import contextlib
import io
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

ALPHABET = (
    "who",
    "when",
    "x",
    "y",
    "temp °C",
    "größe",
    "a,b",
    'a"b',
    "a\nb",
    " pad ",
    "nan",
    "None",
    "1",
    "",
    "x",
)
CELLS = {
    "integer": lambda draw: str(draw.randrange(-3, 4)),
    "number": lambda draw: f"{draw.gauss(0, 10):.4g}",
    "word": lambda draw: draw.choice(("mild", "severe", "none", "NA", "null", "é漢🎉", "yes", "no", "1_0")),
    "date": lambda draw: f"202{draw.randrange(6)}-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}",
    "missing": lambda draw: draw.choice(("", "NA", "n/a", "NaN", "null", "None", "?", "1", "2.5")),
    "huge": lambda draw: draw.choice(
        ("1e37", "1e39", "-1e39", "1e308", "1e400", "1e-320", "9" * 400, "inf", "3")
    ),
    "odd": lambda draw: draw.choice(
        ("1,5", "1 000", "٣", "0x10", "+1", "-0.0", "1e5", "True", "\x00", "\x85", "'")
    ),
    "quoted": lambda draw: draw.choice(
        ('"a,b"', '"a""b"', '"a\nb"', '"1"', '"', '""', '"a"b', "a\tb", "a;b|c")
    ),
}
DAMAGE = ("none",) * 12 + (
    "bom",
    "crlf",
    "cr",
    "latin",
    "nul",
    "utf-16",
    "ragged",
    "twice",
    "blank lines",
    "one row",
    "header alone",
    "empty",
    "blank",
    "no end",
    "cut",
    "bytes",
)


def table(seed: int, index: int) -> tuple[bytes, list[str]]:
    """Return a file's content, and the words after `plait train csv FILE`."""
    draw = random.Random(f"table {seed}:{index}")
    names = [
        draw.choice(ALPHABET) if draw.random() < 0.05 else f"c{place}"
        for place in range(draw.randrange(1, 5))
    ]
    kinds = [
        draw.choice(list(CELLS)) if draw.random() < 0.12 else draw.choice(("integer", "number"))
        for _ in names
    ]
    several = draw.choice((1, 2, 5, 12))
    names, kinds = (
        ["s", *names, "t"],
        ["", *kinds, draw.choice(("integer", "number", "word", "word", *CELLS))],
    )
    rows = [
        [str(row // several), *(CELLS[kind](draw) for kind in kinds[1:])]
        for row in range(several * draw.choice((2, 4, 8, 20, 20)))
    ]
    damage, mark = draw.choice(DAMAGE), draw.choice(",,,;\t|")
    if damage == "twice":
        names[1] = names[-1]
    if damage == "ragged":
        draw.choice(rows).append("1")
    if damage in ("one row", "header alone"):
        rows = rows[: damage == "one row"]
    lines = [mark.join(map(_quoted, names)), *(mark.join(row) for row in rows)]
    if damage == "blank lines":
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(("", "  ", mark * 3)))
    text = {"crlf": "\r\n", "cr": "\r"}.get(damage, "\n").join(lines) + ("" if damage == "no end" else "\n")
    return _damaged(text, damage, draw), _options(names, draw)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',;|\t\n"') else name


def _damaged(text: str, damage: str, draw: random.Random) -> bytes:
    content = text.encode()
    if damage in ("empty", "blank"):
        return b"" if damage == "empty" else b" \n\n"
    if damage in ("utf-16", "latin"):
        return (text + "é").encode("utf-16" if damage == "utf-16" else "latin-1", "replace")
    if damage == "cut":
        return content[: draw.randrange(len(content) + 1)]
    if damage in ("nul", "bytes"):
        place = draw.randrange(len(content))
        return content[:place] + (b"\0" if damage == "nul" else draw.randbytes(3)) + content[place:]
    return (b"\xef\xbb\xbf" if damage == "bom" else b"") + content


def _options(names: list[str], draw: random.Random) -> list[str]:
    values = {
        "--sequence": [*names, "s", "s", "s", "s", "s", "s"],
        "--order": names,
        "--features": names,
        "--missing": [*["mean", "previous"] * 8, "refuse", "drop", ""],
        "--answer": ["class", "number", "guess", ""],
        "--asks": ["last", "every", "first"],
        "--length": ["1", "3", "100", "0", "-1"],
        "--horizon": ["1", "2", "5", "0", "-1", "100"],
        "--held-out": ["0.5", "0.01", "0.99", "0.5", "1", "nan"],
    }
    chosen = [("--target", draw.choice([*names, *["t"] * 20, "T"]))]
    likely = {"--sequence": 0.92, "--missing": 0.7}
    chosen += [
        (flag, draw.choice(some)) for flag, some in values.items() if draw.random() < likely.get(flag, 0.05)
    ]
    more = ["--no-header"] if draw.random() < 0.05 else []
    return [*(word for flag, value in chosen for word in (f"{flag}={value}",)), *more]


def faults(content: bytes, words: list[str], folder: Path) -> list[str]:
    """Return what is wrong with how `plait train csv` ends on a table; nothing, if nothing is."""
    from plait.lab.cli import main

    path = folder / "table.csv"
    path.write_bytes(content)
    out, error, began = io.StringIO(), io.StringIO(), time.process_time()
    small = ["--updates", "1", "--batch-size", "1", "--hidden", "4", "--device", "cpu", "--quiet"]
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        warnings.simplefilter("error")
        try:
            code = main(["train", "csv", str(path), *words, *small, "--out", str(folder / "runs")])
        except BaseException as raised:  # nothing may come through
            code = repr(raised)
    lines = error.getvalue().splitlines()
    found = []
    if code not in (0, 2):
        found.append(f"exit code {code}")
    if code == 2 and (len(lines) != 1 or not lines[0].startswith("plait: error: ")):
        found.append(f"exit code 2 and {len(lines)} lines of error")
    if "a bug in plait" in error.getvalue():
        found.append("a fault of ours")
    if code == 0 and not list((folder / "runs").glob("*/summary.json")):
        found.append("exit code 0 and no run")
    if time.process_time() - began > 20:
        found.append("longer than 20 s")
    return [f"{one}: {' '.join(lines)[-300:]}" for one in found]


def fuzz(seed: int, numbers: range) -> tuple[list[str], int]:
    """Return a line for every fault, and how many tables were trained on."""
    found, trained = [], 0
    for index in numbers:
        content, words = table(seed, index)
        with tempfile.TemporaryDirectory(prefix="plait-tables-") as folder:
            found += [
                f"table {index} of seed {seed} {words}: {one}" for one in faults(content, words, Path(folder))
            ]
            trained += bool(list(Path(folder).glob("runs/*/summary.json")))
    return found, trained


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=300, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of all tables")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--show", type=int, help="print the table of this number")
    given = parser.parse_args()
    if given.show is not None:
        content, words = table(given.seed, given.show)
        print(content, words)
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found, trained = fuzz(given.seed, range(given.first, given.first + given.tables))
    print(*found, f"{given.tables} tables, {trained} trained on, {len(found)} wrong", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
