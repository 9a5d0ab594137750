"""Small runs of PPO: a few updates of a few worlds, so that a test can afford several of them."""

import json
import re

import pytest

from plait.lab.runs.checkpoint import read_checkpoint
from plait.lab.training.ppo.learner import fit_policy
from plait.lab.training.ppo.policy import describe_policy
from plait.lab.training.recipe import Settings

pytest.importorskip("minigrid")


@pytest.fixture
def described():
    """A small run's description; keywords are settings, or the model's."""

    def describe(model="rellstm", env="GoToDoor-5x5", backend="minigrid", test_env=None, **changes):
        small = {"steps": 240, "envs": 4, "rollout": 10, "minibatches": 2, "epochs": 2, "evaluate_every": 3}
        settings = Settings(**{**small, "evaluate_on": 3, **changes})
        kind, options = model, {}
        if model == "bounded transformer":
            kind, options = "transformer", {"memory": "relevancy", "window": 3, "capacity": 2}
        return describe_policy(
            env, kind, settings, hidden_size=8, backend=backend, test_env=test_env, **options
        )

    return describe


@pytest.fixture
def small_fit(described):
    """Train a small policy; keywords of `fit_policy` go there, the others to the description."""

    def run(folder=None, **changes):
        own = ("resume", "watchers", "max_minutes", "stop_when", "checkpoint_every")
        arguments = {"checkpoint_every": 2, **{key: changes.pop(key) for key in own if key in changes}}
        return fit_policy(described(**changes), folder=folder, **arguments)

    return run


@pytest.fixture
def outcome_of():
    def outcome(folder):
        """Everything a run must end with, whatever happened to it."""
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
