"""Checked loading of optimiser state: a fused optimiser writes memory by shapes that it does not check."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plait.errors import CheckpointError

__all__ = ["restore_optimizer"]


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Sequence[str], tensors: Mapping[str, Tensor]
) -> None:
    """Load tensors named `optimizer.<parameter>.<key>`; `names` are the parameters in the optimiser's order.

    Raises:
        CheckpointError: if names, shapes or dtypes are not those this optimiser has for a parameter.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    like = _scalar_state(optimizer, parameters[0])
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, parameter) in enumerate(zip(names, parameters, strict=True)):
        prefix = f"optimizer.{name}."
        saved = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if not saved:
            continue
        if saved.keys() != like.keys():
            raise CheckpointError(
                f"{prefix}*: expected {', '.join(sorted(like))}, got {', '.join(sorted(saved))}; "
                "the checkpoint is of another optimiser"
            )
        for key, value in saved.items():
            shape = parameter.shape if like[key].dim() else like[key].shape
            dtype = parameter.dtype if like[key].dim() else like[key].dtype
            if value.shape != shape or value.dtype != dtype:
                raise CheckpointError(
                    f"{prefix}{key}: expected {dtype} {tuple(shape)}, got {value.dtype} "
                    f"{tuple(value.shape)}; the checkpoint does not fit the model"
                )
        # Cloned: a tensor from a file lies at any address, and products on a CPU round by alignment.
        state[index] = {key: value.clone() for key, value in saved.items()}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _scalar_state(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return the state that such an optimiser has for a parameter of one element, after a step of a twin."""
    accepted = inspect.signature(type(optimizer)).parameters
    number = torch.zeros(1, dtype=parameter.dtype, device=parameter.device, requires_grad=True)
    number.grad = torch.zeros_like(number)
    twin = type(optimizer)([number], **{k: v for k, v in optimizer.defaults.items() if k in accepted})
    twin.step()
    return {key: torch.as_tensor(value) for key, value in twin.state[number].items()}
