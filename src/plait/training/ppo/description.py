"""What a run of PPO is, as plain data, and the policy it describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plait.errors import CheckpointError, ConfigError, known, whole
from plait.models import MODELS
from plait.tasks.minigrid import BACKENDS, check_transfer, world_named
from plait.training.catalogue import find_run, read_run
from plait.training.checkpoint import load_weights, read_checkpoint
from plait.training.config import check_model
from plait.training.device import device_named
from plait.training.ppo.policy import Policy
from plait.training.ppo.settings import Settings

__all__ = ["FORMAT", "POLICIES", "build_policy", "checked_policy", "describe_policy", "load_policy"]

FORMAT = "plait policy 1"
POLICIES = ("none", *MODELS)
# As published: RelLSTM attends over its last five states and five relevant ones.
_SCREENED = {"window": 5, "capacity": 5}


def describe_policy(
    env: str,
    model: str = "rellstm",
    settings: Settings | None = None,
    *,
    test_env: str | None = None,
    backend: str = "minigrid",
    hidden_size: int = 64,
    **options: Any,
) -> dict[str, Any]:
    """A run's description, ready for JSON; the options are those of the model's builder.

    >>> describe_policy("DoorKey-5x5", "relgru")["model"]
    {'name': 'relgru', 'hidden_size': 64, 'window': 5, 'capacity': 5}
    """
    known(model, POLICIES, "model")
    usual = _SCREENED if model.startswith("rel") else {}
    given = {name: value for name, value in options.items() if value is not None}
    task = {"name": "minigrid", "env": env, "test_env": test_env, "backend": backend}
    parts = {"name": model, "hidden_size": hidden_size, **usual, **given}
    return checked_policy({"task": task, "model": parts, "recipe": (settings or Settings()).values()})


def checked_policy(values: dict[str, Any]) -> dict[str, Any]:
    """The same description with worlds by their short names, or an error that says what is wrong."""
    found = values.get("format", FORMAT)
    if found != FORMAT:
        raise ConfigError(f"format: expected {FORMAT!r}, got {found!r}; it was not written by this version")
    task, model = dict(values["task"]), dict(values["model"])
    known(task["backend"], BACKENDS, "backend")
    task["env"] = world_named(task["env"])
    if task["test_env"] is not None:
        task["test_env"] = world_named(task["test_env"])
        check_transfer(task["env"], task["test_env"])
    if known(model["name"], POLICIES, "model") == "none":
        for option in model:
            known(option, ("name", "hidden_size"), "option of none")
        whole(1, hidden_size=model["hidden_size"])
    else:
        check_model(model)
    recipe = Settings().changed(**values["recipe"]).check()
    return {"format": FORMAT, "task": task, "model": model, "recipe": recipe.values()}


def build_policy(description: dict[str, Any], layer_backend: str = "auto") -> Policy:
    """The policy before its first update; weights are drawn from the seed of the settings.

    >>> policy = build_policy(describe_policy("DoorKey-5x5", "none", hidden_size=16))
    >>> policy.actor[-1].weight.shape
    torch.Size([7, 16])
    """
    options = dict(description["model"])
    name, hidden = options.pop("name"), options["hidden_size"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(description["recipe"]["seed"])
        if name == "none":
            return Policy(None, hidden)
        return Policy(MODELS[name](hidden, backend=layer_backend, **options))


def load_policy(run: str | Path, *, device: str = "cpu", out: Path | str = "runs") -> Policy:
    """The policy a run trained, ready for use (`eval` mode)."""
    folder = find_run(run, out)
    record = read_run(folder)
    if record.description.get("format") != FORMAT:
        raise CheckpointError(f"{folder} holds no policy; expected a run of plait train minigrid")
    policy = build_policy(checked_policy(record.description))
    path = folder / "checkpoint.safetensors"
    load_weights(policy, read_checkpoint(path, record.id), path)
    return policy.to(device_named(device)).eval()
