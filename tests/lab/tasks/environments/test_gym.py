"""Any world: what it shows as tensors, what it is given, when episodes begin, and what goes wrong."""

import sys

import pytest
import torch

pytest.importorskip("gymnasium")
import gymnasium

from plait.errors import ConfigError, MissingExtraError, ShapeError, UnknownNameError, EnvError
from plait.lab.own_code import by_name, name_of
from plait.lab.tasks.environments.gym import EnvSpec, GymVectorEnv
from plait.lab.tasks.environments.names import maker_of, env_id
from tests.lab.tasks.environments.echo import ACTIONS, OBSERVATIONS

ECHO = "tests.lab.tasks.environments.echo:"
PAIRS = [(seen, "discrete") for seen in OBSERVATIONS if seen != "text"]
PAIRS += [("tuple", done) for done in ACTIONS if done not in ("tuple", "discrete")]


def opened(name, envs=3, seed=0, held_out=False, **options):
    name_of(name)  # said, so that it may be run
    return GymVectorEnv(EnvSpec(name, maker_of(name, **options)), envs, seed, held_out)


def played(worlds, steps, seed=0):
    do, draw = worlds.actions, torch.Generator().manual_seed(seed)
    outputs = torch.zeros(worlds.envs, do.outputs + do.free)
    return [worlds.step(do.sample(outputs, do.noise((worlds.envs,), draw))) for _ in range(steps)]


def same(one, other):
    pairs = zip((*one.observation, *one[1:]), (*other.observation, *other[1:]), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(("seen", "done"), PAIRS)
def test_every_kind_of_space_is_shown_and_acted_in(seen, done):
    """The world itself checks that what it is given lies in its space."""
    worlds = opened(f"{ECHO}{seen}__{done}")
    timesteps = [worlds.reset(), *played(worlds, 20)]
    assert all(worlds.contains(timestep.observation) for timestep in timesteps)
    assert sum(int(timestep.begins.sum()) for timestep in timesteps) > 3
    kinds = {leaf.name: leaf.kind for leaf in worlds.kind.observed.leaves}
    expected = {
        "dict": {"card": "choices", "place.0": "numbers", "place.1": "choices"},
        "tuple": {"0": "choices", "1": "numbers", "2": "choices"},
        "picture": {"observation": "picture"}, "box": {"observation": "numbers"},
        "small": {"observation": "numbers"},
    }  # fmt: skip
    assert kinds == expected.get(seen, {"observation": "choices"})


@pytest.mark.parametrize(("seen", "done"), PAIRS)
@pytest.mark.parametrize("after", [0, 13, "an end"])
def test_a_snapshot_goes_on_alike(seen, done, after):
    """Also where an episode has just ended, so that the next step begins one."""
    worlds = opened(f"{ECHO}{seen}__{done}", seed=3)
    worlds.reset()
    if after == "an end":
        while not played(worlds, 1)[0].ended.any():
            pass
    else:
        played(worlds, after)
    restored = opened(f"{ECHO}{seen}__{done}", seed=3)
    restored.reset()
    snapshot = worlds.snapshot()
    assert restored.can_restore(snapshot)
    restored.restore(snapshot)
    assert all(map(torch.equal, worlds.present(), restored.present()))
    assert all(map(same, played(worlds, 20, seed=1), played(restored, 20, seed=1)))


def test_time_that_is_up_is_told_from_an_end():
    worlds = opened("CartPole-v1", envs=1, time_limit=3)
    worlds.reset()
    timesteps = played(worlds, 4)
    assert [m.truncated.item() for m in timesteps] == [False, False, True, False]
    assert not any(m.terminated.item() for m in timesteps)
    assert timesteps[-1].begins.item()
    made = opened(f"{ECHO}discrete__discrete", envs=8, time_limit=2)
    made.reset()
    assert [bool(m.ended.all()) for m in played(made, 2)][1]


def test_the_seed_decides_and_held_out_episodes_are_others():
    def first(**arguments):
        worlds = opened("CartPole-v1", **arguments)
        begun = worlds.reset()
        assert same(begun, worlds.reset())
        return begun.observation[0]

    assert torch.equal(first(seed=1), first(seed=1))
    assert not torch.equal(first(seed=1), first(seed=2))
    assert not torch.equal(first(seed=1), first(seed=1, held_out=True))


def test_choices_are_counted_from_nought_whatever_a_world_calls_them():
    worlds = opened(f"{ECHO}discrete__discrete", envs=50)
    seen = worlds.reset().observation[0]
    assert seen.shape == (50, 1)
    assert set(seen.flatten().tolist()) == {0, 1, 2, 3, 4}  # the world says 3 to 7
    assert not worlds.contains([seen + 1])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", r"box__discrete__raise failed in step\(\d\), world 1, episode \d, after 4 steps of it: "
                  r"RuntimeError: the bridge fell"),
        ("reward", r"gave the reward nan, world 1, episode \d, after 5 steps"),
        ("observation", r"gave the observation \(seen.observation\) inf, world 1"),
    ],
)  # fmt: skip
def test_what_goes_wrong_in_a_world_is_named(fault, message):
    worlds = opened(f"{ECHO}box__discrete__{fault}", envs=1, seed=5)
    worlds.reset()
    with pytest.raises(EnvError, match=message):
        played(worlds, 40)


def test_spaces_that_cannot_be_read_or_acted_in():
    with pytest.raises(
        ConfigError, match=r"no encoder for its observation 'told', a space of Text: expected Box"
    ):
        opened(f"{ECHO}text__discrete")
    with pytest.raises(ConfigError, match="no policy for actions in a space of Tuple: expected Discrete"):
        opened(f"{ECHO}box__tuple")
    worlds = opened("CartPole-v1")
    worlds.reset()
    with pytest.raises(ShapeError, match=r"actions: expected int64 \(3,\)"):
        worlds.step(torch.zeros(3))


def make_cart(**options):
    return gymnasium.make("CartPole-v1", **options)


class Own(gymnasium.Env):
    def __init__(self):
        raise OSError("no\nscreen")


def test_names():
    assert env_id("CartPole") == env_id("CartPole-v1") == "CartPole-v1"
    assert env_id(name_of("gymnasium:CartPole-v1")) == "gymnasium:CartPole-v1"
    assert env_id(name_of(make_cart)).endswith(":make_cart")
    assert by_name(name_of(make_cart), "world") is make_cart
    assert opened(name_of(make_cart)).reset().observation[0].shape == (3, 4)
    with pytest.raises(UnknownNameError, match="unknown world 'CartPolle': did you mean 'CartPole-v1'"):
        env_id("CartPolle")
    with pytest.raises(UnknownNameError, match="did you mean plait train popgym --env RepeatFirstEasy"):
        env_id("RepeatFirstEasy")
    with pytest.raises(UnknownNameError, match="did you mean plait train minigrid --env DoorKey-5x5"):
        env_id("DorKey-5x5")
    with pytest.raises(ConfigError, match="no module 'nowhere'"):
        env_id(name_of("nowhere:Cart-v0"))
    with pytest.raises(ConfigError, match="gymnasium has no 'Cart'"):
        env_id(name_of("gymnasium:Cart"))
    with pytest.raises(ConfigError, match=r"shelf:open is code that a run folder names, .*PLAIT_ALLOW=shelf"):
        env_id("shelf:open")
    with pytest.raises(ConfigError, match="expected a function or class with a name"):
        name_of(lambda: None)
    with pytest.raises(EnvError, match="Own cannot be made: OSError: no screen"):
        opened(name_of(Own))


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "popgym", None)
    with pytest.raises(MissingExtraError, match=r"popgym is needed here.*pip install 'plait\[rl\]'"):
        env_id("popgym-RepeatFirstEasy-v0")
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match=r"Ant-v5 needs what is not installed: .*mujoco"):
        opened("Ant-v5")


def test_a_name_without_a_version_is_the_latest_by_number(monkeypatch):
    registry = dict.fromkeys([f"Toy-v{version}" for version in (2, 9, 10)])
    monkeypatch.setattr(gymnasium, "registry", registry)
    assert env_id("Toy") == "Toy-v10"
