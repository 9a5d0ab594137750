"""Environments of gymnasium: observations as tensors, actions, episodes, snapshots and errors."""

import sys

import pytest
import torch

pytest.importorskip("gymnasium")
import gymnasium

from plait.errors import ConfigError, EnvError, MissingExtraError, ShapeError, UnknownNameError
from plait.lab.own_code import by_name, name_of
from plait.lab.tasks.environments.gym import EnvSpec, GymVectorEnv
from plait.lab.tasks.environments.names import env_constructor, env_id
from tests.lab.tasks.environments.echo import ACTIONS, OBSERVATIONS

ECHO = "tests.lab.tasks.environments.echo:"
# Spaces of observations and of actions.
PAIRS = [(observed, "discrete") for observed in OBSERVATIONS if observed != "text"]
PAIRS += [("tuple", acted) for acted in ACTIONS if acted not in ("tuple", "discrete")]


def make(name, num_envs=3, seed=0, held_out=False, **options):
    """Make a vector environment by name."""
    name_of(name)  # its code is trusted from here on
    return GymVectorEnv(EnvSpec(name, env_constructor(name, **options)), num_envs, seed, held_out)


def random_steps(env, steps, seed=0):
    """Return the time steps of random actions."""
    space, generator = env.actions, torch.Generator().manual_seed(seed)
    outputs = torch.zeros(env.num_envs, space.num_outputs + space.num_log_stds)
    noise = [space.noise((env.num_envs,), generator) for _ in range(steps)]
    return [env.step(space.sample(outputs, row)) for row in noise]


def equal(first, second):
    """Return whether two time steps are equal bit by bit."""
    pairs = zip((*first.observation, *first[1:]), (*second.observation, *second[1:]), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_every_kind_of_space_can_be_observed_and_acted_in(observed, acted):
    """The environment itself checks that actions are in its space."""
    env = make(f"{ECHO}{observed}__{acted}")
    timesteps = [env.reset(), *random_steps(env, 20)]
    assert all(env.contains(timestep.observation) for timestep in timesteps)
    assert sum(int(timestep.episode_start.sum()) for timestep in timesteps) > 3
    kinds = {leaf.name: leaf.kind for leaf in env.spec.observations.leaves}
    expected = {
        "dict": {"card": "discrete", "place.0": "continuous", "place.1": "discrete"},
        "tuple": {"0": "discrete", "1": "continuous", "2": "discrete"},
        "picture": {"observation": "image"},
        "box": {"observation": "continuous"},
        "small": {"observation": "continuous"},
    }
    assert kinds == expected.get(observed, {"observation": "discrete"})


@pytest.mark.parametrize(("observed", "acted"), PAIRS)
@pytest.mark.parametrize("after", [0, 13, "an end"])
def test_a_restored_snapshot_continues_alike(observed, acted, after):
    """Also where an episode has just ended, so that the next step starts another."""
    env = make(f"{ECHO}{observed}__{acted}", seed=3)
    env.reset()
    if after == "an end":
        while not random_steps(env, 1)[0].done.any():
            pass
    else:
        random_steps(env, after)
    restored = make(f"{ECHO}{observed}__{acted}", seed=3)
    restored.reset()
    snapshot = env.snapshot()
    assert restored.can_restore(snapshot)
    restored.restore(snapshot)
    assert all(map(torch.equal, env.current_observation(), restored.current_observation()))
    assert all(map(equal, random_steps(env, 20, seed=1), random_steps(restored, 20, seed=1)))


def test_a_time_limit_truncates_and_does_not_terminate():
    env = make("CartPole-v1", num_envs=1, time_limit=3)
    env.reset()
    timesteps = random_steps(env, 4)
    assert [t.truncated.item() for t in timesteps] == [False, False, True, False]
    assert not any(t.terminated.item() for t in timesteps)
    assert timesteps[-1].episode_start.item()
    by_function = make(f"{ECHO}discrete__discrete", num_envs=8, time_limit=2)
    by_function.reset()
    assert [bool(t.done.all()) for t in random_steps(by_function, 2)][1]


def test_episodes_follow_from_seed_and_held_out():
    def first(**arguments):
        env = make("CartPole-v1", **arguments)
        timestep = env.reset()
        assert equal(timestep, env.reset())
        return timestep.observation[0]

    assert torch.equal(first(seed=1), first(seed=1))
    assert not torch.equal(first(seed=1), first(seed=2))
    assert not torch.equal(first(seed=1), first(seed=1, held_out=True))


def test_discrete_observations_are_counted_from_zero():
    env = make(f"{ECHO}discrete__discrete", num_envs=50)
    observation = env.reset().observation[0]
    assert observation.shape == (50, 1)
    assert set(observation.flatten().tolist()) == {0, 1, 2, 3, 4}  # the environment counts from 3 to 7
    assert not env.contains([observation + 1])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "raise",
            r"box__discrete__raise failed in step\(\d\), environment 1, episode \d, after 4 of its steps: "
            r"RuntimeError: the bridge fell",
        ),
        ("reward", r"returned the reward nan, environment 1, episode \d, after 5 of its steps"),
        ("observation", r"returned the observation \(observation.observation\) inf, environment 1"),
    ],
)
def test_a_failure_names_environment_and_step(fault, message):
    env = make(f"{ECHO}box__discrete__{fault}", num_envs=1, seed=5)
    env.reset()
    with pytest.raises(EnvError, match=message):
        random_steps(env, 40)


def test_unsupported_spaces_are_refused():
    with pytest.raises(
        ConfigError, match=r"no encoder for its observation 'note', a space of Text: expected Box"
    ):
        make(f"{ECHO}text__discrete")
    with pytest.raises(ConfigError, match="no policy for actions in a space of Tuple: expected Discrete"):
        make(f"{ECHO}box__tuple")
    env = make("CartPole-v1")
    env.reset()
    with pytest.raises(ShapeError, match=r"actions: expected int64 \(3,\)"):
        env.step(torch.zeros(3))


def make_cart(**options):
    return gymnasium.make("CartPole-v1", **options)


class Failing(gymnasium.Env):
    def __init__(self):
        raise OSError("no\nscreen")


def test_names():
    assert env_id("CartPole") == env_id("CartPole-v1") == "CartPole-v1"
    assert env_id(name_of("gymnasium:CartPole-v1")) == "gymnasium:CartPole-v1"
    assert env_id(name_of(make_cart)).endswith(":make_cart")
    assert by_name(name_of(make_cart), "environment") is make_cart
    assert make(name_of(make_cart)).reset().observation[0].shape == (3, 4)
    with pytest.raises(UnknownNameError, match="unknown environment 'CartPolle': did you mean 'CartPole-v1'"):
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
    with pytest.raises(EnvError, match="Failing cannot be made: OSError: no screen"):
        make(name_of(Failing))


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "popgym", None)
    with pytest.raises(MissingExtraError, match=r"popgym is needed here.*pip install 'plait\[rl\]'"):
        env_id("popgym-RepeatFirstEasy-v0")
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match=r"Ant-v5 needs a package that is missing: .*mujoco"):
        make("Ant-v5")


def test_a_name_without_a_version_is_the_newest_version(monkeypatch):
    registry = dict.fromkeys([f"Toy-v{version}" for version in (2, 9, 10)])
    monkeypatch.setattr(gymnasium, "registry", registry)
    assert env_id("Toy") == "Toy-v10"
