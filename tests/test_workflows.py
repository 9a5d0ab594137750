"""Files of the public host: they parse, run what exists, try every Python that is promised, tell nothing."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
HOST = ROOT / ".github"
WORKFLOWS = sorted((HOST / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# public places only: the host's own actions, torch's builds, the image wheels are made in
PLACES = {"download.pytorch.org"}


def read(path):
    return yaml.safe_load(path.read_text())


def steps(path):
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def commands(path):
    return [line.strip() for step in steps(path) for line in step.get("run", "").splitlines() if line.strip()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_exists(path):
    found = commands(path)
    assert found
    for line in found:
        program, *words = line.split()
        assert program in ("make", "git"), line
        if program == "make":
            assert words[0] in TARGETS, f"{path.name}: make {words[0]}"


def test_what_the_gate_runs_is_run_there_too():
    lines = re.findall(r"^make (?:-j 2 -O )?(.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    ours = {f"make {target}" for line in lines for target in line.split()}
    assert ours == {"make lint", "make docs", "make test"}
    assert {*ours, "make wheel", "make test-wheel", "make bench-check"} <= set(
        commands(HOST / "workflows" / "ci.yml")
    )
    assert "make dist" in commands(HOST / "workflows" / "release.yml")


def test_every_python_that_is_promised_is_tried():
    tried = read(HOST / "workflows" / "ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    named = [name.removeprefix("Programming Language :: Python :: ") for name in PROJECT["classifiers"]]
    assert tried == [name for name in named if re.fullmatch(r"3\.\d+", name)]
    assert {"3.11", "3.12", "3.13", "3.14"} <= set(tried)
    assert PROJECT["requires-python"] == f">={tried[0]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_trusts_no_text(path):
    """An expression inside a command would run what a branch or a title is named."""
    assert read(path)["permissions"] == {"contents": "read"}
    assert not [line for line in commands(path) if "${{" in line]
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
    assert all(job["timeout-minutes"] <= 45 for job in read(path)["jobs"].values())


def test_nothing_private_is_named():
    hosts = {
        path.name: set(re.findall(r"https?://([\w.-]+)", path.read_text())) - PLACES
        for path in HOST.rglob("*.*")
    }
    assert not {name: others for name, others in hosts.items() if others}


def form_is_valid(form):
    """Check an issue form for the keys that the host requires, and for fields with a label and an id each."""
    fields = [part for part in form.get("body", []) if part["type"] != "markdown"]
    return (
        {"name", "description", "body"} <= set(form)
        and len({field["id"] for field in fields}) == len(fields)
        and all(field["attributes"]["label"] for field in fields)
    )


def test_templates_have_what_the_host_asks_for():
    forms = {path.name: read(path) for path in (HOST / "ISSUE_TEMPLATE").glob("*.yml")}
    assert forms.pop("config.yml") == {"blank_issues_enabled": True}
    assert forms
    assert not [name for name, form in forms.items() if not form_is_valid(form)]


def test_targets_that_a_pull_request_names_exist():
    named = re.findall(r"`make ([\w-]+)`", (HOST / "pull_request_template.md").read_text())
    assert named
    assert set(named) <= TARGETS
