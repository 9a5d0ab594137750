"""The scripts under examples/ run as they stand, at smoke size, and stay short enough to read."""

import os
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
    "probe_transformer": "reaches the first position",
    "plan_budget": "3e+09 parameters: 47 layers of width 2304",
    "own_cell": "reaches the first position",
    "generate_text": "bits per character",
}


def test_every_script_is_known():
    assert {script.stem for script in SCRIPTS} == set(SAYS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_at_most_sixty_lines(script):
    lines = script.read_text().splitlines()
    assert len(lines) <= 60
    assert lines[0].startswith('"""'), "it says what it shows"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_runs_at_smoke_size(script, tmp_path):
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
