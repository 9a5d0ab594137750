"""Counting a model that no formula here knows: `transformers` builds it without memory, and it is counted."""

from __future__ import annotations

import re
from typing import Any

from plait.depthwidth.count import Count
from plait.errors import DataError, MissingExtraError, require

__all__ = ["built", "count_module"]

_NORM = re.compile(r"norm|\bln_|layernorm|\.ln\d?\.", re.IGNORECASE)
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


def built(values: dict[str, Any]) -> tuple[int, int, Count]:
    """Depth, width and count of the model that `transformers` makes of these settings."""
    family = values["model_type"]
    try:
        transformers = require("transformers", "transformers")
    except MissingExtraError:
        raise DataError(
            f"model_type {family!r} is not among those counted here; with transformers installed it is built "
            "and counted, or give --depth and --width"
        ) from None
    if family not in transformers.CONFIG_MAPPING:
        raise DataError(f"model_type {family!r} is known neither here nor to transformers")
    try:
        config = transformers.CONFIG_MAPPING[family].from_dict(values)
    except Exception as error:
        raise DataError(f"transformers does not take these settings: {error}") from error
    model = _empty(transformers, config, family)
    depth, width = getattr(config, "num_hidden_layers", None), getattr(config, "hidden_size", None)
    if not isinstance(depth, int) or not isinstance(width, int):
        raise DataError(f"model_type {family!r} has no one depth and width to judge")
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    experts = experts or getattr(config, "n_routed_experts", None) or 1
    active = getattr(config, "num_experts_per_tok", None) or experts
    return depth, width, count_module(model, 1 - active / experts)


def _empty(transformers: Any, config: Any, family: str) -> Any:
    import torch

    failed: Exception | None = None
    for name in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModel"):
        try:
            with torch.device("meta"):
                return getattr(transformers, name).from_config(config)
        except ValueError as error:  # this kind of head does not exist for the family
            failed = failed or error
        except Exception as error:
            raise DataError(f"transformers cannot build {family!r}: {error}") from error
    raise DataError(f"transformers cannot build {family!r}: {failed}")


def count_module(model: Any, unused: float = 0.0) -> Count:
    """Sort every parameter by its name; `unused` is the share of the experts that a token skips."""
    parts = dict.fromkeys(("attention", "feed_forward", "norms", "embeddings", "output"), 0)
    inactive = 0.0
    head = model.get_output_embeddings()
    heads = {id(p) for p in head.parameters()} if head is not None else set()
    for name, parameter in model.named_parameters():
        inside = re.search(r"\.\d+\.", name)
        if not inside:
            part = "norms" if _NORM.search(name) else "output" if id(parameter) in heads else "embeddings"
        elif _NORM.search(name):
            part = "norms"
        else:
            part = "attention" if _ATTENTION.search(name) else "feed_forward"
        parts[part] += parameter.numel()
        if re.search(r"\bexperts\b", name) and "shared" not in name:
            inactive += parameter.numel() * unused
    return Count(**parts, inactive=round(inactive))
