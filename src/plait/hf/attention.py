"""Attention functions registered with `transformers`, through which a model reads a bounded cache.

A model whose attention is one of these runs `transformers`' own function wherever another cache, or none, is
used. The key that a bounded layer returns from `update` carries that layer, and the layer then computes the
attention: heads keep different states, which the masks of `transformers` cannot express.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, require

__all__ = ["LAYER", "attach", "is_attached", "pass_hidden_states"]

LAYER = "plait_layer"  # attribute of a key: the layer of a bounded cache that holds its past
_PREFIX = "plait_"
# Arguments that change what attention computes and that a bounded cache does not know.
_UNKNOWN = ("softcap", "sliding_window", "position_bias", "s_aux")


def attach(model: Any) -> None:
    """Make a model read bounded caches; with any other cache it computes what it did before."""
    if is_attached(model.config):
        return
    if not model._can_set_attn_implementation():
        raise ConfigError(
            f"{type(model).__name__}: expected a model whose attention function can be set, got one that has "
            "its own; take a model that uses transformers' AttentionInterface"
        )
    base = "eager" if model.config._attn_implementation == "eager" else "sdpa"
    _register()
    model.set_attn_implementation(_PREFIX + base)


def pass_hidden_states(model: Any) -> None:
    """Make the attention modules of a model pass their input to the layers of its cache that take it."""
    for module in model.modules():
        if hasattr(module, "layer_idx") and _keep_hidden not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_keep_hidden, with_kwargs=True)


def _keep_hidden(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    kind = require("transformers.cache_utils", "hf").Cache
    cache = next((x for x in (*options.values(), *args) if isinstance(x, kind)), None)
    index: Any = module.layer_idx
    if cache is None or index is None or index >= len(cache.layers):
        return
    layer = cache.layers[index]
    if hasattr(layer, "hidden"):  # set again by the attention itself, where its layer has a number, too
        layer.hidden = options.get("hidden_states", args[0] if args else None)


def is_attached(config: Any) -> bool:
    """Return whether a model of this configuration reads bounded caches."""
    return str(config._attn_implementation).startswith(_PREFIX)


def _register() -> None:
    masks = require("transformers.masking_utils", "hf")
    modeling = require("transformers.modeling_utils", "hf")
    for base, function in (("sdpa", _sdpa), ("eager", _eager)):
        modeling.AttentionInterface.register(_PREFIX + base, function)
        mask = masks.ALL_MASK_ATTENTION_FUNCTIONS[base]
        masks.AttentionMaskInterface.register(_PREFIX + base, mask)


def _sdpa(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    if hasattr(key, LAYER):
        return _bounded(module, query, key, value, attention_mask, **options)
    modeling = require("transformers.modeling_utils", "hf")
    stock = modeling.ALL_ATTENTION_FUNCTIONS["sdpa"]
    result: tuple[Tensor, Tensor | None] = stock(module, query, key, value, attention_mask, **options)
    return result


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    if hasattr(key, LAYER):
        return _bounded(module, query, key, value, attention_mask, **options)
    # each family defines its own function, in the module of its attention class
    homes = (sys.modules[kind.__module__] for kind in type(module).__mro__)
    stock = next(home.eager_attention_forward for home in homes if hasattr(home, "eager_attention_forward"))
    result: tuple[Tensor, Tensor | None] = stock(module, query, key, value, attention_mask, **options)
    return result


def _bounded(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    for name in _UNKNOWN:
        if options.get(name) is not None:
            raise ConfigError(
                f"{name}: {type(module).__name__} uses it, and a bounded cache has no such term"
            )
    if options.get("output_attentions") or getattr(
        getattr(module, "config", None), "output_attentions", False
    ):
        raise ConfigError(
            "output_attentions: a bounded cache gives no attention weights; take cache.births(layer) for the "
            "states it keeps, or another cache"
        )
    if dropout:
        raise ConfigError(f"dropout: expected 0 with a bounded cache, got {dropout:g}; call model.eval()")
    layer: Any = getattr(key, LAYER)
    output: Tensor = layer.read(query, key, value, valid=_valid(attention_mask, query), scaling=scaling)
    return output.transpose(1, 2).contiguous(), None


def _valid(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """Return (B, n): False at padding, read off the diagonal of the chunk's own mask."""
    if mask is None:
        return None
    steps = query.shape[2]
    if mask.dim() != 4 or mask.shape[2:] != (steps, steps):
        raise ConfigError(
            f"attention_mask: expected (B, tokens) with a bounded cache, got a mask of {tuple(mask.shape)}"
        )
    diagonal = mask[:, 0].diagonal(dim1=1, dim2=2)
    return diagonal if diagonal.dtype == torch.bool else diagonal == 0
