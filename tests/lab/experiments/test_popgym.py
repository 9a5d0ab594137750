"""POPGym as data: every family and level, by names that the library has, scored by MMER."""

import json

import pytest

from plait.lab.cli import main
from plait.lab.experiments.catalogue import experiments
from plait.lab.experiments.popgym import FAMILIES
from plait.lab.tasks.environments.popgym import FAMILIES as NAMES, LEVELS
from plait.lab.training.ppo.returns import BestMean
from plait.lab.training.ppo.rollout import Episode


def test_every_family_at_every_level_as_published():
    full = experiments()["popgym"]
    assert sorted(FAMILIES) == sorted(NAMES)
    assert {run.row for run in full.runs} == {family + level for family in NAMES for level in LEVELS}
    assert len(full.runs) == 14 * 3 * 8
    for run in full.runs:
        recipe = run.recipe
        assert recipe["n_envs"] * recipe["n_steps"] == 65_536  # transitions of a batch
        assert recipe["n_steps"] == 1024
        assert 65_536 // recipe["n_minibatches"] == 8192
        assert (recipe["gamma"], recipe["total_timesteps"], run.model["hidden_size"]) == (
            0.99,
            15_000_000,
            256,
        )
        assert run.published is None  # none could be read
    few = experiments()["popgym-easy"]
    assert len(few.runs) == 5 * 8 + 2 * 3


def test_a_page_shows_the_best_mean_of_training(tmp_path, capsys):
    pytest.importorskip("popgym")
    pytest.importorskip("matplotlib")
    out = tmp_path / "runs"
    flags = ["--smoke", "--models", "gru", "--rows", "repeatfirst", "--device", "cpu", "--together", "1"]
    assert main(["reproduce", "popgym-easy", *flags, "--out", str(out), "--json"]) == 0
    cell = json.loads(capsys.readouterr().out)["cells"][0]
    run = next(path for path in out.iterdir() if path.is_dir() and (path / "metrics.jsonl").exists())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    episodes = [(line["episodes"], line["return"]) for line in lines if line.get("return") is not None]
    mean = sum(count * value for count, value in episodes) / sum(count for count, _ in episodes)
    assert float(cell["ours"]) == pytest.approx(mean, abs=1e-3)
    last = [line for line in lines if "held_out" in line][-1]["held_out"]["RepeatFirstEasy"]
    assert last["mmer"] == pytest.approx(mean)
    assert last["score"] != pytest.approx(mean, abs=1e-3)
    assert "best mean reward of training (MMER)" in (out / "report.html").read_text()


def test_the_best_stretch_counts_and_the_open_one_does_not():
    best = BestMean()
    assert best.value is None
    best.add([Episode(0.2, 5)], 4096)
    assert best.value == pytest.approx(0.2)  # so far
    for _ in range(15):
        best.add([Episode(0.6, 5), Episode(0.4, 5)], 4096)
    first = best.value
    assert first == pytest.approx((0.2 + 15) / 31)
    best.add([Episode(9.0, 5)], 4096)
    assert best.value == first
    for _ in range(15):
        best.add([], 4096)
    assert best.value == pytest.approx(9.0)
    for _ in range(32):
        best.add([Episode(-1.0, 5)], 4096)
    assert best.value == pytest.approx(9.0)
