"""`fit_policy`: train a policy with a memory by PPO, from Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, UnknownNameError
from plait.lab.training.callbacks import Callback
from plait.lab.training.ppo.policy import PolicySpec, parse_policy, policy_spec
from plait.lab.training.recipe import PPOConfig
from plait.lab.training.session import Fitted, train_run

__all__ = ["fit_policy"]


def fit_policy(
    env: str | Callable[..., Any] | PolicySpec | dict[str, Any],
    model: str | Callable[..., Any] = "rellstm",
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: str = "cpu",
    checkpoint_every: int = 10,
    max_minutes: float | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    callbacks: Iterable[Callback] = (),
    **options: Any,
) -> Fitted:
    """Train a policy with a memory by PPO; the result's `policy` acts by `predict(observation, state)`.

    On a CPU the run is a function of its description alone; a run that was stopped or killed and is resumed
    ends with the same weights and the same curve as one that was not.

    Args:
        env: an id of gymnasium's registry, a name of MiniGrid or POPGym, or a function that makes one
            environment, such as a lambda. Or the description of a run (`policy_spec`), alone.
        model: the policy's memory: the name of a model, a function that builds one, or none.
        folder: the run's folder; without one, nothing is written.
        resume: resume the run in `folder`.
        device: auto, cpu, cuda or cuda:N; small policies are fastest on the CPU, where the environments run.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after this many minutes.
        stop_when: called after every update; save and stop once it returns True.
        progress: show the progress on stderr.
        callbacks: additional callbacks.
        options: hyperparameters of PPO (`PPOConfig`: total_timesteps, n_envs, n_steps, gamma, gae_lambda,
            clip_range, ent_coef, vf_coef, lr, seed, …), options of `policy_spec` (test_env, time_limit,
            encoder, hidden_size, …), and options of the model (window, capacity, …).

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.

    >>> from plait.lab.training.ppo.rollout import evaluate_policy
    >>> small = dict(total_timesteps=32, n_envs=4, n_steps=8, n_minibatches=2, evaluate_on=2)
    >>> fitted = fit_policy("CartPole-v1", "rellstm", gamma=0.9, hidden_size=8, **small)
    >>> fitted.summary["steps"], sorted(evaluate_policy(fitted.policy, episodes=2))
    (32, ['length', 'score'])
    """
    if isinstance(env, PolicySpec | dict):
        if options or model != "rellstm":
            raise ConfigError(
                f"expected a description alone, got options beside it: {', '.join(options) or model}"
            )
        spec = parse_policy(env)
    else:
        for name in options:
            if name in _OTHER_NAMES:
                raise UnknownNameError(
                    f"unknown option of fit_policy {name!r}: did you mean {_OTHER_NAMES[name]!r}?"
                )
        names = {field.name for field in dataclasses.fields(PPOConfig)}
        ppo = PPOConfig(**{name: value for name, value in options.items() if name in names})
        spec = policy_spec(env, model, ppo, **{k: v for k, v in options.items() if k not in names})
    return train_run(
        spec,
        device=device,
        checkpoint_every=checkpoint_every,
        folder=folder,
        resume=resume,
        max_minutes=max_minutes,
        stop_when=stop_when,
        progress=progress,
        callbacks=callbacks,
    )


_OTHER_NAMES = {  # name in other libraries: name here
    "learning_rate": "lr",
    "batch_size": "n_minibatches",
    "num_envs": "n_envs",
    "num_steps": "n_steps",
    "steps": "total_timesteps",
    "timesteps": "total_timesteps",
    "discount": "gamma",
    "hidden": "hidden_size",
    "evaluate": "evaluate_every",
}
