"""`plait train minigrid` on the command line."""

import json
import sys
from pathlib import Path

import pytest

from plait.lab.cli import main
from plait.lab.training.callbacks import Bar, Lines, display
from plait.lab.training.ppo.learner import PolicyProgressFormat
from plait.lab.training.recipe import PPOConfig
from tests.lab.small_runs import POLICY


def run(*arguments):
    return main(["train", "minigrid", *arguments])


def test_trains_tests_lists_and_resumes(tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    arguments = ["--env", "GoToDoor-5x5", "--test-env", "GoToDoor-6x6", "--model", "relgru"]
    arguments += ["--relevance", "learned", "--mix", "0.75"]
    assert run(*arguments, *POLICY, *out, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["steps"]) == ("complete", 120)
    assert set(result["held_out"]) == {"GoToDoor-5x5", "GoToDoor-6x6"}
    assert json.loads(Path(result["folder"], "config.json").read_text())["model"] == {
        "name": "relgru",
        "hidden_size": 8,
        "window": 5,
        "capacity": 5,
        "relevance": "learned",
        "noise": 0.0,
        "mix": 0.75,
    }
    assert main(["runs", str(tmp_path)]) == 0
    assert "relgru" in capsys.readouterr().out
    assert main(["runs", "show", "minigrid", *out]) == 0
    assert "3 of 3 updates" in capsys.readouterr().out
    for command in (["train", "minigrid"], ["train"]):
        assert main([*command, "--resume", result["folder"], "--quiet"]) == 0
        assert "complete: 120 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "DorKey-5x5"], "unknown environment 'DorKey-5x5': did you mean 'DoorKey-5x5'"),
        (["--env", "DoorKey-5x5", "--test-env", "MemoryS7"], "MemoryS7 does not match DoorKey-5x5"),
        (["--env", "DoorKey-5x5", "--n-envs", "0"], "n_envs: expected at least 1, got 0"),
        (
            ["--env", "DoorKey-5x5", "--total-timesteps", "0.5"],
            "total_timesteps: expected a whole number, got 0.5",
        ),
        (["--env", "DoorKey-5x5", "--n-envs", "2"], "n_minibatches: expected at most n_envs = 2, got 8"),
        (["--env", "DoorKey-5x5", "--model", "relstm"], "unknown model 'relstm': did you mean 'rellstm'"),
        (["--env", "DoorKey-5x5", "--model", "lstm", "--window", "3"], "unknown option of lstm 'window'"),
        (["--env", "DoorKey-5x5", "--model", "none", "--layers", "2"], "unknown option of none 'num_layers'"),
        (["--env", "DoorKey-5x5", "--hidden", "0"], "hidden_size: expected at least 1, got 0"),
        (["--env", "DoorKey-5x5", "--relevance", "best"], "unknown relevance 'best'"),
        (["--env", "DoorKey-5x5", "--usage", "1"], "usage: expected none where relevance is earned"),
        (["--env", "DoorKey-5x5", "--model", "gru", "--relevance", "learned"], "option of gru 'relevance'"),
        (["--env", "DoorKey-5x5", "--backend", "gym"], "unknown backend 'gym'"),
        (["--env", "DoorKey-5x5", "--lr", "0"], "lr: expected a finite number above 0, got 0.0"),
        ([], "expected an environment (plait train minigrid --env DoorKey-5x5)"),
        (["--env", "DoorKey-5x5", "--resume", "x"], "or a run to continue (--resume RUN)"),
        (["--resume", "x", "--lr", "0.1"], "--lr cannot be given with --resume"),
        (["--resume", "nothing"], "no run 'nothing'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path, capsys):
    assert run(*arguments, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("backend", "module"), [("envpool", "envpool"), ("minigrid", "gymnasium")])
def test_a_missing_backend_names_its_extra(backend, module, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    assert run("--env", "DoorKey-5x5", "--backend", backend, "--out", str(tmp_path)) == 2
    extra = "envpool" if backend == "envpool" else "rl"
    assert f"pip install 'plait[{extra}]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_progress_shows_steps_return_success_and_time_left(small_fit, capsys):
    lines = Lines(sys.stderr, seconds=0, formatter=PolicyProgressFormat())
    small_fit(callbacks=[lines], test_env="GoToDoor-6x6")
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "training: 240 steps"
    assert "40/240 steps" in shown[1]
    assert "/s  0:00:" in shown[1]
    assert "return 0." in shown[1]
    assert "success" in shown[1]
    assert any("; GoToDoor-6x6 return" in line for line in shown)
    assert shown[-1].startswith("complete (240 steps made) after 240 steps")


def test_the_progress_bar_is_drawn(small_fit):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    small_fit(callbacks=[Bar(console, PolicyProgressFormat())])
    assert "240/240 steps" in console.file.getvalue()
    assert isinstance(display(True, io.StringIO(), PolicyProgressFormat())[0].formatter, PolicyProgressFormat)


def test_one_and_one_point_zero_are_equal_hyperparameters():
    config = PPOConfig(total_timesteps=1e6, lr=1)
    assert config.values() == PPOConfig(total_timesteps=1_000_000, lr=1.0).values()
    assert isinstance(config.total_timesteps, int)
