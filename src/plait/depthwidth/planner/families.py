"""Decoders of `transformers` that are counted by one formula, without building them, as a table of data.

Published files leave out settings that equal the defaults of their configuration class, so a family has these
defaults too. Every default that was used is recorded and reported to the user. All other families, and files
with settings beyond the formula, are counted on the model that `transformers` builds
(`plait.depthwidth.planner.count_by_building`); the tests hold the formula to the same models.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from plait.depthwidth.planner.count import Architecture
from plait.errors import DataError

__all__ = ["FAMILIES", "NAMES", "SIZES", "Family", "architecture_of", "check_size"]

# Name used here -> its names in configuration files.
NAMES = {
    "depth": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "vocab": ("vocab_size",),
    "inner": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "d_ff"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_size": ("head_dim", "d_kv"),
    "positions": ("max_position_embeddings", "n_positions"),
    "tied": ("tie_word_embeddings",),
    "experts": ("num_local_experts", "num_experts"),
    "active": ("num_experts_per_tok",),
}
SIZES = {key for name, keys in NAMES.items() if name != "tied" for key in keys}
MOST_LAYERS, MOST = 10_000, 2**31
Bias = bool | str  # whether there are biases, or the name of the setting that decides


@dataclass(frozen=True)
class Family:
    """Defaults of a configuration class, and how its decoder differs from a Llama.

    Attributes:
        defaults: by the names of `NAMES` or, for other settings, their own.
        biases: of the query, key and value projections, of the output projection, of the feed-forward block.
        gated: the feed-forward block has a gate, as in a Llama.
        grouped: the file may set the number of key-value heads and the head size.
        learned_positions: there is a table of position embeddings.
        norm_params: parameters per feature of a normalisation.
        query_key_norm: norms of queries and keys, per head or over all of them.
        window: name of the setting that gives every layer a window.
        beyond: settings that, where a file switches them on, make a model that the formula does not cover.
    """

    defaults: Mapping[str, Any]
    biases: tuple[Bias, Bias, Bias] = (False, False, False)
    gated: bool = True
    grouped: bool = True
    learned_positions: bool = False
    norm_params: int = 1
    query_key_norm: Literal["", "head", "all"] = ""
    window: str = ""
    beyond: tuple[str, ...] = ()


def _defaults(depth: int, width: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {"depth": depth, "width": width, "heads": heads, "vocab": vocab, "tied": False, **more}


_BIASES = {"attention_bias": False, "mlp_bias": False}
_QWEN = _defaults(32, 4096, 32, 151936, inner=22016, kv_heads=32)
_LLAMA = Family(
    _defaults(32, 4096, 32, 32000, inner=11008, **_BIASES), ("attention_bias", "attention_bias", "mlp_bias")
)
_ATTENTION: tuple[Bias, Bias, Bias] = ("attention_bias", "attention_bias", False)
_GPT: dict[str, Any] = {"gated": False, "norm_params": 2}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        _defaults(12, 768, 12, 50257, tied=True, positions=1024),
        (True, True, True),
        grouped=False,
        learned_positions=True,
        **_GPT,
    ),
    "gpt_neox": Family(
        _defaults(44, 6144, 64, 50432, inner=24576, attention_bias=True),
        ("attention_bias", "attention_bias", True),
        grouped=False,
        **_GPT,
    ),
    "mpt": Family(_defaults(24, 2048, 16, 50368, tied=True), gated=False, grouped=False),
    "starcoder2": Family(
        _defaults(30, 3072, 24, 49152, tied=True, inner=12288, kv_heads=2, use_bias=True),
        ("use_bias", "use_bias", "use_bias"),
        window="sliding_window",
        **_GPT,
    ),
    "nemotron": Family(
        _defaults(32, 6144, 48, 256000, inner=24576, **_BIASES),
        ("attention_bias", "attention_bias", "mlp_bias"),
        **_GPT,
    ),
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": Family(
        _defaults(32, 4096, 32, 32000, inner=14336, kv_heads=8, sliding_window=4096), window="sliding_window"
    ),
    "phi3": Family(_defaults(32, 3072, 32, 32064, inner=8192), window="sliding_window"),
    "qwen2": Family(_QWEN, (True, False, False), beyond=("use_sliding_window",)),
    "qwen3": Family(
        {**_QWEN, "head_size": 128, "attention_bias": False},
        _ATTENTION,
        query_key_norm="head",
        beyond=("use_sliding_window",),
    ),
    "olmo": Family(
        _defaults(32, 4096, 32, 50304, inner=11008, attention_bias=False), _ATTENTION, norm_params=0
    ),
    "olmo2": Family(
        _defaults(32, 4096, 32, 50304, inner=11008, attention_bias=False), _ATTENTION, query_key_norm="all"
    ),
    "gemma": Family(
        _defaults(
            28, 3072, 16, 256000, tied=True, inner=24576, kv_heads=16, head_size=256, attention_bias=False
        ),
        _ATTENTION,
    ),
    "glm": Family(
        _defaults(40, 4096, 32, 151552, inner=13696, kv_heads=2, head_size=128, attention_bias=True),
        ("attention_bias", False, False),
    ),
}


def architecture_of(settings: Mapping[str, Any]) -> tuple[Architecture, dict[str, Any]] | None:
    """Return the architecture that a file describes, and the defaults used where it leaves a setting out.

    Returns None if the file's family, or one of its settings, is not covered by the table.

    Raises:
        DataError: if a setting is of the wrong type or too large.
    """
    family = FAMILIES.get(settings["model_type"])
    if family is None or any(settings.get(name) for name in family.beyond):
        return None
    v = _Values(settings, family.defaults)
    depth, width, heads = v["depth"], v["width"], v["heads"]
    kv_heads, head_size = (v["kv_heads"], v["head_size"]) if family.grouped else (None, None)
    query_key_value, output, feed_forward = (
        bool(v[bias]) if isinstance(bias, str) else bias for bias in family.biases
    )
    architecture = Architecture(
        depth,
        width,
        heads,
        v["vocab"],
        inner=v["inner"],
        kv_heads=kv_heads,
        head_size=head_size,
        gated=family.gated,
        positions=v["positions"] if family.learned_positions else 0,
        tied=v["tied"],
        query_key_value_bias=query_key_value,
        output_bias=output,
        feed_forward_bias=feed_forward,
        norm_params=family.norm_params,
        windows=_windows(v, family.window) if family.window else (),
    )
    if family.query_key_norm:
        normed = 2 if family.query_key_norm == "head" else heads + (kv_heads or heads)
        architecture = replace(architecture, attention_extra=normed * (head_size or width // heads))
    return architecture, v.assumed


def check_size(key: str, value: int) -> None:
    """Limit a size: the time is proportional to the number of layers, and products of sizes stay small.

    Raises:
        DataError: if it is above the limit.
    """
    most = MOST_LAYERS if key in NAMES["depth"] else MOST
    if value > most:
        raise DataError(f"{key}: expected at most {most:,}, got {reprlib.repr(value)}")


@dataclass
class _Values:
    """Settings of a file and the defaults of its configuration class; `assumed` records the defaults used."""

    settings: Mapping[str, Any]
    defaults: Mapping[str, Any]
    assumed: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return a setting by its name here or in the file; None if neither the file nor its class has it."""
        names = NAMES.get(name, (name,))
        for key in names:
            if self.settings.get(key) is not None:
                return _checked(key, self.settings[key], self.defaults.get(name))
        value = self.defaults.get(name)
        if value is not None:
            self.assumed[names[0]] = value
        return value


def _checked(key: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool) != isinstance(value, bool) and default is not None:
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise DataError(f"{key}: expected {kind}, got {value!r}")
    if key in SIZES and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise DataError(f"{key}: expected a positive whole number, got {reprlib.repr(value)}")
    if isinstance(value, int):
        check_size(key, value)
    return value


def _windows(v: _Values, name: str) -> tuple[int, ...]:
    """Return the attention window of each layer; empty if the file sets it to null."""
    size = None if name in v.settings and v.settings[name] is None else v[name]
    if size is None or size == 0:
        return ()
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise DataError(f"{name}: expected a positive whole number or null, got {reprlib.repr(size)}")
    return (size,) * int(v["depth"])
