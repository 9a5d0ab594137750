"""What torch's own tools meet when they are given one of these layers: it works, or one line says why not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._C import _functorch

from plait.errors import BackendError, UnloadedWarning

__all__ = ["TorchTools", "is_transformed", "refuse_old_exports"]

_INSTEAD = "use torch.export.export, or torch.compile"


class TorchTools(nn.Module):
    """Abstract: a module that says what torch's tools would not."""

    def __prepare_scriptable__(self) -> nn.Module:
        """What `torch.jit.script` calls first, on whatever is inside of what it was given."""
        raise BackendError(f"torch.jit.script cannot compile {type(self).__name__}; {_INSTEAD}")

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """The weights of a layer of `torch.nn` have other names, and none would be taken: with strict=False
        in silence. (torch does not say here which of the two was asked for.)"""
        if f"{prefix}weight_ih_l0" in state_dict:
            name = type(self).__name__
            remedy = f"; {name}.from_torch(layer) takes them over" if hasattr(self, "from_torch") else ""
            warnings.warn(
                f"{prefix}weight_ih_l0 and its siblings are weights of a torch.nn layer: none of them is "
                f"loaded into {name}{remedy}",
                UnloadedWarning,
                stacklevel=4,  # at the line that called load_state_dict
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def flatten_parameters(self) -> None:
        """Nothing to do; here because code written for `torch.nn.LSTM` calls it."""

    def reset_parameters(self) -> None:
        """Draw all weights anew, as they were drawn when the model was made."""
        for module in self.modules():
            if module is not self and callable(draw := getattr(module, "reset_parameters", None)):
                draw()


def refuse_old_exports(module: nn.Module) -> None:
    """Say what cannot follow a layer through its scan: `torch.jit.trace`, and exporters to ONNX.

    A trace would hold one length, and a function of Python that cannot be saved; ONNX has no such operator.
    """
    if torch.compiler.is_dynamo_compiling():
        return
    name = type(module).__name__
    if torch.onnx.is_in_onnx_export():
        raise BackendError(f"ONNX has no operator for the scan of {name}; use torch.export.save (.pt2)")
    if torch._C._is_tracing():
        raise BackendError(f"torch.jit.trace cannot record {name}; {_INSTEAD}")


def is_transformed() -> bool:
    """Whether a transform of `torch.func` (vmap, grad, jvp, …) is at work: fused code has no rules for them,
    the reference needs none."""
    return _functorch.peek_interpreter_stack() is not None
