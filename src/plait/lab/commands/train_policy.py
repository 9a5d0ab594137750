"""The commands `plait train minigrid`, `gym` and `popgym`: a policy with a memory, trained by PPO."""

from __future__ import annotations

from typing import Annotated, Any

from plait.errors import ConfigError
from plait.lab.annotations import explicit_options, option
from plait.lab.commands.train import resumed, trained
from plait.lab.result import CommandResult
from plait.lab.training.options import PolicyOptions, PPOOptions, RuntimeOptions
from plait.lab.training.recipe import PPOConfig

__all__ = ["train_gym", "train_minigrid", "train_popgym"]


def train_minigrid(
    *,
    env: str | None = None,
    test_env: str | None = None,
    memory: PolicyOptions = PolicyOptions(),  # noqa: B008
    ppo: PPOOptions = PPOOptions(),  # noqa: B008
    backend: str | None = None,
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    runtime: RuntimeOptions = RuntimeOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in a grid world: plait train minigrid --env DoorKey-5x5 --model rellstm.

    Ctrl-C and SIGTERM save and stop; --resume continues a run that was stopped or killed, and it ends with
    the same curve as an uninterrupted one. Scores are mean returns over held-out episodes.

    Args:
        env: the environment to train in, such as DoorKey-5x5 or MemoryS7.
        test_env: an environment to test in, once, at the end, such as DoorKey-16x16.
        backend: implementation of the environments: minigrid (Farama's, the default), or envpool (C++,
            faster; pip install 'plait[envpool]').
        resume: resume this run, bit-exactly, with the options it was started with; only --total-timesteps
            may grow.
    """
    task = {"env": env, "test_env": test_env, "backend": backend}
    return _trained("minigrid", "DoorKey-5x5", task, memory, ppo, resume, runtime)


def train_gym(
    *,
    env: Annotated[str | None, option(metavar="ID|MODULE:NAME")] = None,
    test_env: Annotated[str | None, option(metavar="ID|MODULE:NAME")] = None,
    time_limit: int | None = None,
    encoder: Annotated[str | None, option(metavar="MODULE:NAME")] = None,
    memory: PolicyOptions = PolicyOptions(),  # noqa: B008
    ppo: PPOOptions = PPOOptions(),  # noqa: B008
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    runtime: RuntimeOptions = RuntimeOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in any Gymnasium environment: plait train gym --env CartPole-v1.

    Actions may be discrete, multi-discrete, multi-binary or a box; observations these, or dicts and tuples
    of them. Truncated episodes (time limit) are distinguished from terminated ones. Ctrl-C and SIGTERM save
    and stop; --resume continues.

    Args:
        env: the environment to train in: a registered id (PACKAGE:ID imports the package first), or a
            function MODULE:NAME that builds one environment.
        test_env: an environment with the same spaces to test in, once, at the end.
        time_limit: steps after which an episode is truncated, instead of the environment's own limit.
        encoder: a function MODULE:NAME of (space, features) that returns the torch module which encodes an
            observation; by default one is chosen by the space.
        resume: resume this run, bit-exactly, with the options it was started with; only --total-timesteps
            may grow.
    """
    task = {"env": env, "test_env": test_env, "time_limit": time_limit, "encoder": encoder}
    return _trained("gym", "CartPole-v1", task, memory, ppo, resume, runtime)


def train_popgym(
    *,
    env: str | None = None,
    test_env: str | None = None,
    encoder: Annotated[str | None, option(metavar="MODULE:NAME")] = None,
    memory: PolicyOptions = PolicyOptions(),  # noqa: B008
    ppo: PPOOptions = PPOOptions(),  # noqa: B008
    resume: Annotated[str | None, option(metavar="RUN")] = None,
    runtime: RuntimeOptions = RuntimeOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a policy by PPO in POPGym: plait train popgym --env RepeatFirstEasy --model rellstm.

    Observations include the previous action and a flag for the start of an episode, as in the published
    experiments. Ctrl-C and SIGTERM save and stop; --resume continues.

    Args:
        env: the environment to train in, such as RepeatPreviousEasy; the paper's names are accepted too.
        test_env: an environment with the same spaces to test in, once, at the end, such as RepeatFirstHard.
        encoder: a function MODULE:NAME of (space, features) that returns the torch module which encodes an
            observation; by default one is chosen by the space.
        resume: resume this run, bit-exactly, with the options it was started with; only --total-timesteps
            may grow.
    """
    task = {"env": env, "test_env": test_env, "encoder": encoder}
    return _trained("popgym", "RepeatFirstEasy", task, memory, ppo, resume, runtime)


def _trained(
    family: str,
    example: str,
    task: dict[str, Any],
    memory: PolicyOptions,
    ppo: PPOOptions,
    resume: str | None,
    runtime: RuntimeOptions,
) -> CommandResult | None:
    if (task["env"] is None) == (resume is None):
        raise ConfigError(
            f"expected an environment (plait train {family} --env {example}) or a run to continue "
            "(--resume RUN)"
        )
    explicit = {name: value for name, value in task.items() if value is not None} | explicit_options(memory)
    if resume is not None:
        return resumed(resume, explicit | explicit_options(ppo), runtime)
    from plait.lab.training.ppo.policy import policy_spec

    model = {"model": explicit.pop("name")} if "name" in explicit else {}
    config = PPOConfig(**explicit_options(ppo))
    return trained(policy_spec(family=family, ppo=config, **model, **explicit), runtime)
