"""`plait watch`: a trained policy's episode as text and as a film."""

import json

import pytest

pytest.importorskip("minigrid")

from plait.cli import main
from plait.tasks.minigrid.farama import FaramaWorlds
from plait.training.ppo import Settings, build_policy, describe_policy, fit_policy
from plait.training.ppo.episode import play_episode


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    settings = Settings(steps=40, envs=4, rollout=10, minibatches=2, epochs=1, evaluate_on=2)
    fit_policy(describe_policy("GoToDoor-5x5", "rellstm", settings, hidden_size=8), folder=folder)
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
    from PIL import Image

    path = tmp_path / "episode.gif"
    assert main(["watch", trained, "--env", "GoToDoor-8x8", "-o", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with Image.open(path) as film:
        assert film.n_frames == answer["steps"] + 1
        assert film.size[0] > film.size[1]  # the memory stands beside the world


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "MemoryS7"], "MemoryS7 does not match GoToDoor-5x5"),
        (["--env", "GoToDor-5x5"], "did you mean 'GoToDoor-5x5'"),
        (["-o", "episode.mp4"], "expected a file that ends in .gif"),
        (["--layer", "2"], "layer: expected 1 to 1, got 2"),
    ],
)
def test_bad_input_is_one_line(trained, arguments, message, capsys):
    assert main(["watch", trained, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_is_no_policy(tmp_path, capsys):
    small = ["--updates", "1", "--hidden", "4", "--delay", "1", "--evaluate-on", "2", "--quiet"]
    assert main(["train", "copy", *small, "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert main(["watch", "copy", "--out", str(tmp_path)]) == 2
    assert "holds no policy" in capsys.readouterr().err


def test_the_episode_is_one_that_training_never_had():
    policy = build_policy(describe_policy("DoorKey-8x8", "none", hidden_size=8))
    scenes = play_episode(policy, "DoorKey-8x8", seed=4)
    worlds = FaramaWorlds("DoorKey-8x8", 1, seed=4, held_out=True)
    worlds.reset()
    assert scenes[0].text == worlds.text()
    worlds = FaramaWorlds("DoorKey-8x8", 1, seed=4)
    worlds.reset()
    assert scenes[0].text != worlds.text()


def test_scenes_show_what_was_held():
    """Window 5 and capacity 5: the latest five steps are held, and what was read adds up to one."""
    policy = build_policy(describe_policy("Empty-5x5", "rellstm", hidden_size=8))
    scenes = play_episode(policy, "Empty-5x5", seed=2)
    assert len(scenes) > 12
    for scene in scenes:
        steps = [slot.step for slot in scene.slots]
        assert set(range(max(0, scene.step - 4), scene.step + 1)) <= set(steps)
        assert len(steps) == min(scene.step + 1, 10)
        assert sum(slot.weight for slot in scene.slots) == pytest.approx(1, abs=1e-5)
    assert [scene.action == "" for scene in scenes].index(True) == len(scenes) - 1
    plain = play_episode(build_policy(describe_policy("Empty-5x5", "none", hidden_size=8)), "Empty-5x5")
    assert not any(scene.slots for scene in plain)
