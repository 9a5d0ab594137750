"""`plait train minigrid`, `plait train gym` and `plait train popgym`: a policy with a memory, by PPO."""

from __future__ import annotations

from typing import Annotated, Any

from plait.commands.train import resumed, trained
from plait.errors import ConfigError
from plait.marks import flat, given, option
from plait.result import CommandResult
from plait.training.options import MeansOptions, PolicyOptions, SettingsOptions
from plait.training.recipe import Settings

__all__ = ["train_gym", "train_minigrid", "train_popgym"]

_SHORT = {"hidden": "hidden_size", "layers": "num_layers"}


def train_minigrid(
    *,
    env: str | None = None,
    test_env: str | None = None,
    memory: Annotated[PolicyOptions, flat] = PolicyOptions(),  # noqa: B008
    settings: Annotated[SettingsOptions, flat] = SettingsOptions(),  # noqa: B008
    backend: str | None = None,
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    means: Annotated[MeansOptions, flat] = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in a grid world: plait train minigrid --env DoorKey-5x5 --model rellstm.

    Ctrl-C and SIGTERM save and stop; a run that was stopped or killed is continued with --resume and ends
    with the same curve as one that was not. Scores are mean returns over held-out episodes.

    Args:
        env: the world to train in, such as DoorKey-5x5 or MemoryS7.
        test_env: a world to test in, once, at the end, such as DoorKey-16x16.
        backend: minigrid (Farama's, if left out), or envpool (C++, faster; pip install 'plait[envpool]').
        resume: resume this run, bit-exactly; its options stay as they were, only --steps may grow.
    """
    worlds = {"env": env, "test_env": test_env, "backend": backend}
    return _trained("minigrid", "DoorKey-5x5", worlds, memory, settings, resume, means)


def train_gym(
    *,
    env: Annotated[str | None, option(metavar="ID|MODULE:NAME")] = None,
    test_env: Annotated[str | None, option(metavar="ID|MODULE:NAME")] = None,
    time_limit: int | None = None,
    encoder: Annotated[str | None, option(metavar="MODULE:NAME")] = None,
    memory: Annotated[PolicyOptions, flat] = PolicyOptions(),  # noqa: B008
    settings: Annotated[SettingsOptions, flat] = SettingsOptions(),  # noqa: B008
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    means: Annotated[MeansOptions, flat] = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in any world of Gymnasium's interface: plait train gym --env CartPole-v1.

    Actions may be discrete, multi-discrete, multi-binary or a box; observations these, or dicts and tuples
    of them. An episode that the time limit cut off is told from one that ended. Ctrl-C and SIGTERM save and
    stop; --resume goes on.

    Args:
        env: the world to train in: an id that is registered (PACKAGE:ID imports the package first), or a
            function MODULE:NAME that makes one environment.
        test_env: a world of the same spaces to test in, once, at the end.
        time_limit: steps after which an episode is cut off, instead of the world's own limit.
        encoder: a function MODULE:NAME of (space, features) that gives the torch module which reads an
            observation; left out, one is chosen by the space.
        resume: resume this run, bit-exactly; its options stay as they were, only --steps may grow.
    """
    worlds = {"env": env, "test_env": test_env, "time_limit": time_limit, "encoder": encoder}
    return _trained("gym", "CartPole-v1", worlds, memory, settings, resume, means)


def train_popgym(
    *,
    env: str | None = None,
    test_env: str | None = None,
    encoder: Annotated[str | None, option(metavar="MODULE:NAME")] = None,
    memory: Annotated[PolicyOptions, flat] = PolicyOptions(),  # noqa: B008
    settings: Annotated[SettingsOptions, flat] = SettingsOptions(),  # noqa: B008
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    means: Annotated[MeansOptions, flat] = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in a world of POPGym: plait train popgym --env RepeatFirstEasy --model rellstm.

    What is seen holds the previous action and whether the episode begins, as in the published experiments.
    Ctrl-C and SIGTERM save and stop; --resume goes on.

    Args:
        env: the world to train in, such as RepeatPreviousEasy; the paper's names are understood too.
        test_env: a world of the same spaces to test in, once, at the end, such as RepeatFirstHard.
        encoder: a function MODULE:NAME of (space, features) that gives the torch module which reads an
            observation; left out, one is chosen by the space.
        resume: resume this run, bit-exactly; its options stay as they were, only --steps may grow.
    """
    worlds = {"env": env, "test_env": test_env, "encoder": encoder}
    return _trained("popgym", "RepeatFirstEasy", worlds, memory, settings, resume, means)


def _trained(
    family: str, example: str, worlds: dict[str, Any], memory: PolicyOptions, settings: Any,
    resume: str | None, means: MeansOptions,
) -> CommandResult | None:  # fmt: skip
    if (worlds["env"] is None) == (resume is None):
        raise ConfigError(
            f"expected a world (plait train {family} --env {example}) or a run to continue (--resume RUN)"
        )
    said = {name: value for name, value in worlds.items() if value is not None} | given(memory)
    if resume is not None:
        return resumed(resume, said | given(settings), means)
    from plait.training.ppo.policy import describe_policy

    options = {_SHORT.get(name, name): value for name, value in said.items()}
    recipe = Settings(**given(settings)).check()
    return trained(describe_policy(family=family, settings=recipe, **options), means)
