"""Small runs of PPO: a few updates in a few environments, so that a test can afford several of them."""

import json
import re

import pytest

from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.ppo.fit import fit_policy
from plait.lab.training.ppo.policy import describe_policy
from plait.lab.training.recipe import PPOConfig

pytest.importorskip("minigrid")

SMALL = {
    "total_timesteps": 240,
    "n_envs": 4,
    "n_steps": 10,
    "n_minibatches": 2,
    "n_epochs": 2,
    "evaluate_every": 3,
    "evaluate_on": 3,
}


@pytest.fixture
def described():
    """Return a function that describes a small run; keywords are hyperparameters."""

    def describe(model="rellstm", env="GoToDoor-5x5", backend="minigrid", test_env=None, **changes):
        ppo = PPOConfig().changed(**{**SMALL, **changes})
        name, options = model, {}
        if model == "bounded transformer":
            name, options = "transformer", {"memory": "relevancy", "window": 3, "capacity": 2}
        return describe_policy(env, name, ppo, hidden_size=8, backend=backend, test_env=test_env, **options)

    return describe


@pytest.fixture
def small_fit(described):
    """Return a function that trains a small policy; keywords are `fit_policy`'s or the description's."""

    def run(folder=None, **changes):
        own = ("resume", "callbacks", "max_minutes", "stop_when", "checkpoint_every")
        arguments = {"checkpoint_every": 2, **{key: changes.pop(key) for key in own if key in changes}}
        return fit_policy(described(**changes), folder=folder, **arguments)

    return run


@pytest.fixture
def outcome_of():
    def outcome(folder):
        """Return all that must not depend on how often the run was interrupted."""
        checkpoint = read_checkpoint(folder / "checkpoint.safetensors")
        tensors = {name: value.numpy().tobytes() for name, value in checkpoint.tensors.items()}
        counters = {
            k: v for k, v in checkpoint.counters.items() if k not in ("seconds", "journals", "regular")
        }
        summary = json.loads((folder / "summary.json").read_text())
        del summary["seconds"], summary["peak_memory_bytes"]
        metrics = re.sub(rb'"seconds": [0-9.]+, ', b"", (folder / "metrics.jsonl").read_bytes())
        return tensors, counters, summary, metrics

    return outcome
