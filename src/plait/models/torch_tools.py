"""Support of torch's own tools by these layers: each works, or a one-line error gives the reason."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._C import _functorch

from plait.errors import BackendError, UnloadedWarning

__all__ = ["TorchTools", "needs_reference"]

_INSTEAD = "use torch.export.export, or torch.compile"


class TorchTools(nn.Module):
    """Abstract base class of layers that torch's tools handle, or refuse with an explanation."""

    def __prepare_scriptable__(self) -> nn.Module:
        """Refuse `torch.jit.script`, which calls this first on every submodule."""
        raise BackendError(f"torch.jit.script cannot compile {type(self).__name__}; {_INSTEAD}")

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the weights, and warn where they are those of a `torch.nn` layer.

        Their names differ, so none would be loaded, and strict=False would hide that. (torch does not pass on
        here which `strict` the caller chose.)
        """
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

    def _slow_forward(self, *inputs: Any, **options: Any) -> Any:
        """Refuse to be recorded by TorchScript.

        torch calls this in place of `forward` while it records, for `torch.jit.trace` and for the old
        exporter to ONNX, which is built on it. The recording could not be saved: it calls Python.
        """
        name = type(self).__name__
        if torch.onnx.is_in_onnx_export():
            raise BackendError(f"torch.onnx.export(dynamo=False) cannot record {name}; leave dynamo at True")
        raise BackendError(f"torch.jit.trace cannot record {name}; {_INSTEAD}")

    def flatten_parameters(self) -> None:
        """Do nothing; code written for `torch.nn.LSTM` calls it."""

    def reset_parameters(self) -> None:
        """Redraw all weights, as when the model was created."""
        for module in self.modules():
            if module is not self and callable(draw := getattr(module, "reset_parameters", None)):
                draw()


def needs_reference() -> bool:
    """Return whether plain steps are required.

    A transform of `torch.func` (vmap, grad, jvp, …) requires them, for which fused code has no rules and the
    reference needs none; so does an export to ONNX, which knows only torch's own operators.
    """
    if _is_transformed():
        return True
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def _is_transformed() -> bool:
    return _functorch.peek_interpreter_stack() is not None


# A constant to torch.compile, as `_resolve` in `ops/scan/backends.py`: the compiler of torch 2.11 wraps
# this return value, and the wrapper is never None. A graph is guarded by that stack in any case.
_is_transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]
