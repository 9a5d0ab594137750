"""`plait watch`: a trained policy's episode as text and as a film."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("minigrid")
pytest.importorskip("PIL")

from PIL import Image

from plait.errors import ConfigError
from plait.lab.cli import main
from plait.lab.tasks.minigrid.farama import FaramaVectorEnv
from plait.lab.training.ppo.episode import play_episode
from plait.lab.training.ppo.fit import fit_policy
from plait.lab.training.ppo.policy import build_policy, describe_policy
from plait.lab.training.recipe import PPOConfig


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    ppo = PPOConfig(total_timesteps=40, n_envs=4, n_steps=10, n_minibatches=2, n_epochs=1, evaluate_on=2)
    fit_policy(describe_policy("GoToDoor-5x5", "rellstm", ppo, hidden_size=8), folder=folder)
    return str(folder)


def test_as_text(trained, capsys):
    assert main(["watch", trained, "--seed", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("step 0: ")
    assert "go to the" in shown
    assert "memory (step:weight)  0:" in shown
    assert "the end, return" in shown
    assert main(["watch", trained, "--seed", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["actions"]) == answer["steps"]


def test_as_a_film(trained, tmp_path, capsys):
    path = tmp_path / "episode.gif"
    assert main(["watch", trained, "--env", "GoToDoor-8x8", "-o", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with Image.open(path) as film:
        assert film.n_frames == answer["steps"] + 1
        assert film.size[0] > film.size[1]  # the memory is to the right of the environment


def test_as_a_film_for_every_player(trained, tmp_path, capsys):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs imageio-ffmpeg: pip install 'plait[film]'")
    path = tmp_path / "episode.MP4"
    assert main(["watch", trained, "--per-second", "8", "-o", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    command = [ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    about = read.stderr.decode()
    assert "Video: h264" in about
    assert "yuv420p" in about
    assert "8 fps" in about
    width, height = map(int, re.search(r", (\d+)x(\d+)", about).groups())
    frames = np.frombuffer(read.stdout, np.uint8).reshape(-1, height, width, 3)
    assert len(frames) == answer["steps"] + 2 * 8  # the last step stays for two seconds
    assert main(["watch", trained, "-o", str(tmp_path / "episode.gif")]) == 0
    with Image.open(tmp_path / "episode.gif") as film:
        like = np.asarray(film.convert("RGB"), dtype=float)
    assert np.abs(like[:height, :width] - frames[0]).mean() < 4


def test_a_missing_mp4_encoder_is_reported_before_the_episode(trained, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["watch", trained, "-o", "episode.mp4"]) == 2
    assert "pip install 'plait[film]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "MemoryS7"], "MemoryS7 does not match GoToDoor-5x5"),
        (["--env", "GoToDor-5x5"], "did you mean 'GoToDoor-5x5'"),
        (["-o", "episode.avi"], "expected a file that ends in .gif or .mp4, got episode.avi"),
        (["-o", "episode"], "expected a file that ends in .gif or .mp4, got episode"),
        (["--layer", "2"], "layer: expected 1 to 1, got 2"),
    ],
)
def test_bad_input_is_one_line(trained, arguments, message, capsys):
    assert main(["watch", trained, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_a_policy_is_refused(tmp_path, capsys):
    small = ["--updates", "1", "--hidden", "4", "--delay", "1", "--evaluate-on", "2", "--quiet"]
    assert main(["train", "copy", *small, "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert main(["watch", "copy", "--out", str(tmp_path)]) == 2
    assert "holds no policy" in capsys.readouterr().err


def test_the_episode_is_one_that_training_never_had():
    policy = build_policy(describe_policy("DoorKey-8x8", "none", hidden_size=8))
    episode = play_episode(policy, "DoorKey-8x8", seed=4)
    env = FaramaVectorEnv("DoorKey-8x8", 1, seed=4, held_out=True)
    env.reset()
    assert episode[0].text == env.text()
    env = FaramaVectorEnv("DoorKey-8x8", 1, seed=4)
    env.reset()
    assert episode[0].text != env.text()


def test_an_episode_shows_the_states_in_memory():
    """Window 5 and capacity 5: the latest five states are kept, and the weights sum to one."""
    policy = build_policy(describe_policy("Empty-5x5", "rellstm", hidden_size=8))
    episode = play_episode(policy, "Empty-5x5", seed=2)
    assert len(episode) > 12
    for step in episode:
        states = [slot.step for slot in step.slots]
        assert set(range(max(0, step.step - 4), step.step + 1)) <= set(states)
        assert len(states) == min(step.step + 1, 10)
        assert sum(slot.weight for slot in step.slots) == pytest.approx(1, abs=1e-5)
    assert [step.action == "" for step in episode].index(True) == len(episode) - 1
    plain = play_episode(build_policy(describe_policy("Empty-5x5", "none", hidden_size=8)), "Empty-5x5")
    assert not any(step.slots for step in plain)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A policy with continuous actions and dict observations, in an environment that renders itself."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    ppo = PPOConfig(total_timesteps=40, n_envs=4, n_steps=10, n_minibatches=2, n_epochs=1, evaluate_on=2)
    env = "tests.lab.tasks.environments.echo:dict__box"
    fit_policy(describe_policy(env, "rellstm", ppo, family="gym", hidden_size=8), folder=folder)
    return str(folder)


def test_an_environment_that_renders_itself_is_filmed(elsewhere, tmp_path, capsys):
    path = tmp_path / "episode.gif"
    assert main(["watch", elsewhere, "-o", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with Image.open(path) as film:
        assert film.n_frames == answer["steps"] + 1
        film.seek(1)
        shown = np.asarray(film.convert("RGB"), dtype=int)
    assert (abs(shown - 20).max(-1) < 4).sum() > 10_000  # its own rendering of step 1


def test_any_environment_is_shown_as_text(elsewhere, capsys):
    assert main(["watch", elsewhere]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"step 0: -?\d\S* \S+, return 0\.00; tests\.lab\.tasks\.environments\.echo:dict__box\ncard [0-3]\n",
        shown,
    )
    assert "place.1 " in shown
    assert "memory (step:weight)  0:" in shown


def test_an_environment_without_pictures_is_refused_for_a_film(tmp_path, capsys):
    pytest.importorskip("popgym")
    for env, reason in (
        ("RepeatFirstEasy", ""),
        ("NoisyPositionOnlyCartPoleEasy", "unexpected keyword argument"),
    ):
        ppo = PPOConfig(total_timesteps=40, n_envs=4, n_steps=10, n_minibatches=2, n_epochs=1, evaluate_on=2)
        described = describe_policy(env, "gru", ppo, family="popgym", hidden_size=8)
        fit_policy(described, folder=tmp_path / env)
        assert main(["watch", str(tmp_path / env), "-o", str(tmp_path / "a.gif")]) == 2
        said = capsys.readouterr().err
        assert f"{env} does not render pictures; watch it as text, without --output" in said
        assert reason in said
        assert said.count("\n") == 1
        assert main(["watch", str(tmp_path / env)]) == 0
        shown = capsys.readouterr().out
        assert "the end, return" in shown
        assert re.search(r"^observation \S.*\n.*previous action \S+\n.*first step 1$", shown, re.MULTILINE)
    assert main(["watch", str(tmp_path / env), "--env", "RepeatFirstEasy"]) == 2
    assert (
        "RepeatFirstEasy does not match NoisyPositionOnlyCartPoleEasy: expected observations"
        in capsys.readouterr().err
    )


def test_a_policy_without_memory_accepts_any_layer():
    plain = build_policy(describe_policy("Empty-5x5", "none", hidden_size=8))
    assert not any(step.slots for step in play_episode(plain, "Empty-5x5", layer=7))
    layered = build_policy(describe_policy("Empty-5x5", "rellstm", hidden_size=8))
    for layer in (0, 2):
        with pytest.raises(ConfigError, match=f"layer: expected 1 to 1, got {layer}"):
            play_episode(layered, "Empty-5x5", layer=layer)
