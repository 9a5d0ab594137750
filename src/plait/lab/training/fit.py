"""`fit`: train a module on a task or on data of one's own, from Python."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError, UnknownNameError, check_choice
from plait.lab.tasks import DataTask, Task
from plait.lab.training.callbacks import Callback
from plait.lab.training.description import Network, network_for, spec_of
from plait.lab.training.module_state import note_trained_buffers, values_at_start
from plait.lab.training.own_data import own_task, whole_epochs
from plait.lab.training.own_model import check_logits, check_model, own_network
from plait.lab.training.process import device_named
from plait.lab.training.recipe import Recipe, updates_of
from plait.lab.training.session import Fitted, train
from plait.lab.training.supervised import supervised_learner

__all__ = ["fit"]


def _check_objects(recipe: object, stop_when: object, callbacks: Any) -> list[Callback]:
    """Check the objects that `fit` calls or reads; return the callbacks."""
    if not isinstance(recipe, Recipe | None):
        raise ConfigError(f"recipe: expected a Recipe, got {type(recipe).__name__}; options are keywords too")
    if not (stop_when is None or callable(stop_when)):
        raise ConfigError(f"stop_when: expected a function, got {stop_when!r}")
    called = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    methods = [name for name in vars(Callback) if not name.startswith("_")]
    for callback in called:
        if not (isinstance(callback, Callback) or all(hasattr(callback, name) for name in methods)):
            raise ConfigError(f"callbacks: expected a list of Callback, got {type(callback).__name__}")
    return called


def option_of_fit(name: str) -> str:
    """Return the name of an option of `fit`; for a name that other libraries use the error shows plait's.

    >>> option_of_fit("learning_rate")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown option of fit 'learning_rate': did you mean 'lr'?
    """
    other = _ELSEWHERE.get(name)
    if other:
        raise UnknownNameError(f"unknown option of fit {name!r}: did you mean {other!r}?")
    own = [name for name in inspect.signature(fit).parameters if name not in ("model", "task", "changes")]
    return check_choice(name, [*own, *(field.name for field in dataclasses.fields(Recipe))], "option of fit")


# Names that other libraries give to options of `fit`.
_ELSEWHERE = {
    "learning_rate": "lr",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "epoch": "epochs",
    "steps": "updates",
    "max_steps": "updates",
    "iterations": "updates",
    "bs": "batch_size",
    "random_state": "seed",
    "validation_data": "held_out",
    "validation_split": "held_out",
    "val": "held_out",
    "verbose": "progress",
}


def fit(
    model: nn.Module,
    task: Any,
    recipe: Recipe | None = None,
    *,
    held_out: Any = None,
    batch_first: bool | None = None,
    device: str | torch.device = "auto",
    folder: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 500,
    max_minutes: float | None = None,
    epochs: int | None = None,
    stop_when: Callable[[], bool] | None = None,
    progress: bool = False,
    callbacks: Iterable[Callback] = (),
    **changes: Any,
) -> Fitted:
    """Train `model` on `task`, or on your own data.

    Everything random is a function of the recipe's seed and of the update's number, so a run that was
    stopped or killed and is resumed ends with bit-exactly the same weights as one that was not (same
    device type, torch version and number of threads). Under torchrun the batch is split among the processes.

    Args:
        model: a `plait` model or `torch.nn.LSTM`-like layer, which gets an output layer; or any module that
            maps x to logits, or x and a state to logits and a state. Its x is (B, T, F) if the module's
            `batch_first`, or else the data's, is True, and (T, B, F) otherwise. It is trained in place.
        task: a task; or (X, y), (X, y, lengths), a `Dataset` or a `DataLoader`, see
            `plait.lab.tasks.data_task`.
        recipe: hyperparameters; single ones can be passed as keywords instead.
        held_out: required for your own data: the share of sequences to hold out, or other data.
        batch_first: for your own data: whether they are (N, T, F); left out, as the model's.
        device: auto, cpu, cuda or cuda:N.
        folder: folder of the run; without one, nothing is written and signals are not handled.
        resume: resume the run in `folder`.
        checkpoint_every: updates between two checkpoints.
        max_minutes: save and stop after this many minutes.
        epochs: epochs over a data set, instead of the recipe's `updates`.
        stop_when: called after every update; save and stop once it returns True.
        progress: show a progress bar, or lines where there is no terminal, on stderr.
        callbacks: additional callbacks.
        changes: values of the recipe. For your own data the defaults differ, unless a recipe is passed:
            batches of at most 32, and all held-out data are scored after whole epochs.

    Raises:
        DivergedError: if a value is not finite; it names the update and the tensor.

    >>> from plait.models import RelRNN
    >>> from plait.lab.tasks import CopyTask
    >>> fitted = fit(RelRNN(10, 8), CopyTask(delay=3), updates=2, batch_size=4, evaluate_on=4, device="cpu")
    >>> fitted.status, fitted.summary["updates"]
    ('complete', 2)
    """
    for name in changes:
        option_of_fit(name)
    check_model(model)
    callbacks = _check_objects(recipe, stop_when, callbacks)
    if isinstance(task, Task):
        if held_out is not None or batch_first is not None:
            raise ConfigError("held_out, batch_first: for data of one's own; a task says both itself")
    else:
        task, defaults = own_task(model, task, held_out, batch_first, changes)
        changes = changes if recipe else {**defaults, **changes}
    has_recipe = recipe is not None
    recipe = (recipe or Recipe()).changed(**changes).check()
    if epochs is not None:
        recipe = recipe.changed(updates=updates_of(task, recipe.batch_size, epochs))
    if isinstance(task, DataTask) and not has_recipe and "evaluate_every" not in changes:
        recipe = recipe.changed(evaluate_every=whole_epochs(task, recipe))
    target = device_named(device)
    task.prepare(target)
    network = network_for(model, task, recipe.seed)
    if isinstance(network, Network):
        network.task = dataclasses.replace(task, data=None) if isinstance(task, DataTask) else task
    if network is model and not isinstance(network, Network):
        network = own_network(model, batch_first)
        check_logits(network, task, recipe.batch_size)
    spec, began = spec_of(network, task, recipe), values_at_start(network)
    try:
        return train(
            lambda group: supervised_learner(network, task, recipe, target, group),
            spec,
            target,
            folder=folder,
            resume=resume,
            checkpoint_every=checkpoint_every,
            max_minutes=max_minutes,
            stop_when=stop_when,
            progress=progress,
            callbacks=callbacks,
        )
    finally:
        note_trained_buffers(began)
