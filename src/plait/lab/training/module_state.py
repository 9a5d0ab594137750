"""Attributes of a module that are not options: torch's internals, weights, values computed from them."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from plait.memory import NoMemory
from plait.models.layer import Layer
from plait.models.self_attentive import SelfAttentive
from plait.models.torch_tools import TorchTools

__all__ = ["is_instrument", "no_options", "special_weights"]

_BASE = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
# The backend and the warnings already issued do not change what a layer of plait computes.
_OURS = frozenset({"backend", "warns_of_empty_memory"})
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
    hooks = module._forward_pre_hooks.values()
    by_hooks = {getattr(hook, "name", "") for hook in hooks if type(hook).__module__.startswith("torch.")}
    attributes = vars(module).items()
    return frozenset(n for n, v in attributes if n in by_hooks or (isinstance(v, Tensor) and not v.is_leaf))


def special_weights(network: nn.Module) -> dict[str, Any]:
    """Return the weights that are not float32, that are frozen and that are tied."""
    special: dict[str, Any] = {"dtypes": {}, "frozen": [], "tied": {}}
    first: dict[int, str] = {}
    for name, weight in network.named_parameters(remove_duplicate=False):
        if first.setdefault(id(weight), name) != name:
            special["tied"][name] = first[id(weight)]
        if weight.dtype != torch.float32:
            special["dtypes"][name] = str(weight.dtype).removeprefix("torch.")
        if not weight.requires_grad:
            special["frozen"].append(name)
    return {key: value for key, value in special.items() if value}


def is_instrument(hook: Any) -> bool:
    """Return whether a hook belongs to plait, whose hooks only observe."""
    hook = hook.__func__ if isinstance(hook, types.MethodType) else hook
    return isinstance(hook, types.FunctionType) and str(hook.__globals__.get("__name__")).startswith("plait.")
