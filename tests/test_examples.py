"""The scripts under examples/ run as they stand, at smoke size, and stay short enough to read."""

import datetime
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
# what a reader sees if it worked
SAYS = {
    "drop_in": "RelLSTM",
    "keep_what_matters": "25 states it chooses",
    "bounded_cache": "64 slots: 1,627 tokens read, 64 KiB of keys and values",
    "streaming": "numbers throughout",
    "probe_transformer": "reaches: felt at 24 of 24 positions",
    "plan_budget": "3e+09 parameters: 48 layers of width 2304",
    "own_cell": "felt at 24 of 30 positions",
    "generate_text": "bits per character",
    "cleanrl_layout": "steps an episode",
    "ppo_single_file": "steps an episode",
    "recurrent_ppo": "steps an episode",
    "sb3_extractor": "steps an episode",
    "torchrl_memory": "steps an episode",
}
# what a script needs beyond the package itself
NEEDS = {
    "bounded_cache": "transformers",
    "ppo_single_file": "gymnasium",
    "sb3_extractor": "stable_baselines3",
    "recurrent_ppo": "sb3_contrib",
    "torchrl_memory": "torchrl",
    "cleanrl_layout": "gymnasium",
}
# a whole algorithm in one file
LONGER = {"cleanrl_layout": 100, "ppo_single_file": 100}


def test_every_script_is_known():
    assert {script.stem for script in SCRIPTS} == set(SAYS)


def test_every_script_is_short_and_begins_with_a_docstring():
    lines = {script.stem: script.read_text().splitlines() for script in SCRIPTS}
    assert not [name for name, text in lines.items() if len(text) > LONGER.get(name, 70)]
    assert not [name for name, text in lines.items() if not text[0].startswith('"""')]


# Libraries are imported once; each script then runs in a process of its own, forked from there.
RUN_ALL = """
import os, runpy, sys
import torch._dynamo, plait.models, plait.lab.training
for script in sys.argv[1:]:
    name = os.path.splitext(os.path.basename(script))[0]
    os.mkdir(name)
    child = os.fork()
    if child == 0:
        os.chdir(name)
        for number, stream in ((1, "out"), (2, "error")):
            os.dup2(os.open(f"../{name}.{stream}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv, sys.path[0] = [script, "--smoke"], os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def needed_for(script):
    """The library it needs and that is not here."""
    needed = NEEDS.get(script.stem)
    return needed if needed and importlib.util.find_spec(needed) is None else None


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """How every script that can run here ended, by its name, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("smoke")
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    scripts = [str(script) for script in SCRIPTS if not needed_for(script)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_ALL, *scripts],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return {name: int(code) for name, code in map(str.split, done.stdout.splitlines())}, folder


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_runs_at_smoke_size(script, smoke):
    if needed := needed_for(script):
        pytest.skip(f"needs {needed}")
    codes, folder = smoke
    assert codes[script.stem] == 0, (folder / f"{script.stem}.error").read_text()
    assert SAYS[script.stem] in (folder / f"{script.stem}.out").read_text()
    assert not list((folder / script.stem).iterdir()), "an example leaves nothing behind"


def test_the_readme_shows_what_its_example_prints(smoke):
    """But for the accuracies, which a smoke run does not have."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    name, shown = re.search(r"```text\n\$ python examples/(\w+)\.py\n(.*?)```", text, re.DOTALL).groups()
    printed = (smoke[1] / f"{name}.out").read_text()
    assert re.sub(r"[0-9.]+%", "%", shown) == re.sub(r"[0-9.]+%", "%", printed)


def run_example(name, *options):
    """Return what an example prints on one thread."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def headline(*options):
    """Return the accuracies that the example of the headline prints for the seed of the day."""
    seed = str(datetime.date.today().toordinal() % 100_000)
    text = run_example("keep_what_matters", "--seed", seed, *options)
    pattern = r"that reads (the latest 25 states|25 states it chooses), 400 updates: ([0-9.]+)%"
    shares = {name: float(share) for name, share in re.findall(pattern, text)}
    return shares["the latest 25 states"], shares["25 states it chooses"]


@pytest.mark.timeout(900)
def test_the_headline_holds():
    """At half its length, which two layers with a window of 25 cannot bridge either."""
    window, learned = headline("--lead-in", "5", "--delay", "50")
    assert window < 30
    assert learned > 95


@pytest.mark.slow
@pytest.mark.parametrize("lead_in", ["0", "60"])
def test_the_headline_holds_at_its_full_length(lead_in):
    window, learned = headline("--lead-in", lead_in)
    assert window < 20
    assert learned > 97
