"""The layers of a model whose cache can be bounded."""

from __future__ import annotations

from typing import Any

from plait.errors import ConfigError, require

__all__ = ["full_attention_layers"]

cache_utils: Any = require("transformers.cache_utils", "hf")


def full_attention_layers(model: Any) -> list[int]:
    """Return the numbers of the layers whose cache grows with the text.

    Raises:
        ConfigError: if the model has none, or has layers of another kind than full and sliding attention.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise ConfigError(f"model: expected a model of transformers, got {type(model).__name__}")
    family = config.model_type
    if config.is_encoder_decoder:
        raise ConfigError(f"model: expected a decoder alone, got {family!r}, an encoder with a decoder")
    config = config.get_text_config(decoder=True)
    layers = []
    if hasattr(config, "num_attention_heads") and not getattr(model, "_is_stateful", False):
        layers = cache_utils.DynamicCache(config=config).layers
    kinds = {type(layer) for layer in layers} - {
        cache_utils.DynamicLayer,
        cache_utils.DynamicSlidingWindowLayer,
    }
    bounded = [i for i, layer in enumerate(layers) if type(layer) is cache_utils.DynamicLayer]
    if kinds or not bounded:
        other = f"layers with {', '.join(sorted(kind.__name__ for kind in kinds))}" if kinds else "none"
        raise ConfigError(f"model: expected layers of full attention, got {family!r}, which has {other}")
    return bounded
