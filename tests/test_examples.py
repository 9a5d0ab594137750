"""The scripts under examples/ run as they stand, at smoke size, and stay short enough to read."""

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
    "ppo_single_file": "gymnasium", "sb3_extractor": "stable_baselines3", "recurrent_ppo": "sb3_contrib",
    "torchrl_memory": "torchrl", "cleanrl_layout": "gymnasium",
}  # fmt: skip
# a whole algorithm in one file
LONGER = {"cleanrl_layout": 100, "ppo_single_file": 100}


def test_every_script_is_known():
    assert {script.stem for script in SCRIPTS} == set(SAYS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_short_enough_to_read(script):
    lines = script.read_text().splitlines()
    assert len(lines) <= LONGER.get(script.stem, 60)
    assert lines[0].startswith('"""'), "it says what it shows"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_runs_at_smoke_size(script, tmp_path):
    needed = NEEDS.get(script.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-W", "error", str(script), "--smoke"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[script.stem] in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.slow
def test_the_readmes_headline_is_what_the_example_prints(tmp_path):
    """The separation, not its digits: another torch may round otherwise."""
    command = [sys.executable, str(ROOT / "examples" / "drop_in.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment)
    line = re.compile(r"(\w+) +names the first symbol of 200 steps: ([0-9.]+)%")
    for text in (said.stdout, (ROOT / "README.md").read_text()):
        found = {name: float(share) for name, share in line.findall(text)}
        assert list(found) == ["LSTM", "RelLSTM"]
        assert found["LSTM"] < 20
        assert found["RelLSTM"] > 99
