"""State of a network's modules: which of it determines what is computed, and which training changes."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from plait.lab.training.digests import tensor_text
from plait.memory import NoMemory
from plait.models.layer import Layer
from plait.models.self_attentive import SelfAttentive
from plait.models.torch_tools import TorchTools

__all__ = [
    "constant_buffers",
    "fixed_modes",
    "is_instrument",
    "no_options",
    "note_trained_buffers",
    "special_weights",
    "value_at_start",
    "values_at_start",
]

_BASE = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
# The backend and the warnings already issued do not change what a layer of plait computes.
_OURS = frozenset({"backend", "warns_of_empty_memory"})
_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
# Digests of buffers as training left them, and as they were when it began.
_TRAINED: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[str, str]]] = weakref.WeakKeyDictionary()
# nn.LSTM keeps its weights a second time under these names.
_TORCHS = frozenset({"_flat_weights", "_flat_weight_refs", "_flat_weights_names", "_all_weights"})


def no_options(module: nn.Module) -> frozenset[str]:
    """Return the attributes of a module that do not determine what it computes."""
    names = _BASE | _repeated(module) | _computed(module)
    names |= _OURS if isinstance(module, Layer | TorchTools) else frozenset()
    names |= _TORCHS if isinstance(module, nn.RNNBase) else frozenset()
    if type_before_parametrizations(module).__module__.startswith("torch."):
        # torch's private attributes change with its version
        names |= {name for name in vars(module) if name.startswith("_")}
    return names


def _repeated(module: nn.Module) -> frozenset[str]:
    """Return the attributes of a layer of plait that repeat those of its cell and its memory."""
    if not isinstance(module, SelfAttentive):
        return frozenset()
    cell, memory = module.cell, module.memory
    parts = {name: getattr(cell, name, None) for name in ("input_size", "hidden_size", "has_cell_state")}
    parts |= {"initial_width": memory.initial_width, "has_memory": not isinstance(memory, NoMemory)}
    return frozenset(name for name, value in parts.items() if getattr(module, name) == value)


def _computed(module: nn.Module) -> frozenset[str]:
    """Return the attributes computed from weights, by `torch.nn.utils.weight_norm` or in a forward pass."""
    by_hooks, attributes = _hooked_weights(module), vars(module).items()
    return frozenset(n for n, v in attributes if n in by_hooks or (isinstance(v, Tensor) and not v.is_leaf))


def _hooked_weights(module: nn.Module) -> set[str]:
    """Return the names of weights that torch's hooks compute, as those of `weight_norm` do."""
    hooks = module._forward_pre_hooks.values()
    return {getattr(hook, "name", "") for hook in hooks if type(hook).__module__.startswith("torch.")}


def constant_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of a module, except running statistics and those computed from weights or data."""
    computed = _STATISTICS | {f"{name}_{part}" for name in _hooked_weights(module) for part in "uv"}
    if type_before_parametrizations(module).__module__.startswith(("plait.", "torch.nn.utils.")):
        computed |= {
            name
            for name, buffer in module._buffers.items()
            if name not in module._non_persistent_buffers_set
            and buffer is not None
            and buffer.dtype != torch.bool
        }
    buffers = module._buffers.items()
    return {name: buffer for name, buffer in buffers if buffer is not None and name not in computed}


def values_at_start(network: nn.Module) -> dict[tuple[nn.Module, str], str]:
    """Return digests of the constant buffers, as they were when training of the network began."""
    return {
        (module, name): value_at_start(module, name, buffer) or tensor_text(buffer)
        for module in network.modules()
        for name, buffer in constant_buffers(module).items()
        if buffer.layout == torch.strided
    }


def value_at_start(module: nn.Module, name: str, buffer: Tensor) -> str | None:
    """Return the digest of a buffer before training; None if it did not change, or not by training alone."""
    left, began = _TRAINED.get(module, {}).get(name, ("", ""))
    return began if left and tensor_text(buffer) == left else None


def note_trained_buffers(began: dict[tuple[nn.Module, str], str]) -> None:
    """Remember how training changed the buffers of a network, which keeps the description of its run."""
    for (module, name), before in began.items():
        buffer = module._buffers.get(name)
        if buffer is not None and (now := tensor_text(buffer)) != before:
            _TRAINED.setdefault(module, {})[name] = (now, before)


def fixed_modes(network: nn.Module) -> dict[str, Any]:
    """Return the modules that `train()` leaves in evaluation mode, and those `eval()` leaves training."""
    modes = [(module, module.training) for module in network.modules()]
    fixed = {}
    try:
        for mode in (True, False):
            network.train(mode)
            kept = [path for path, module in network.named_modules() if module.training != mode]
            if kept:
                fixed["always evaluated" if mode else "always training"] = kept
    finally:
        for module, mode in modes:
            module.training = mode
    return fixed


def special_weights(network: nn.Module) -> dict[str, Any]:
    """Return the weights that are not float32, that are frozen (with their values) and that are tied."""
    special: dict[str, Any] = {"dtypes": {}, "frozen": {}, "tied": {}}
    first: dict[int, str] = {}
    for name, weight in network.named_parameters(remove_duplicate=False):
        if first.setdefault(id(weight), name) != name:
            special["tied"][name] = first[id(weight)]
        if weight.dtype != torch.float32:
            special["dtypes"][name] = str(weight.dtype).removeprefix("torch.")
        if not weight.requires_grad:
            special["frozen"][name] = tensor_text(weight)
    return {key: value for key, value in special.items() if value}


def is_instrument(hook: Any) -> bool:
    """Return whether a hook belongs to plait, whose hooks only observe."""
    hook = hook.__func__ if isinstance(hook, types.MethodType) else hook
    return isinstance(hook, types.FunctionType) and str(hook.__globals__.get("__name__")).startswith("plait.")
