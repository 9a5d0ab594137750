"""A Hugging Face `config.json` as an `Architecture`: the shape a model really has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.depthwidth.count import Architecture
from plait.errors import ConfigError, DataError

__all__ = ["ModelConfig", "parse_config", "read_config"]

# Our name -> the names configuration files use for it.
_KEYS = {
    "depth": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "inner": ("intermediate_size", "n_inner", "ffn_dim"),
    "kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
}

_MODERN = {
    "gated": True,
    "positions": 0,
    "query_key_value_bias": False,
    "output_bias": False,
    "feed_forward_bias": False,
    "norm_params": 1,
    "tied": False,
}
# model_type -> what differs from GPT-2; families whose published totals this count reproduces.
_FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt_neox": {"positions": 0, "tied": False},
    "llama": _MODERN,
    "mistral": _MODERN,
    "qwen2": {**_MODERN, "query_key_value_bias": True},
    "qwen3": {**_MODERN, "head_norms": 2},
    "olmo": {**_MODERN, "norm_params": 0},
}


@dataclass(frozen=True)
class ModelConfig:
    """The architecture a file describes, its family, and what had to be assumed."""

    architecture: Architecture
    family: str
    assumed: tuple[str, ...]


def read_config(path: str | Path) -> ModelConfig:
    """Read a local `config.json`.

    Raises:
        DataError: the file is missing, is not JSON, or describes no Transformer.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_config(content, path)


def parse_config(content: bytes, path: str | Path = "config.json") -> ModelConfig:
    """What a `config.json` says; `path` is what an error calls it."""
    try:
        values = json.loads(content.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise DataError(
            f"{path}: expected a JSON object with a model's settings, got {type(values).__name__}"
        )
    if not _first(values, "depth") and isinstance(values.get("text_config"), dict):
        values = values["text_config"]  # the language part of a model of several senses
    return _interpret(path, values)


def _first(values: dict[str, Any], name: str) -> Any:
    return next((values[key] for key in _KEYS[name] if values.get(key) is not None), None)


def _interpret(path: str | Path, values: dict[str, Any]) -> ModelConfig:
    found = {name: _first(values, name) for name in _KEYS}
    missing = [" or ".join(_KEYS[name]) for name in ("depth", "width", "heads") if found[name] is None]
    if missing:
        raise DataError(f"{path}: is not a Transformer's config.json: it lacks {', '.join(missing)}")
    for name, value in found.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise DataError(f"{path}: {name}: expected a positive whole number, got {value!r}")
    for sign in ("num_local_experts", "num_experts", "n_routed_experts"):
        if (values.get(sign) or 1) > 1:
            raise DataError(f"{path}: mixtures of experts ({sign} = {values[sign]}) are not counted here")
    family = str(values.get("model_type", "unknown"))
    assumed = [f"vocab_size = {Architecture.vocab}"] if found["vocab"] is None else []
    rules = _FAMILIES.get(family)
    if rules is None:
        rules = _guess(values)
        assumed.append(f"model_type {family!r} is not known here: counted as {_name(rules)}")
    rules = {**rules, **_explicit(values, family)}
    if rules.get("positions", 1) and family not in ("unknown",):
        rules["positions"] = values.get("n_positions") or values.get("max_position_embeddings") or 1024
    sizes = {name: value for name, value in found.items() if value is not None}
    try:
        architecture = Architecture(**sizes, **rules)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    return ModelConfig(architecture, family, tuple(assumed))


def _explicit(values: dict[str, Any], family: str) -> dict[str, Any]:
    """What a file says itself, over what its family usually does."""
    said: dict[str, Any] = {}
    if isinstance(values.get("tie_word_embeddings"), bool):
        said["tied"] = values["tie_word_embeddings"]
    if family in ("llama", "qwen3") and isinstance(values.get("attention_bias"), bool):
        said["query_key_value_bias"] = said["output_bias"] = values["attention_bias"]
    if isinstance(values.get("mlp_bias"), bool):
        said["feed_forward_bias"] = values["mlp_bias"]
    return said


def _guess(values: dict[str, Any]) -> dict[str, Any]:
    """An unknown family: grouped heads, RMS norms or a SiLU mark the modern block."""
    marks = ("num_key_value_heads", "rms_norm_eps")
    modern = any(values.get(mark) for mark in marks) or values.get("hidden_act") in (
        "silu",
        "swish",
    )
    return dict(_MODERN) if modern else {}


def _name(rules: dict[str, Any]) -> str:
    return "a Llama-like block" if rules else "a GPT-2-like block"
