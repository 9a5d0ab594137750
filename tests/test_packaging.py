"""A release holds everything, installs into environments that have no extra, and works there.

The environments are new and borrow torch and what else plait cannot do without; nothing is fetched.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import setuptools

from tests.test_release import dist

ROOT = Path(__file__).parent.parent
# file endings below src/plait that a wheel must hold
DATA = {".cpp", ".h", ".html", ".css", ".js", ".json", ".csv", ".md", ".pyi", ".txt", ".typed"}
# A layer as it comes, and which backend ran it.
LAYER = """
import plait, torch, warnings
from plait.ops.scan import record_backends
with record_backends() as ran, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    output, state = plait.RelLSTM(3, 8)(torch.randn(5, 2, 3))
    output.sum().backward()
print(ran[0], *(str(warning.message) for warning in said), sep="\\n")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder: what `make dist` makes, of the working tree, or what lies in PLAIT_DIST."""
    if made := os.environ.get("PLAIT_DIST"):
        return Path(made).resolve()
    pytest.importorskip("build", reason="needs build: pip install 'plait[dev]'")
    folder = tmp_path_factory.mktemp("release")
    copy = folder / "source"  # building writes beside the source
    everywhere = shutil.ignore_patterns("*.egg-info", "__pycache__")
    beside = {".git", ".venv", "build", "dist", "runs", "carry"}  # src/plait/lab/runs is a room

    def ignored(where, names):
        return everywhere(where, names) | (beside & set(names) if Path(where) == ROOT else set())

    shutil.copytree(ROOT, copy, ignore=ignored)
    dist.build(copy, folder / "dist", 1_600_000_000)
    return folder / "dist"


class Fresh:
    """A new environment with one file of the release and what that cannot do without."""

    def __init__(self, folder, core, file):
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.bin = folder / "bin"
        self.empty = folder / "empty"
        self.empty.mkdir()
        paths = {"base": str(folder), "platbase": str(folder)}
        packages = Path(sysconfig.get_path("purelib", "venv", paths))
        (packages / "core.pth").write_text(f"{core}\n")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            self.bin / "python",
            "install",
            "--quiet",
            "--no-index",
        ]
        # building a source distribution takes setuptools, which the environment need not have
        builder = {"PYTHONPATH": str(Path(setuptools.__file__).parents[1])} if ".tar" in file.name else {}
        run(*pip, "--no-deps", "--no-build-isolation", file, env={**self.environment(), **builder})

    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        return {**kept, "OMP_NUM_THREADS": "1", **more}

    def plait(self, *arguments, cwd, **environment):
        return run(self.bin / "plait", *arguments, cwd=cwd, env=self.environment(**environment))

    def layer(self, cwd, **environment):
        """The backend that ran a layer, and what was said meanwhile."""
        done = run(self.bin / "python", "-c", LAYER, cwd=cwd, env=self.environment(**environment))
        backend, *said = done.splitlines()
        return backend, "\n".join(said)

    def compiled_scan(self, cwd, **environment):
        """What the doctor says of it."""
        found = json.loads(self.plait("doctor", "--json", cwd=cwd, **environment))
        return next(check for check in found["checks"] if check["name"] == "C++ scan")

    def without_compiler(self, cache):
        """A path with nothing on it, and an empty cache."""
        return {"PATH": str(self.empty), "CXX": "", "TORCH_EXTENSIONS_DIR": str(cache)}


@pytest.fixture(scope="module")
def wheel(release):
    return next(release.glob("*-any.whl"))


@pytest.fixture(scope="module")
def fresh(wheel, without_extras, tmp_path_factory):
    return Fresh(tmp_path_factory.mktemp("fresh") / "venv", without_extras, wheel)


@pytest.fixture(scope="module")
def fresh_lab(wheel, with_lab, tmp_path_factory):
    return Fresh(tmp_path_factory.mktemp("fresh") / "venv", with_lab, wheel)


@pytest.fixture(scope="module")
def from_source(release, without_extras, tmp_path_factory):
    (source,) = release.glob("*.tar.gz")
    return Fresh(tmp_path_factory.mktemp("source") / "venv", without_extras, source)


@pytest.fixture(scope="module")
def from_linux(release, without_extras, tmp_path_factory):
    found = [*release.glob("*manylinux*.whl")]
    if not found:
        pytest.skip("a wheel with compiled scans is made on Linux with an x86-64 processor")
    return Fresh(tmp_path_factory.mktemp("linux") / "venv", without_extras, found[0])


def test_every_file_of_the_source_is_in_the_wheel(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = [p for p in (ROOT / "src" / "plait").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    wanted = {str(path.relative_to(ROOT / "src")) for path in source if path.suffix in {*DATA, ".py"}}
    assert wanted <= inside, sorted(wanted - inside)
    assert not [name for name in inside if name.startswith(("tests", "examples", "docs"))]
    unknown = {path.suffix for path in source} - {*DATA, ".py"}
    assert not unknown, f"a new kind of file: does the wheel hold {sorted(unknown)}?"


def test_first_commands(fresh, tmp_path):
    assert fresh.plait("--version", cwd=tmp_path).startswith("plait ")
    found = json.loads(fresh.plait("doctor", "--json", cwd=tmp_path))
    assert found["commit"] is None
    extras = {package["extra"]: package["installed"] for package in found["packages"]}
    assert extras.pop("") is not None
    assert extras["lab"] is None


def test_train_and_report(fresh_lab, tmp_path):
    assert "layers" in fresh_lab.plait("plan", "1.3B", cwd=tmp_path)
    fresh_lab.plait(
        *("train", "copy", "--model", "relrnn", "--delay", "5", "--hidden", "8", "--updates", "6"),
        *("--batch-size", "4", "--out", "runs"),
        cwd=tmp_path,
    )
    fresh_lab.plait("report", "runs", "-o", "report.html", cwd=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "uPlot" in page
    assert "<style" in page


def test_what_runs_is_the_wheel(fresh, tmp_path):
    where = run(fresh.bin / "python", "-c", "import plait; print(plait.__file__)", cwd=tmp_path, env={})
    assert str(fresh.bin.parent) in where


def test_the_source_distribution_is_the_repository(release):
    (source,) = release.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    listed = run("git", "ls-files", cwd=ROOT).splitlines()
    assert {name for name in listed if (ROOT / name).exists()} <= inside


def test_from_source(from_source, tmp_path):
    """The line of commands that tells whether an installation works, with a compiler on the path."""
    version = from_source.plait("--version", cwd=tmp_path)
    assert version.split()[1] == dist.found(r'__version__ = "(.+?)"', ROOT / "src/plait/_version.py")
    cache = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    check = from_source.compiled_scan(tmp_path, **cache)
    if not shutil.which("g++"):
        pytest.skip("no compiler here")
    assert check["status"] == "works"
    assert check["detail"].startswith("built here by ")
    assert from_source.layer(tmp_path, **cache) == ("cpu", "")


def test_from_source_without_a_compiler(from_source, tmp_path):
    nothing = from_source.without_compiler(tmp_path)
    check = from_source.compiled_scan(tmp_path, **nothing)
    assert (check["status"], "no C++ compiler was found" in check["detail"]) == ("absent", True)
    backend, said = from_source.layer(tmp_path, **nothing)
    assert backend == "torch"
    assert "plain torch runs instead, slower" in said


@pytest.mark.parametrize("capability", ["avx2", "avx512"])
def test_a_linux_wheel_is_fast_without_a_compiler(from_linux, tmp_path, capability):
    nothing = {**from_linux.without_compiler(tmp_path), "ATEN_CPU_CAPABILITY": capability}
    ask = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    here = run(from_linux.bin / "python", "-c", ask, env=from_linux.environment(**nothing)).strip()
    if here != capability.upper():
        pytest.skip(f"this processor has no {capability}")
    check = from_linux.compiled_scan(tmp_path, **nothing)
    assert check["status"] == "works"
    assert check["detail"].startswith(f"the wheel's for {here}; equals the reference")
    assert from_linux.layer(tmp_path, **nothing) == ("cpu", "")
    assert [*tmp_path.iterdir()] == []


def test_a_linux_wheel_on_a_processor_without_avx2_says_so(from_linux, tmp_path):
    nothing = {**from_linux.without_compiler(tmp_path), "ATEN_CPU_CAPABILITY": "default"}
    check = from_linux.compiled_scan(tmp_path, **nothing)
    assert check["status"] == "absent"
    assert "the wheel has no library for DEFAULT" in check["detail"]
    backend, said = from_linux.layer(tmp_path, **nothing)
    assert backend == "torch"
    assert "the wheel has no library for DEFAULT" in said


def test_a_damaged_library_of_a_wheel_is_not_loaded(from_linux, tmp_path):
    ask = "from plait.ops.scan import cpu_library; print(cpu_library.library()._name)"
    nothing = from_linux.without_compiler(tmp_path)
    library = Path(run(from_linux.bin / "python", "-c", ask, env=from_linux.environment(**nothing)).strip())
    whole = library.read_bytes()
    try:
        library.write_bytes(whole[: len(whole) // 3])
        backend, said = from_linux.layer(tmp_path, **nothing)
    finally:
        library.write_bytes(whole)
    assert backend == "torch"
    assert "is damaged, install plait again" in said
