"""`plait train gym` and `plait train popgym`, as a person uses them."""

import importlib
import json
import sys

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("popgym")

from plait.lab.cli import main
from tests.lab.small_runs import POLICY

ECHO = "tests.lab.tasks.environments.echo:"


def run(family, *arguments):
    return main(["train", family, *arguments])


@pytest.mark.parametrize(
    ("family", "env", "other"),
    [
        ("popgym", "RepeatFirstEasy", "RepeatFirstHard"),
        ("gym", "CartPole-v1", None),
        ("gym", f"{ECHO}dict__box", f"{ECHO}dict__box__other"),
    ],
)
def test_trains_tests_lists_and_resumes(family, env, other, tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    arguments = ["--env", env, *(["--test-env", other] if other else [])]
    memory = ["--model", "rellstm", "--relevance", "learned", "--usage", "0.1", "--scale-rewards"]
    assert run(family, *arguments, *memory, *POLICY, *out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["steps"]) == ("complete", 120)
    assert list(answer["held_out"]) == [env, *([other] if other else [])]
    assert main(["runs", str(tmp_path)]) == 0
    assert "rellstm" in capsys.readouterr().out
    config = json.loads(next(tmp_path.glob("*/config.json")).read_text())
    assert config["model"]["relevance"] == "learned"
    assert config["recipe"]["scale_rewards"] is True
    for command in (["train", family], ["train"]):
        assert main([*command, "--resume", answer["folder"], "--quiet"]) == 0
        assert "complete: 120 steps" in capsys.readouterr().out
    assert main(["train", family, "--resume", answer["folder"], "--total-timesteps", "160", "--quiet"]) == 0
    assert "complete: 160 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("gym", ["--env", "CartPol-v1"], "unknown environment 'CartPol-v1': did you mean 'CartPole-v1'"),
        ("gym", ["--env", "MiniGrid-Empty-5x5-v0"], "missions are read by plait train minigrid"),
        ("gym", ["--env", f"{ECHO}text__discrete"], "no encoder for its observation 'note', a space of Text"),
        ("gym", ["--env", f"{ECHO}box__tuple"], "no policy for actions in a space of Tuple"),
        ("gym", ["--env", f"{ECHO}nothing"], "has no 'nothing'; expected PACKAGE.MODULE:NAME"),
        ("gym", ["--env", "CartPole-v1", "--time-limit", "0"], "time_limit: expected at least 1, got 0"),
        (
            "gym",
            ["--env", "CartPole-v1", "--encoder", "nowhere:Reader"],
            "encoder: there is no module 'nowhere'",
        ),
        (
            "gym",
            ["--env", "CartPole-v1", "--test-env", "Pendulum-v1"],
            "Pendulum-v1 does not match CartPole-v1",
        ),
        ("gym", [], "expected an environment (plait train gym --env CartPole-v1)"),
        ("gym", ["--resume", "x", "--env", "y"], "or a run to continue (--resume RUN)"),
        ("popgym", ["--env", "RepeatFirst"], "did you mean 'RepeatFirstHard' or 'RepeatFirstEasy'?"),
        ("popgym", ["--env", "RepeatFirstEasy", "--relevance", "gained"], "gained"),
        ("popgym", ["--resume", "x", "--usage", "0.1"], "--usage cannot be given with --resume"),
    ],
)
def test_bad_input_is_one_line(family, arguments, message, tmp_path, capsys):
    assert run(family, *arguments, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_environment_that_raises_is_named_and_the_run_resumes(tmp_path, capsys):
    assert run("gym", "--env", f"{ECHO}box__discrete__raise", *POLICY, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert "failed in step(" in error
    assert "RuntimeError: the bridge fell; the run is kept, continue: plait train --resume" in error
    assert error.count("\n") == 1
    assert len(list(tmp_path.glob("*/checkpoint.safetensors"))) == 1


def test_code_that_a_run_folder_names_is_not_run_unasked(tmp_path, capsys, monkeypatch, named_code):
    """A stranger's folder names a module beside it: neither resuming nor watching imports it."""
    from plait.lab import own_code

    (tmp_path / "strange.py").write_text(
        "import gymnasium\nimport pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
        "def make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = ["--out", str(tmp_path / "runs")]
    assert run("gym", "--env", "strange:make", *POLICY, *out, "--json") == 0
    folder = json.loads(capsys.readouterr().out)["folder"]
    (tmp_path / "ran").unlink()
    monkeypatch.setattr(own_code, "_TRUSTED", set())
    named_code.unlink()  # another user's machine
    for line in (
        ["train", "gym", "--resume", folder, "--total-timesteps", "160", "--quiet"],
        ["watch", folder],
    ):
        monkeypatch.delitem(sys.modules, "strange", raising=False)
        assert main(line) == 2
        said = capsys.readouterr().err
        assert "strange:make is code that a run folder names, and is not run unasked" in said
        assert "PLAIT_ALLOW=strange" in said
        assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("PLAIT_ALLOW", "other,strange")
    assert main(["train", "gym", "--resume", folder, "--total-timesteps", "160", "--quiet"]) == 0
    assert "complete: 160 steps" in capsys.readouterr().out


def test_code_that_its_user_named_before_is_run_again_from_the_same_file_alone(tmp_path, capsys, monkeypatch):
    from plait.lab import own_code

    def in_a_new_process(*line):
        monkeypatch.setattr(own_code, "_TRUSTED", set())
        sys.modules.pop("mine_before", None)
        importlib.invalidate_caches()
        return main(list(line))

    source = "import gymnasium\n\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine_before.py").write_text(source)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path / "mine"))
        assert (
            run("gym", "--env", "mine_before:make", *POLICY, "--out", str(tmp_path / "runs"), "--json") == 0
        )
        folder = json.loads(capsys.readouterr().out)["folder"]
        assert in_a_new_process("watch", folder) == 0
        assert "mine_before:make" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(tmp_path / "theirs"))
    assert in_a_new_process("watch", folder) == 2
    assert "is not run unasked" in capsys.readouterr().err


@pytest.mark.parametrize(("family", "module"), [("gym", "gymnasium"), ("popgym", "popgym")])
def test_what_is_missing_names_its_extra(family, module, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    env = "CartPole-v1" if family == "gym" else "RepeatFirstEasy"
    assert run(family, "--env", env, "--out", str(tmp_path)) == 2
    assert f"{module} is needed here and not installed: pip install 'plait[rl]'" in capsys.readouterr().err
