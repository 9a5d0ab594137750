"""What torch's own tools meet when they are given one of these layers: it works, or one line says why not."""

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

    def _slow_forward(self, *inputs: Any, **options: Any) -> Any:
        """What torch calls in place of `forward` while TorchScript records: `torch.jit.trace`, and the old
        exporter to ONNX, which is built on it. What they record cannot be saved: it calls Python."""
        name = type(self).__name__
        if torch.onnx.is_in_onnx_export():
            raise BackendError(f"torch.onnx.export(dynamo=False) cannot record {name}; leave dynamo at True")
        raise BackendError(f"torch.jit.trace cannot record {name}; {_INSTEAD}")

    def flatten_parameters(self) -> None:
        """Nothing to do; here because code written for `torch.nn.LSTM` calls it."""

    def reset_parameters(self) -> None:
        """Draw all weights anew, as they were drawn when the model was made."""
        for module in self.modules():
            if module is not self and callable(draw := getattr(module, "reset_parameters", None)):
                draw()


def needs_reference() -> bool:
    """Whether plain steps are wanted: by a transform of `torch.func` (vmap, grad, jvp, …), for which fused
    code has no rules and the reference needs none, or by an export to ONNX, which knows only torch's own.
    """
    if _is_transformed():
        return True
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def _is_transformed() -> bool:
    return _functorch.peek_interpreter_stack() is not None


# A constant to torch.compile, as `_resolve` in `ops/scan/backends.py`: the compiler of torch 2.11 wraps what
# it is given here, and finds that not to be None. A graph is guarded by that stack in any case.
_is_transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]
