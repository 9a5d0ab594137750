"""The wheel holds everything, installs into an environment that has no extra, and works there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# file endings below src/plait that a wheel must hold
DATA = {".cpp", ".h", ".html", ".css", ".js", ".json", ".csv", ".md", ".txt", ".typed"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built by `python -m build` from the source distribution, as a release would be."""
    pytest.importorskip("build", reason="needs build: pip install 'plait[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"  # building writes beside the source
    everywhere = shutil.ignore_patterns("*.egg-info", "__pycache__")
    beside = {".git", ".venv", "build", "dist", "results", "runs", "carry"}  # src/plait/runs is a room

    def ignored(where, names):
        return everywhere(where, names) | (beside & set(names) if Path(where) == ROOT else set())

    shutil.copytree(ROOT, copy, ignore=ignored)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh(wheel, without_extras, tmp_path_factory):
    """`plait` of a new environment with the wheel and what it cannot do without; nothing is fetched."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    (packages / "core.pth").write_text(f"{without_extras}\n")
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}

    def plait(*arguments, cwd):
        return run(folder / "bin" / "plait", *arguments, cwd=cwd, env={**kept, "OMP_NUM_THREADS": "1"})

    plait.python = folder / "bin" / "python"
    return plait


def test_every_file_of_the_source_is_in_the_wheel(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = [p for p in (ROOT / "src" / "plait").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    wanted = {str(path.relative_to(ROOT / "src")) for path in source if path.suffix in {*DATA, ".py"}}
    assert wanted <= inside, sorted(wanted - inside)
    assert not [name for name in inside if name.startswith(("tests", "examples", "docs"))]
    unknown = {path.suffix for path in source} - {*DATA, ".py"}
    assert not unknown, f"a new kind of file: does the wheel hold {sorted(unknown)}?"


def test_first_commands(fresh, tmp_path):
    assert fresh("--version", cwd=tmp_path).startswith("plait ")
    assert "layers" in fresh("plan", "1.3B", cwd=tmp_path)
    found = json.loads(fresh("doctor", "--json", cwd=tmp_path))
    assert found["commit"] is None
    extras = {package["extra"]: package["installed"] for package in found["packages"]}
    assert extras.pop("") is not None
    assert extras["report"] is None


def test_train_and_report(fresh, tmp_path):
    fresh(
        *("train", "copy", "--model", "relrnn", "--delay", "5", "--hidden", "8", "--updates", "6"),
        *("--batch-size", "4", "--out", "runs"),
        cwd=tmp_path,
    )
    fresh("report", "runs", "-o", "report.html", cwd=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "uPlot" in page
    assert "<style" in page


def test_what_runs_is_the_wheel(fresh, tmp_path):
    where = run(fresh.python, "-c", "import plait; print(plait.__file__)", cwd=tmp_path, env={})
    assert str(fresh.python.parents[1]) in where
