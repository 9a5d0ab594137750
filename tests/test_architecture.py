"""The direction of imports, the sizes of files, and words that must not appear."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "plait"
FILES = sorted(SOURCE.rglob("*.py"))
# The library's packages, each of which may import those above it in its row, and modules that all may import.
LIBRARY = ["ops", "cells", "memory", "models", "gradients", "hf", "integrations"]
BASE = {"errors", "estimates", "files", "hugging_face", "provenance", "table", "_version"}
LAB = ["runs", "training", "caches", "experiments", "bench", "report", "doctor", "commands", "cli"]
LAB_BASE = {"annotations", "machine", "own_code", "result", "strict"}
# Beside the rows: these import modules of the bases alone.
BESIDE = {"depthwidth"}
LAB_BESIDE = {"tasks", "figures"}


def room_of(path: Path) -> str:
    """Return `ops` or `lab.runs`; a `__main__` is a script that nothing imports and may import anything."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if path.stem == "__main__":
        return "__main__"
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names += (
                [node.module]
                if node.module not in ("plait", "plait.lab")
                else [f"{node.module}.{alias.name}" for alias in node.names]
            )
    parts = [name.split(".")[1:] for name in names if name.startswith("plait.")]
    return {".".join(part[: 2 if part[0] == "lab" else 1]) for part in parts}


def allowed(room: str) -> set[str]:
    lab = {f"lab.{name}" for name in LAB_BASE}
    library = {*LIBRARY, *BESIDE, *BASE}
    if room == "__main__":
        return library | lab | {f"lab.{name}" for name in (*LAB, *LAB_BESIDE)}
    if not room.startswith("lab"):
        if room in LIBRARY:
            below = set(LIBRARY[: LIBRARY.index(room) + 1])
            return (
                below - ({"memory"} if room == "cells" else {"cells"} if room == "memory" else set()) | BASE
            )
        return BASE | {room}
    name = room.removeprefix("lab.")
    if name in LAB_BASE:
        return BASE | lab
    if name in LAB_BESIDE:
        return BASE | lab | {room}
    below = {f"lab.{other}" for other in (*LAB[: LAB.index(name) + 1], *LAB_BESIDE)}
    return library | lab | below - ({"gradients"} if name == "runs" else set())


def test_imports_point_downwards():
    """The library knows nothing of the lab, and a package imports only those below it."""
    files = [path for path in FILES if path.parent != SOURCE / "lab" or path.stem in LAB_BASE]
    upward = {path: imported_rooms(path) - allowed(room_of(path)) for path in files}
    assert not {str(path.relative_to(SOURCE)): sorted(rooms) for path, rooms in upward.items() if rooms}


def test_no_scan_imports_another():
    """What two scans share stands in `ops/scan`, which knows none of them."""
    rooms = sorted(path.name for path in (SOURCE / "ops").glob("*_scan"))
    assert rooms == ["attentive_scan", "full_scan", "plain_scan"]
    for room in ("scan", *rooms):
        strangers = [other for other in rooms if other != room]
        forbidden = re.compile(
            rf"^\s*(from|import) plait\.ops(\.| import .*)\b({'|'.join(strangers)})\b", re.M
        )
        for path in (SOURCE / "ops" / room).rglob("*.py"):
            found = forbidden.search(path.read_text())
            assert not found, f"{path.relative_to(SOURCE)}: {found}"


def test_no_file_grows_without_a_reason():
    """A bound far above the usual size, so that nobody packs lines to stay below it."""
    lines = {path: path.read_text().splitlines() for path in FILES}
    unexplained = [path for path, text in lines.items() if len(text) > 600]
    assert not [path for path in unexplained if "long because" not in lines[path][0].lower()]


def test_no_drawer_for_odds_and_ends():
    assert not [p for p in FILES if p.stem in ("utils", "misc", "helpers")]


def test_only_the_command_line_prints():
    for path in FILES:
        if room_of(path) == "lab.cli":
            continue
        names = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)]
        assert not [node for node in names if node.id == "print"], path  # also as an argument of `partial`


def test_no_command_writes_the_environment():
    """A value that travels by the environment is in no signature, and stays when the command has ended."""
    written = re.compile(r"os\.environ\[[^]]+\] = |os\.environ\.update|os\.putenv")
    files = [path for path in FILES if room_of(path) in ("lab.commands", "lab.bench", "lab.training")]
    assert not [path for path in files if written.search(path.read_text())]


def test_reports_train_nothing():
    """What trains is an experiment or a measurement; a report reads what they left."""
    trains = re.compile(r"\b(run_experiment|train_run|run_jobs|Session\()|import .*\bfit\b")
    assert not [path for path in (SOURCE / "lab" / "report").rglob("*.py") if trains.search(path.read_text())]


def untyped(node):
    """Return the parameters of a function that a task, a recipe or a description is passed in as `Any`."""
    names = {"spec", "task", "recipe", "kind", "job", "experiment", "of_task", "of_model", "of_recipe"}
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    hints = {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation}
    return [f"{node.name}({name})" for name in names & hints.keys() if hints[name].startswith("Any")]


def test_descriptions_of_runs_have_types():
    functions = (
        node
        for path in sorted(SOURCE.rglob("lab/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    # The data of `fit` may be a user's arrays, and `strict` reads any dataclass.
    assert {name for node in functions for name in untyped(node)} == {"fit(task)", "_dataclass(kind)"}


def test_a_share_is_written_in_one_place():
    """`plait.table.percent`: the same number of digits in every table, sentence and caption."""
    loose = re.compile(r":\.\d%")
    found = [str(path) for path in FILES if path.name != "table.py" and loose.search(path.read_text())]
    assert not found


def test_no_local_path_in_any_text():
    pattern = re.compile(r"/work/|\.\./shared|/root/")
    for path in [*FILES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not pattern.search(path.read_text()), path


ALONE = """
import importlib, os, sys
import numpy, torch
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            os._exit("plait" in str(error.name))  # a library that is not installed
        except BaseException as error:
            print(name, repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("not alone:", name, flush=True)
"""


def test_every_module_of_ops_can_be_the_first_that_is_imported():
    """Two that need each other work only in the order in which something else imports them."""
    names = [".".join(("plait", *path.relative_to(SOURCE).with_suffix("").parts)) for path in FILES]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    names = [name for name in names if name.startswith("plait.ops.")]
    assert len(names) > 60
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE, *names], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]


def drawing(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "docs" / "make_architecture.py", "--check", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_the_page_shows_the_files_that_run():
    """Two walks of seven; the slow test draws the whole page."""
    done = drawing("plait train copy", "RelLSTM on a CPU, forward and backward", "A scan on a Hopper GPU")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_every_walk_of_the_page_is_up_to_date():
    done = drawing()
    assert (done.returncode, done.stderr) == (0, "")


def test_walks_are_as_short_as_they_have_been():
    """Upper bounds on the number of files, to be lowered when a walk gets shorter."""
    walks = re.findall(r"<!-- walk: (.*?) -->\n(\d+) files", (ROOT / "docs" / "architecture.md").read_text())
    longest = {
        "plait train copy": 61,
        "plait train minigrid": 72,
        "plait reproduce table5": 60,
        "plait report": 30,
        "RelLSTM on a CPU, forward and backward": 30,
    }
    files = {title: int(count) for title, count in walks}
    assert {title: files[title] for title in longest if files[title] > longest[title]} == {}


def test_a_report_imports_nothing_of_depthwidth():
    code = "import sys, plait.lab.commands.report, plait.lab.report.write; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [name for name in loaded.split() if name.startswith("plait.") and "depthwidth" in name]
