"""`plait doctor` is right here, right where no extra is installed, and never fails by what is not there."""

import importlib
import importlib.metadata
import json
import re

import pytest

from plait.lab.cli import main
from plait.lab.commands.doctor import doctor
from plait.lab.doctor import checks, examine, installed
from plait.lab.result import CommandResult
from plait.lab.tasks import sources


def named(data, kind):
    return {entry["name"]: entry for entry in data[kind]}


def test_where_no_extra_is_installed(alone, without_extras, tmp_path):
    done = alone(without_extras, "plait", "doctor", "--json", PLAIT_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    found = named(data, "packages")
    here = {entry["name"] for entry in data["packages"] if entry["installed"] is not None}
    core = {entry["name"] for entry in data["packages"] if entry["extra"] == ""}
    assert core <= here <= {*core, "setuptools", "jinja2"}  # torch itself may require these two
    assert found["matplotlib"]["remedy"] == "pip install 'plait[lab]'"
    status = {name: check["status"] for name, check in named(data, "checks").items()}
    assert status["torch"] == "works"
    assert {status[name] for name in ("Ray", "Chromium", "MiniGrid", "EnvPool", "MNIST")} == {"absent"}
    assert all(check["remedy"] for check in data["checks"] if check["status"] != "works")


def test_where_nothing_at_all_is_installed(alone, tmp_path):
    done = alone(tmp_path, "plait", "doctor", "--json", PLAIT_CACHE=str(tmp_path))
    assert done.returncode == 2
    assert "torch: not installed, pip install 'torch>=2.11'" in done.stderr
    data = json.loads(done.stdout)
    assert {entry["installed"] for entry in data["packages"]} == {None}
    assert {check["status"] for check in data["checks"]} == {"absent"}
    assert all(check["remedy"] for check in data["checks"])
    assert named(data, "checks")["MNIST"]["remedy"] == checks.CHECKS["torch"][1]
    assert "No module named 'torch'" in alone(tmp_path, "plait", "doctor", PLAIT_CACHE=str(tmp_path)).stdout


def test_without_a_compiler_the_remedy_names_one(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (check,) = examine(["C++ scan"])
    assert check.status == "absent"
    assert "no-such-compiler" in check.detail
    assert "g++" in check.remedy


def test_what_is_installed_here_is_what_pip_says():
    for package in installed.packages():
        if package.installed:
            assert package.installed == importlib.metadata.version(package.name)
            assert package.problem is None


@pytest.mark.parametrize(("room", "memory"), [("attentive_scan", "bounded"), ("full_scan", "full")])
def test_the_compiled_scan_is_compared_not_only_found(room, memory, monkeypatch):
    (check,) = examine(["C++ scan"])
    if check.status != "works":
        pytest.skip(f"no compiled scan here: {check.detail}")
    cpu = importlib.import_module(f"plait.ops.{room}.cpu")
    right = cpu.forward
    monkeypatch.setattr(cpu, "forward", lambda *a: right(*a)._replace(output=right(*a).output + 1))
    (check,) = examine(["C++ scan"])
    assert check.status == "broken"
    assert f"with a {memory} memory" in check.detail
    assert "from the reference" in check.detail


def test_data_are_located_without_a_download(nowhere, monkeypatch):
    monkeypatch.setattr(sources, "_download", None)  # calling it would be an error
    (check,) = examine(["MNIST"])
    assert (check.status, "PLAIT_DATA" in check.remedy) == ("absent", True)
    folder = nowhere / "mnist"
    folder.mkdir(parents=True)
    (folder / sources.MNIST[0].name).write_bytes(b"not an image")
    (check,) = examine(["MNIST"])
    assert check.status == "broken"
    assert sources.MNIST[0].name in check.detail


@pytest.mark.data
def test_data_that_are_here_are_verified(mnist):
    (check,) = examine(["MNIST"])
    assert check.status == "works"
    assert str(mnist) in check.detail


@pytest.mark.parametrize("failure", [RuntimeError("two\nlines"), ImportError("half"), OSError()])
def test_a_check_that_fails_is_one_line(monkeypatch, failure):
    def fail():
        raise failure

    monkeypatch.setitem(checks.CHECKS, "Ray", (fail, "mend it"))
    (check,) = examine(["Ray"])
    assert (check.status, check.remedy) == ("broken", "mend it")
    assert check.detail
    assert "\n" not in check.detail


def test_a_core_package_that_is_too_old_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(installed, "version_of", lambda name: "0.1" if name == "numpy" else "99")
    monkeypatch.setattr("plait.lab.commands.doctor.examine", list)
    result: CommandResult = doctor()
    assert "numpy: 0.1 is older than 2.0" in result.error
    assert main(["doctor"]) == 2
    assert "pip install 'numpy>=2.0'" in capsys.readouterr().err


def test_metadata_are_read_without_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(installed, "__file__", str(tmp_path / "a" / "b" / "c" / "installed.py"))
    lines = [
        "torch>=2.11",
        'matplotlib>=3.10; extra == "report"',
        "triton; sys == 'x' and extra == 'kernels'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert installed.declared() == {
        "": ["torch>=2.11"],
        "report": ["matplotlib>=3.10"],
        "kernels": ["triton"],
    }


@pytest.mark.parametrize(
    ("have", "least", "fine"),
    [("2.13.0+cpu", "2.11", True), ("2.9", "2.11", False), ("2", "2.0", True), ("3.0rc1", "3.1", False)],
)
def test_versions_are_compared_by_number(have, least, fine):
    assert (installed.Package("", "x", least, have).problem is None) == fine


def test_every_extra_that_a_remedy_names_is_declared():
    named_extras = {
        extra for _, remedy in checks.CHECKS.values() for extra in re.findall(r"plait\[(\w+)\]", remedy)
    }
    assert {"ray", "kernels", "browser"} <= named_extras
    assert named_extras <= {*installed.declared(), "rl", "envpool"}


class _Hopper:
    """What torch says of a GPU, for a check that only asks."""

    def __init__(self, monkeypatch, capability=(9, 0)):
        torch = importlib.import_module("torch")
        for name, value in (
            ("is_available", True),
            ("device_count", 1),
            ("get_device_name", "NVIDIA H200"),
            ("get_device_capability", capability),
        ):
            monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
        monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.zeros(2))


def test_which_path_runs_on_a_gpu_and_why(monkeypatch):
    from plait.ops import cuda_program

    _Hopper(monkeypatch)
    monkeypatch.setattr(cuda_program, "missing", lambda *_: None)
    (check,) = examine(["CUDA"])
    assert check.detail.endswith("a bounded memory uses cluster, a full memory uses cluster")
    monkeypatch.setattr(cuda_program, "missing", lambda *_: "it needs a newer GPU")
    (check,) = examine(["CUDA"])
    assert check.detail.endswith("a full memory uses triton (cluster: it needs a newer GPU)")
    (check,) = examine(["Cluster kernels"])
    assert (check.status, check.detail) == ("absent", "it needs a newer GPU")
    assert "Triton runs" in check.remedy
