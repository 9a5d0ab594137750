"""Without the lab's extra a command says how to install it; help, the version and the doctor work."""

import re
import tomllib
from pathlib import Path

import pytest

from plait.lab import cli

ROOT = Path(__file__).parents[3]
INSTALL = "needed by plait {} and not installed; pip install 'plait[lab]'\n"


def test_the_packages_that_are_looked_for_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    assert list(cli.PACKAGES) == [re.split(r"[^\w-]", requirement)[0] for requirement in requirements]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "copy", "--updates", "3"],
        ["train", "copy", "--help"],
        ["train", "copy", "--updates", "many"],
        ["runs"],
        ["plan", "1.3B"],
        ["bench", "layers", "--json"],
    ],
)
def test_a_command_says_in_one_line_what_to_install(words, alone, without_extras, tmp_path):
    done = alone(without_extras, "plait", *words, cwd=tmp_path)
    name = {"plan": "plan shape", "bench": "bench layers"}.get(words[0], words[0])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("plait: error: tyro, rich, safetensors")
    assert done.stderr.endswith(INSTALL.format(name))
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_torch_a_command_says_the_same(alone, tmp_path):
    done = alone(tmp_path, "plait", "train", "copy", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"plait: error: {', '.join(cli.PACKAGES)}: {INSTALL.format('train')}"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "usage: plait COMMAND [OPTIONS]"),
        (["--help"], "usage: plait COMMAND [OPTIONS]"),
        (["bench", "--help"], "usage: plait bench COMMAND [OPTIONS]"),
        (["--version"], "plait "),
        (["doctor", "--help"], "usage: plait doctor [OPTIONS]"),
    ],
)
def test_what_needs_no_extra(words, text, alone, tmp_path):
    done = alone(tmp_path, "plait", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert text in done.stdout


def test_a_wrong_argument_of_the_doctor_is_one_line(alone, tmp_path):
    done = alone(tmp_path, "plait", "doctor", "--colour", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "plait: error: unexpected argument: --colour (plait doctor --help)\n"
