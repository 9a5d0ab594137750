"""What a module holds beside its options: the machinery of torch, its weights, what is computed from them."""

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
# Where a layer of plait is computed, and what it has warned of, is not what it is.
_OURS = frozenset({"backend", "warns_of_empty_memory"})
# Of nn.LSTM: its weights once more, under other names.
_TORCHS = frozenset({"_flat_weights", "_flat_weight_refs", "_flat_weights_names", "_all_weights"})


def no_options(module: nn.Module) -> frozenset[str]:
    """Return the attributes of a module that do not say what it computes."""
    found = _BASE | _repeated(module) | _computed(module)
    found |= _OURS if isinstance(module, Layer | TorchTools) else frozenset()
    found |= _TORCHS if isinstance(module, nn.RNNBase) else frozenset()
    if type_before_parametrizations(module).__module__.startswith("torch."):
        # what it keeps for itself changes with its version
        found |= {name for name in vars(module) if name.startswith("_")}
    return found


def _repeated(module: nn.Module) -> frozenset[str]:
    """Return the attributes of a layer of plait that only repeat what its cell and its memory say."""
    if not isinstance(module, SelfAttentive):
        return frozenset()
    cell, memory = module.cell, module.memory
    parts = {name: getattr(cell, name, None) for name in ("input_size", "hidden_size", "has_cell_state")}
    parts |= {"initial_width": memory.initial_width, "has_memory": not isinstance(memory, NoMemory)}
    return frozenset(name for name, value in parts.items() if getattr(module, name) == value)


def _computed(module: nn.Module) -> frozenset[str]:
    """Return the attributes computed from weights: by `torch.nn.utils.weight_norm`, or at each call."""
    hooks = module._forward_pre_hooks.values()
    by_hooks = {getattr(hook, "name", "") for hook in hooks if type(hook).__module__.startswith("torch.")}
    attributes = vars(module).items()
    return frozenset(n for n, v in attributes if n in by_hooks or (isinstance(v, Tensor) and not v.is_leaf))


def special_weights(network: nn.Module) -> dict[str, Any]:
    """Return which weights are not float32, which are frozen, and which are one and the same."""
    found: dict[str, Any] = {"dtypes": {}, "frozen": [], "tied": {}}
    first: dict[int, str] = {}
    for name, one in network.named_parameters(remove_duplicate=False):
        if first.setdefault(id(one), name) != name:
            found["tied"][name] = first[id(one)]
        if one.dtype != torch.float32:
            found["dtypes"][name] = str(one.dtype).removeprefix("torch.")
        if not one.requires_grad:
            found["frozen"].append(name)
    return {key: value for key, value in found.items() if value}


def is_instrument(hook: Any) -> bool:
    """Return whether a hook is one of plait's own, which reads and changes nothing."""
    hook = hook.__func__ if isinstance(hook, types.MethodType) else hook
    return isinstance(hook, types.FunctionType) and str(hook.__globals__.get("__name__")).startswith("plait.")
