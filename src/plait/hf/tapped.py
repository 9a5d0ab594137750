"""A cache for one pass over whole texts in which a function computes the attention of each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from plait.errors import ConfigError, require
from plait.hf.attention import LAYER, attach, is_attached, pass_hidden_states
from plait.hf.layers import full_attention_layers
from plait.hf.policies import Token

__all__ = ["Attention", "TappedCache"]

cache_utils: Any = require("transformers.cache_utils", "hf")

# (query (B, heads, T, D), the states of a layer) -> (B, heads, T, D); energies are query·key/√D.
Attention = Callable[[Tensor, Token], Tensor]


class TappedCache(cache_utils.Cache):
    """A cache that keeps nothing, for one call of a model without padding; a new one for the next call.

    Training needs the queries, keys and values of every layer, and attention of its own; with this cache a
    model of `transformers` calls `attention` where it would read a `BoundedCache`, gradients included.

    Args:
        model: a decoder of `transformers` that `BoundedCache` takes.
        attention: computes what the queries of one layer read.
    """

    def __init__(self, model: Any, attention: Attention) -> None:
        bounded = full_attention_layers(model)
        config = model.config.get_text_config(decoder=True)
        layers = cache_utils.DynamicCache(config=config).layers
        for index in bounded:
            layers[index] = _TappedLayer(index, attention, config)
        super().__init__(layers=layers)
        attach(model)
        pass_hidden_states(model)


class _TappedLayer(cache_utils.CacheLayerMixin):
    is_compileable = False
    is_sliding = False

    def __init__(self, index: int, attention: Attention, config: Any) -> None:
        super().__init__()
        self.index, self.attention, self.config = index, attention, config
        self.is_used = False
        self.hidden: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self.is_used or not is_attached(self.config):
            raise ConfigError("attention: expected one call with a new TappedCache(model), got another")
        self.is_used = True
        key_states = key_states.view_as(key_states)
        setattr(key_states, LAYER, self)
        return key_states, value_states

    def read(
        self, query: Tensor, key: Tensor, value: Tensor, *, valid: Tensor | None, scaling: float | None
    ) -> Tensor:
        """Return what the queries read; `valid` is not all True only with padding, which is not supported."""
        if scaling is not None:
            query = query * (scaling * query.shape[3] ** 0.5)
        number = torch.arange(key.shape[2], device=key.device).expand(len(key), -1)
        hidden, self.hidden = self.hidden, None
        return self.attention(query, Token(key, value, number, self.index, hidden))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1
