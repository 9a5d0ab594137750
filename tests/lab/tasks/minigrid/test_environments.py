"""MiniGrid by both backends: observations, starts of episodes, snapshots, and recorded episodes."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from plait.errors import ConfigError, DataError, MissingExtraError, ShapeError, UnknownNameError
from plait.lab.tasks.minigrid import (
    ENVIRONMENTS,
    MISSION_LENGTH,
    WORDS,
    canonical_name,
    check_transfer,
    episode_seed,
    make_vec_env,
    mission_tokens,
)
from plait.lab.tasks.minigrid.names import mission_words

pytest.importorskip("minigrid")
HERE = Path(__file__).parent
TABLE_4 = [  # training environment, test environment, …
    "RedBlueDoors-6x6",
    "RedBlueDoors-8x8",
    "GoToObject-6x6-N2",
    "GoToObject-8x8-N2",
    "MemoryS7",
    "MemoryS13",
    "GoToDoor-5x5",
    "GoToDoor-8x8",
    "Fetch-5x5-N2",
    "Fetch-8x8-N3",
    "DoorKey-5x5",
    "DoorKey-16x16",
]
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="needs envpool")
BACKENDS = ["minigrid", pytest.param("envpool", marks=needs_envpool)]


def random_actions(steps, num_envs, seed=0):
    """Draw random actions that walk more than they turn."""
    table = torch.tensor([0, 1, 2, 2, 2, 3, 5, 6])
    return table[torch.randint(8, (steps, num_envs), generator=torch.Generator().manual_seed(seed))]


def equal(first, second):
    """Return whether two time steps are equal bit by bit."""
    return all(
        torch.equal(a, b)
        for a, b in zip((*first.observation, *first[1:]), (*second.observation, *second[1:]), strict=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TABLE_4)
def test_every_environment_of_the_table_steps(name, backend):
    env = make_vec_env(name, 3, backend=backend)
    observation = env.reset().observation
    assert observation.image.shape == (3, 7, 7, 3)
    assert observation.mission.shape == (3, MISSION_LENGTH)
    assert all(part.dtype == torch.uint8 for part in observation)
    words = {WORDS[token - 1] for token in observation.mission.flatten().tolist() if token}
    assert words <= mission_words(name)
    timestep = env.step(torch.tensor([0, 1, 2]))
    assert not timestep.episode_start.any()
    assert ((timestep.observation.direction[:2] - observation.direction[:2]) % 4).tolist() == [3, 1]


def test_names_of_the_paper_and_full_ids():
    assert set(TABLE_4) <= set(ENVIRONMENTS)
    assert canonical_name("GoToObject-8x8") == "GoToObject-8x8-N2"
    assert canonical_name("MiniGrid-MemoryS13-v0") == "MemoryS13"
    assert canonical_name("doorkey-5X5") == "DoorKey-5x5"
    with pytest.raises(UnknownNameError, match="did you mean 'DoorKey-5x5'"):
        canonical_name("DoorKy-5x5")


def test_a_mission_is_words_of_the_vocabulary():
    tokens = mission_tokens("use the key to open the door and then get to the goal")
    assert [WORDS[token - 1] for token in tokens][:3] == ["use", "the", "key"]
    assert 0 not in tokens
    with pytest.raises(DataError, match="the word 'sing'"):
        mission_tokens("sing to the door")


def test_transfer_needs_known_words_in_missions():
    for small, large in zip(TABLE_4[::2], TABLE_4[1::2], strict=True):
        check_transfer(small, large)
    with pytest.raises(ConfigError, match=r"MemoryS13 does not match DoorKey-5x5.*test in DoorKey-16x16"):
        check_transfer("DoorKey-5x5", "MemoryS13")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_episode_that_ended_begins_with_the_next_step(backend):
    """`done` ends GoToDoor at once; the step after it takes no action and gives no reward."""
    env = make_vec_env("GoToDoor-5x5", 2, backend=backend)
    env.reset()
    done = env.step(torch.tensor([6, 0]))
    assert done.terminated.tolist() == [True, False]
    assert done.episode_start.tolist() == [False, False]
    fresh = env.step(torch.tensor([6, 0]))
    assert fresh.episode_start.tolist() == [True, False]
    assert fresh.reward.tolist() == [0, 0]
    assert not fresh.done.any()
    assert env.step(torch.tensor([6, 0])).terminated.tolist() == [True, False]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_time_limit_truncates(backend):
    env = make_vec_env("Empty-5x5", 1, backend=backend)
    env.reset()
    timesteps = [env.step(torch.tensor([0])) for _ in range(101)]
    assert [m.truncated.item() for m in timesteps] == [False] * 99 + [True, False]
    assert not any(m.terminated.item() for m in timesteps)
    assert timesteps[-1].episode_start.item()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("after", [0, 1, 60])
def test_a_restored_snapshot_continues_alike(backend, after):
    """Also where an episode has just ended, so that the next step starts another."""
    name, num_envs = "GoToDoor-5x5", 4
    env, actions = make_vec_env(name, num_envs, 3, backend=backend), random_actions(after + 40, num_envs)
    if after == 1:
        actions[0] = 6
    env.reset()
    for row in actions[:after]:
        env.step(row)
    restored = make_vec_env(name, num_envs, 3, backend=backend)
    restored.reset()
    restored.restore(env.snapshot())
    starts = 0
    for row in actions[after:]:
        here, there = env.step(row), restored.step(row)
        starts += here.episode_start.sum().item()
        assert equal(here, there)
    assert starts > 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_episodes_follow_from_the_seed(backend):
    def images(**arguments):
        env = make_vec_env("DoorKey-5x5", 8, backend=backend, **arguments)
        first = env.reset()
        assert equal(first, env.reset())
        return torch.cat(
            [first.observation.image, *(env.step(row).observation.image for row in random_actions(5, 8))]
        )

    assert torch.equal(images(seed=1), images(seed=1))
    assert not torch.equal(images(seed=1), images(seed=2))
    assert not torch.equal(images(seed=1), images(seed=1, held_out=True))


def test_held_out_seeds_are_never_trained_on():
    trained = {episode_seed(s, w, e, False) for s in range(3) for w in range(8) for e in range(50)}
    held_out = {episode_seed(s, w, e, True) for s in range(3) for w in range(8) for e in range(50)}
    assert not trained & held_out
    assert len(trained) == 3 * 8 * 50
    assert max(trained | held_out) < 2**31


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("episode", json.loads((HERE / "recorded.json").read_text()), ids=lambda e: e["env"])
def test_both_backends_replay_the_recorded_episodes(episode, backend):
    """Every image, direction, mission, reward and end, under the same actions; see record.py."""
    spec = importlib.util.spec_from_file_location("record", HERE / "record.py")
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    played = record.play(
        make_vec_env(episode["env"], 1, episode[backend], backend=backend), episode["actions"]
    )
    assert played == {key: episode[key] for key in played}


def test_recorded_episodes_include_rewarded_ones():
    recorded = json.loads((HERE / "recorded.json").read_text())
    assert {e["env"] for e in recorded if e["reward"] > 0} >= {"DoorKey-5x5", "MemoryS7", "Empty-5x5"}


def test_bad_input(monkeypatch):
    with pytest.raises(ConfigError, match="num_envs: expected at least 1, got 0"):
        make_vec_env("DoorKey-5x5", 0)
    with pytest.raises(UnknownNameError, match="unknown backend 'envpol': did you mean 'envpool'"):
        make_vec_env("DoorKey-5x5", 1, backend="envpol")
    env = make_vec_env("DoorKey-5x5", 2)
    env.reset()
    with pytest.raises(ShapeError, match=r"actions: expected int64 \(2,\)"):
        env.step(torch.tensor([0]))
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'plait\[envpool\]'"):
        make_vec_env("DoorKey-5x5", 1, backend="envpool")
