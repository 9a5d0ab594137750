"""Modules of a user's own in training: their layout, and a check of what they return before training."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, PlaitError
from plait.lab.tasks import Task

__all__ = ["OwnNetwork", "check_logits", "check_model", "own_network"]


class OwnNetwork(nn.Module):
    """Adapter of a module to inputs and logits that are time first, with a state that may stay None.

    Args:
        module: maps x, or x and a state, to logits, or to logits and a state. Logits of the last step alone
            have no time axis.
        batch_first: whether the module's x is (B, T, F) and its logits (B, T, K), or (T, B, …).
        takes_state: whether the module is called with a state.
    """

    def __init__(self, module: nn.Module, batch_first: bool, takes_state: bool) -> None:
        super().__init__()
        self.module = module
        self.batch_first, self.takes_state = batch_first, takes_state

    def forward(self, inputs: Tensor, state: Any = None, **options: Any) -> tuple[Tensor, Any]:
        """Return logits (T or 1, B, K) and the state."""
        x = inputs.transpose(0, 1) if self.batch_first else inputs
        result = self.module(x, state, **options) if self.takes_state else self.module(x, **options)
        logits, after = (result[0], result[1]) if isinstance(result, tuple) else (result, None)
        if logits.dim() == 2:
            return logits.unsqueeze(0), after
        return (logits.transpose(0, 1) if self.batch_first else logits), after


def check_model(model: Any) -> None:
    """Raise a `ConfigError` for anything but a module with values in its weights."""
    if not isinstance(model, nn.Module):
        got = "a class; construct it first" if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"model: expected a torch.nn.Module, got {'None' if model is None else got}")
    if any(weight.is_meta for weight in model.parameters()):
        raise ConfigError(
            "model: is on the meta device, without values; model.to_empty(device=…) gives it some"
        )


def own_network(module: nn.Module, batch_first: bool | None) -> nn.Module:
    """Wrap a user's module for training; return one that needs no adapter unchanged.

    `batch_first` is the layout of the user's data, used if the module has no such attribute.
    """
    takes_state = _takes_state(module)
    layout = bool(getattr(module, "batch_first", batch_first))
    return module if takes_state and not layout else OwnNetwork(module, layout, takes_state)


def _takes_state(module: nn.Module) -> bool:
    """Return whether `forward` has a second argument by position."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # compiled code
        return True
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in by_position for p in parameters) > 1 or any(
        p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters
    )


@torch.no_grad()
def check_logits(network: nn.Module, task: Task, batch_size: int) -> None:
    """Call a module of a user's own once and raise a `ConfigError` if it does not return logits."""
    weight = next(network.parameters(), None)
    if weight is None:
        raise ConfigError(f"model: expected parameters to train, {type(network).__name__} has none")
    batch = task.batch(batch_size, torch.Generator(weight.device).manual_seed(0), weight.device)
    inputs = batch.inputs.to(weight.dtype) if batch.inputs.is_floating_point() else batch.inputs
    steps, rows = inputs.shape[:2]
    last = len(batch.targets) == 1
    layout = f"({rows}, {steps}, …)" if getattr(network, "batch_first", False) else f"({steps}, {rows}, …)"
    which = "row" if last else "step"
    wanted = f"model: expected logits of {task.num_classes} values for each {which} of {layout}"
    modes = {module: module.training for module in network.modules()}
    with torch.random.fork_rng(devices=[]):
        try:
            result = network.eval()(inputs, None)
        except PlaitError:
            raise
        except Exception as error:  # the module is the user's: any error is about it
            text = str(error).partition("\n")[0]
            raise ConfigError(f"{wanted}, got {type(error).__name__}: {text}") from error
        finally:
            for module, mode in modes.items():
                module.training = mode
    if not isinstance(result, tuple) or len(result) < 2 or not isinstance(result[0], Tensor):
        raise ConfigError(f"{wanted} and a state, got {type(result).__name__}")
    shape = tuple(result[0].shape)
    allowed = [(steps, rows, task.num_classes)] + [(1, rows, task.num_classes)] * last
    if shape not in allowed:
        raise ConfigError(f"{wanted}, got {_as_returned(network, shape)}")
    if batch.lengths is not None and len(result[0]) == 1 < steps:
        raise ConfigError(
            "model: expected logits of every step, since sequences differ in length and are padded; "
            "got one for each row"
        )


def _as_returned(network: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of logits in the module's own layout."""
    if not getattr(network, "batch_first", False) or len(shape) < 2:
        return shape
    return (shape[1], shape[0], *shape[2:])
