"""Estimates of the memory an update takes, so that one that cannot fit is refused before it begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from plait.estimates import FLOAT, check_fits
from plait.lab.tasks import Task
from plait.lab.training.recipe import Recipe

__all__ = ["check_update", "slot_numbers", "update_bytes"]


def check_update(
    network: nn.Module, task: Task, recipe: Recipe, device: torch.device, processes: int = 1
) -> None:
    """Refuse an update of a recipe that cannot fit where it is to be computed.

    Raises:
        ConfigError: with the estimate, and what to change.
    """
    advice = "take a smaller batch (or accumulate more parts), shorter sequences, a smaller model or memory"
    check_fits(update_bytes(network, task, recipe, processes), advice, str(device))


def update_bytes(network: nn.Module, task: Task, recipe: Recipe, processes: int = 1) -> int:
    """Return the bytes of an update in addition to the weights.

    These are gradients and two optimiser moments per weight; for one part of a batch the inputs, every
    layer's states and projections with their gradients, and the logits; for a bounded memory its slots and
    the trace of the slots that every step read.

    >>> from plait.models import LSTM
    >>> from plait.lab.tasks import CopyTask
    >>> from plait.lab.training.description import Network
    >>> from plait.lab.training.recipe import Recipe
    >>> update_bytes(Network(LSTM(10, 128), 9), CopyTask(100), Recipe(batch_size=32)) / 1e6
    10.99...
    """
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    steps = int(next((n for name in ("length", "span", "longest") if (n := getattr(task, name, 0))), 0))
    rows = -(-recipe.batch_size // (recipe.accumulate * processes))
    logits = task.num_classes * (task.answers or (steps if task.reads == "all" else 1))
    states, slots = sum(map(_numbers_per_step, _layers(network))), slot_numbers(network)
    number = FLOAT if recipe.precision == "fp32" else FLOAT // 2
    return int(3 * weights + number * rows * (steps * (task.input_size + states) + logits + slots))


def slot_numbers(network: nn.Module) -> int:
    """Return how many numbers the slots of a network's bounded memories hold for one row."""
    bounded = (layer for layer in _layers(network) if layer.initial_width)
    return int(sum(layer.slot_size * layer.initial_width for layer in bounded))


def _layers(network: nn.Module) -> list[Any]:
    """Return the layers of a network's stack, empty for a module without one."""
    return list(getattr(getattr(network, "recurrent", None), "layers", ()))


def _numbers_per_step(layer: Any) -> int:
    """Return how many numbers a layer saves per step and row for its backward pass.

    Layers without a memory may be torch's own, which save fewer.
    """
    states = int(layer.hidden_size * (1 + getattr(getattr(layer, "cell", None), "gates", 1)))
    return 2 * (states + layer.initial_width) if layer.initial_width else states
