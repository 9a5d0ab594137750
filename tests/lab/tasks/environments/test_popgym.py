"""POPGym's worlds: their names then and now, and that every one of them can be played and restored."""

import pytest
import torch

pytest.importorskip("popgym")
import gymnasium

from plait.errors import MissingExtraError, UnknownNameError
from plait.lab.tasks.environments.popgym import FAMILIES, MOVED, WORLDS, canonical_name
from plait.lab.training.ppo.families import family_of


def test_the_names_are_those_that_are_registered():
    ids = {name for name in gymnasium.registry if name.startswith("popgym-")}
    assert {f"popgym-{world}-v0" for world in WORLDS} == {one for one in ids if "Labyrinth" not in one}
    assert set(MOVED.values()) <= set(FAMILIES)
    assert canonical_name("NoisyStatelessCartPoleMedium") == "NoisyPositionOnlyCartPoleMedium"
    assert canonical_name("minesweepereasy") == "MineSweeperEasy"
    with pytest.raises(UnknownNameError, match="did you mean 'RepeatPreviousEasy'"):
        canonical_name("RepeatPreviusEasy")


def test_mazes_say_what_they_need(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"LabyrinthEscapeEasy needs mazelib: pip install 'popgym\[nav"
    ):
        canonical_name("LabyrinthEscapeEasy")


@pytest.mark.parametrize("world", [f"{family}Easy" for family in FAMILIES])
def test_every_family_plays_and_goes_on_after_a_snapshot(world):
    """The second time by replaying: what happens follows from seeds and actions alone."""
    family = family_of({"name": "popgym", "env": world, "test_env": None})
    worlds, restored = (family.open(world, 2, 7) for _ in range(2))
    do, draw = worlds.actions, torch.Generator().manual_seed(0)
    outputs = torch.zeros(2, do.outputs + do.free)
    seen = worlds.reset().observation
    assert seen[-1].tolist() == [[1], [1]]  # the episode begins
    for _ in range(70):
        timestep = worlds.step(do.sample(outputs, do.noise((2,), draw)))
    assert worlds.contains(timestep.observation)
    restored.reset()
    restored.restore(worlds.snapshot())
    for _ in range(70):
        actions = do.sample(outputs, do.noise((2,), draw))
        here, there = worlds.step(actions), restored.step(actions)
        assert all(map(torch.equal, (*here.observation, *here[1:]), (*there.observation, *there[1:])))


def test_what_was_done_is_seen():
    family = family_of({"name": "popgym", "env": "RepeatFirstEasy", "test_env": None})
    worlds = family.open("RepeatFirstEasy", 4)
    worlds.reset()
    seen = worlds.step(torch.tensor([0, 1, 2, 3])).observation
    assert seen[1].flatten().tolist() == [0, 1, 2, 3]
    assert not seen[2].any()
