"""POPGym's environments: their names in paper and library; each of them steps and restores a snapshot."""

import pytest
import torch

pytest.importorskip("popgym")
import gymnasium

from plait.errors import MissingExtraError, UnknownNameError
from plait.lab.tasks.environments.popgym import ENVIRONMENTS, FAMILIES, RENAMED, canonical_name
from plait.lab.training.ppo.families import family_of


def test_the_names_are_the_registered_ones():
    ids = {name for name in gymnasium.registry if name.startswith("popgym-")}
    assert {f"popgym-{name}-v0" for name in ENVIRONMENTS} == {name for name in ids if "Labyrinth" not in name}
    assert set(RENAMED.values()) <= set(FAMILIES)
    assert canonical_name("NoisyStatelessCartPoleMedium") == "NoisyPositionOnlyCartPoleMedium"
    assert canonical_name("minesweepereasy") == "MineSweeperEasy"
    with pytest.raises(UnknownNameError, match="did you mean 'RepeatPreviousEasy'"):
        canonical_name("RepeatPreviusEasy")


def test_mazes_name_the_package_they_need(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"LabyrinthEscapeEasy needs mazelib: pip install 'popgym\[nav"
    ):
        canonical_name("LabyrinthEscapeEasy")


@pytest.mark.parametrize("name", [f"{family}Easy" for family in FAMILIES])
def test_every_family_steps_and_restores_a_snapshot(name):
    """A snapshot is restored by replaying its actions, so steps depend on seeds and actions alone."""
    family = family_of({"name": "popgym", "env": name, "test_env": None})
    env, restored = (family.make_vec_env(name, 2, 7) for _ in range(2))
    space, generator = env.actions, torch.Generator().manual_seed(0)
    outputs = torch.zeros(2, space.num_outputs + space.num_log_stds)
    observation = env.reset().observation
    assert observation[-1].tolist() == [[1], [1]]  # the flag for the start of an episode
    for _ in range(70):
        timestep = env.step(space.sample(outputs, space.noise((2,), generator)))
    assert env.contains(timestep.observation)
    restored.reset()
    restored.restore(env.snapshot())
    for _ in range(70):
        actions = space.sample(outputs, space.noise((2,), generator))
        here, there = env.step(actions), restored.step(actions)
        assert all(map(torch.equal, (*here.observation, *here[1:]), (*there.observation, *there[1:])))


def test_the_previous_action_is_observed():
    family = family_of({"name": "popgym", "env": "RepeatFirstEasy", "test_env": None})
    env = family.make_vec_env("RepeatFirstEasy", 4)
    env.reset()
    observation = env.step(torch.tensor([0, 1, 2, 3])).observation
    assert observation[1].flatten().tolist() == [0, 1, 2, 3]
    assert not observation[2].any()
