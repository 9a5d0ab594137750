"""What a run is, as plain data, and the id that follows from it."""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any

import torch
from torch import nn

from plait.cells import INITIALISERS
from plait.errors import ConfigError, known
from plait.models import MODELS, Recurrent
from plait.tasks import TASKS, Task, task_named
from plait.training.network import Network
from plait.training.recipe import Recipe

__all__ = ["FORMAT", "build", "describe", "model_defaults", "run_id"]

FORMAT = "plait run 1"

# Where and how a model is computed, and what the task decides, are not part of what it is.
_LEFT_OUT = frozenset(
    {"input_size", "batch_first", "bidirectional", "proj_size", "device", "dtype", "backend"}
)


def describe(network: nn.Module, task: Task, recipe: Recipe) -> dict[str, Any]:
    """The run of `network` on `task` by `recipe`, ready for JSON.

    A model or task that has no name here is described by its class; such a run can be resumed and loaded
    by whoever has the object.
    """
    named = TASKS.get(task.name) is type(task)
    return {
        "format": FORMAT,
        "task": {**({"name": task.name} if named else {"class": _class_name(task)}), **task.options()},
        "model": _describe_model(network),
        "recipe": recipe.values(),
    }


def run_id(description: dict[str, Any]) -> str:
    """Task, model, and ten digits of the SHA-256 of the canonical description.

    >>> run_id({"task": {"name": "copy"}, "model": {"name": "lstm"}})
    'copy-lstm-761f80bfa7'
    """
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    names = [
        str(part.get("name") or part.get("class", "").rpartition(".")[2]).lower()
        for part in (description["task"], description["model"])
    ]
    return f"{'-'.join(names)}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"


def build(description: dict[str, Any], backend: str = "auto") -> tuple[Network, Task]:
    """The network, as it is before the first update, and the task of a description.

    Weights are drawn on the CPU from the recipe's seed, so they are the same wherever the run is computed.

    >>> network, task = build({"task": {"name": "copy"}, "model": {"name": "rnn", "hidden_size": 4}})
    >>> describe(network, task, Recipe())["model"]["initialiser"]
    'henaff'
    """
    for part in ("task", "model"):
        if "class" in description[part]:
            raise ConfigError(
                f"this run's {part} is {description[part]['class']}, which has no name here; "
                "make it in Python and pass it"
            )
    task = task_named(**description["task"])
    options = dict(description["model"])
    name = known(options.pop("name", ""), MODELS, "model")
    for option in options:
        known(option, model_defaults(name), f"option of {name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(description.get("recipe", {}).get("seed", Recipe.seed))
        recurrent = MODELS[name](task.input_size, backend=backend, **options)
        _begin_inputs(recurrent, task.input_initialiser)
        return Network(recurrent, task.num_classes, task.vocabulary, task.reads), task


def _begin_inputs(recurrent: Recurrent, initialiser: str) -> None:
    """Draw the first layer's input weights as the task's published experiments do, where it is not usual."""
    cell = getattr(recurrent.layers[0], "cell", None)
    if initialiser == Task.input_initialiser or cell is None:
        return
    with torch.no_grad():
        for block in cell.weight_ih.split(cell.hidden_size):
            INITIALISERS[initialiser](block)


def model_defaults(name: str) -> dict[str, Any]:
    """Every option of a named model that belongs to a description, with its default."""
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in _LEFT_OUT}


def _describe_model(network: nn.Module) -> dict[str, Any]:
    model = network.recurrent if isinstance(network, Network) else network
    name = type(model).__name__.lower()
    if MODELS.get(name) is not type(model):
        return _describe_stranger(network)
    options = model.options()
    return _describe_stranger(network) if options is None else {"name": name, **options}


def _describe_stranger(network: nn.Module) -> dict[str, Any]:
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    return {"class": _class_name(network), "weights": shapes}


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
