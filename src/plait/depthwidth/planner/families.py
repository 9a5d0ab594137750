"""Model families of `transformers`: functions from the settings of a config.json to an `Architecture`.

Published files leave out settings that equal the defaults of their configuration class, so a family has these
defaults too. Every default that was used is recorded and reported to the user. The tests compare each family
with the model that `transformers` builds.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.depthwidth.planner.count import Architecture, Experts
from plait.errors import DataError

__all__ = [
    "NAMES",
    "SIZES",
    "Family",
    "Values",
    "bert",
    "check_size",
    "dbrx",
    "experts_of",
    "falcon",
    "gpt",
    "gpt_oss",
    "gptj",
    "head_size_of",
    "llama",
    "modernbert",
    "opt",
    "phi",
    "qwen_moe",
    "stablelm",
    "t5",
    "wide_norms",
    "windows",
    "windows_if_used",
]

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


@dataclass
class Values:
    """Settings of a file and the defaults of its configuration class; `assumed` records the defaults used."""

    settings: Mapping[str, Any]
    defaults: Mapping[str, Any]
    assumed: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return a setting by its name here or in the file; None if neither the file nor its class has it."""
        names = NAMES.get(name, (name,))
        for key in names:
            if self.settings.get(key) is not None:
                return self._checked(key, self.settings[key], self.defaults.get(name))
        value = self.defaults.get(name)
        if value is not None:
            self.assumed[names[0]] = value
        return value

    def _checked(self, key: str, value: Any, default: Any) -> Any:
        if isinstance(default, bool) != isinstance(value, bool) and default is not None:
            raise DataError(f"{key}: expected {_kind(default)}, got {value!r}")
        if key in SIZES and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise DataError(f"{key}: expected a positive whole number, got {reprlib.repr(value)}")
        if isinstance(value, int):
            check_size(key, value)
        return value

    def is_null(self, key: str) -> bool:
        """Return whether the file sets a setting to null, as opposed to leaving it out."""
        return key in self.settings and self.settings[key] is None

    def group(self, key: str) -> Values:
        """Return a nested group of settings."""
        settings, defaults = self.settings.get(key) or {}, self.defaults.get(key) or {}
        if not isinstance(settings, Mapping):
            raise DataError(f"{key}: expected an object with settings, got {reprlib.repr(settings)}")
        return Values(settings, defaults, self.assumed)


def check_size(key: str, value: int) -> None:
    """Limit a size: the time is proportional to the number of layers, and products of sizes stay small.

    Raises:
        DataError: if it is above the limit.
    """
    most = MOST_LAYERS if key in NAMES["depth"] else MOST
    if value > most:
        raise DataError(f"{key}: expected at most {most:,}, got {reprlib.repr(value)}")


MOST_LAYERS, MOST = 10_000, 2**31
SIZES = {key for name, keys in NAMES.items() if name != "tied" for key in keys}


def _kind(default: Any) -> str:
    return "true or false" if isinstance(default, bool) else "a number"


def windows(
    v: Values, local: Callable[[int], bool] | None = None, setting: str = "sliding_window"
) -> tuple[int, ...]:
    """Return the attention window of each layer, 0 for none; empty if no layer has one.

    Args:
        local: whether a layer has the window, for files without `layer_types`; None gives it to every
            layer and ignores `layer_types`.
        setting: name of the setting with the size of the window.
    """
    size = None if v.is_null(setting) else v[setting]
    if size is None or size == 0:
        return ()
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise DataError(f"{setting}: expected a positive whole number or null, got {reprlib.repr(size)}")
    check_size(setting, size)
    depth, types = v["depth"], v["layer_types"] if local is not None else None
    if types is not None and (not isinstance(types, list) or len(types) != depth):
        raise DataError(f"layer_types: expected a list of {depth} names, got {reprlib.repr(types)}")
    chosen = [local is None or local(i) for i in range(depth)]
    if types is not None:
        chosen = [name in ("sliding_attention", "chunked_attention") for name in types]
    return tuple(size if windowed else 0 for windowed in chosen) if any(chosen) else ()


def windows_if_used(v: Values, local: Callable[[int], bool] | None = None) -> tuple[int, ...]:
    """Return the windows of a family with the switch `use_sliding_window` (Qwen)."""
    return windows(v, local) if v["use_sliding_window"] else ()


Build = Callable[[Values], Architecture]


@dataclass(frozen=True)
class Family:
    """Model family: builder, defaults of its configuration class, and a note on what the count includes."""

    build: Build
    defaults: Mapping[str, Any]
    note: str = ""


def _sizes(v: Values, **rules: Any) -> dict[str, Any]:
    """Return the arguments of `Architecture` that every family has; `rules` override them."""
    sizes = {"depth": v["depth"], "width": v["width"], "heads": v["heads"], "vocab": v["vocab"]}
    sizes["inner"] = rules.pop("inner", None) or v["inner"]
    return {**sizes, "tied": v["tied"], **rules}


def gpt(v: Values, **rules: Any) -> Architecture:
    """Build a GPT: LayerNorm, biases, a feed-forward block without gates."""
    return Architecture(**_sizes(v, **rules))


def llama(v: Values, **rules: Any) -> Architecture:
    """Build a Llama: RMS norms, rotary positions, a gated feed-forward block; biases as in the file."""
    options: dict[str, Any] = {
        "kv_heads": v["kv_heads"],
        "head_size": v["head_size"],
        "gated": True,
        "positions": 0,
        "norm_params": 1,
        "feed_forward_bias": bool(v["mlp_bias"]),
    }
    if "query_key_value_bias" not in rules:
        options["query_key_value_bias"] = options["output_bias"] = bool(v["attention_bias"])
    return Architecture(**_sizes(v, **{**options, **rules}))


def head_size_of(v: Values) -> int:
    """Return the head size in the file, or width/heads."""
    return int(v["head_size"] or v["width"] // v["heads"])


def wide_norms(v: Values) -> int:
    """Return the parameters of norms over all queries and all keys, in place of per-head norms."""
    return head_size_of(v) * int(v["heads"] + (v["kv_heads"] or v["heads"]))


def experts_of(v: Values, inner: Any = None, **rules: Any) -> Experts:
    """Build the mixture of experts of a file."""
    return Experts(v["experts"], v["active"], inner or v["inner"], **rules)


def _sparse_layers(v: Values) -> int:
    """Return how many layers of a Qwen are dense: those in a list, and those between strides."""
    named, stride = v["mlp_only_layers"] or (), v["decoder_sparse_step"]
    return sum(1 for i in range(v["depth"]) if i in named or (i + 1) % stride)


def gptj(v: Values) -> Architecture:
    """Build a GPT-J: parallel blocks with one norm, rotary positions, biases in feed-forward blocks only."""
    return gpt(
        v, positions=0, norms=1, query_key_value_bias=False, output_bias=False, output_extra=v["vocab"]
    )


def opt(v: Values) -> Architecture:
    """Build an OPT: a GPT with optional biases and projections around narrow embeddings."""
    small, wide = v["word_embed_proj_dim"] or v["width"], v["width"]
    bias = v["enable_bias"]
    return gpt(
        v,
        positions=v["positions"] + 2,
        query_key_value_bias=bias,
        output_bias=bias,
        feed_forward_bias=bias,
        norm_params=2 if v["layer_norm_elementwise_affine"] else 0,
        final_norm=v["do_layer_norm_before"] and not v["_remove_final_layer_norm"],
        embedding_size=small,
        embedding_extra=(2 * small * wide if small != wide else 0) + (v["positions"] + 2) * (wide - small),
    )


def falcon(v: Values) -> Architecture:
    """Build a Falcon: one key-value head, or grouped queries in its new architecture."""
    new = v["new_decoder_architecture"]
    bias, kv_heads = v["bias"], v["kv_heads"] if new or not v["multi_query"] else 1
    single = v["num_ln_in_parallel_attn"] == 1 if new else v["parallel_attn"]
    return gpt(
        v,
        positions=0,
        kv_heads=kv_heads,
        query_key_value_bias=bias,
        output_bias=bias,
        feed_forward_bias=bias,
        norms=1 if single else 2,
    )


def phi(v: Values) -> Architecture:
    """Build a Phi: parallel blocks with one norm and rotary positions."""
    extra = 4 * head_size_of(v) if v["qk_layernorm"] else 0
    return gpt(
        v, positions=0, norms=1, kv_heads=v["kv_heads"], output_extra=v["vocab"], attention_extra=extra
    )


def dbrx(v: Values) -> Architecture:
    """Build a DBRX: mixture of experts in every layer."""
    forward = v.group("ffn_config")
    experts = Experts(forward["moe_num_experts"], forward["moe_top_k"], forward["ffn_hidden_size"])
    kv_heads = v.group("attn_config")["kv_n_heads"]
    return llama(v, kv_heads=kv_heads, experts=experts, inner=experts.inner)


def stablelm(v: Values) -> Architecture:
    """Build a StableLM: a Llama with LayerNorm and optional parallel blocks."""
    extra = wide_norms(v) if v["qk_layernorm"] else 0
    bias = bool(v["use_qkv_bias"])
    return llama(v, query_key_value_bias=bias, output_bias=False, norm_params=2, attention_extra=extra)


def qwen_moe(v: Values) -> Architecture:
    """Build a Qwen with experts: routed ones and, in some versions, a shared one."""
    experts = experts_of(
        v,
        v["moe_intermediate_size"],
        shared_inner=v["shared_expert_intermediate_size"] or 0,
        shared_gate=bool(v["shared_expert_intermediate_size"]),
        dense_layers=_sparse_layers(v),
    )
    if v["qkv_bias"] is not None:
        most = 28 if v["max_window_layers"] is None else v["max_window_layers"]
        local = windows_if_used(v, lambda i: i % 2 == 0 and i < most)
        bias = v["qkv_bias"]
        return llama(v, query_key_value_bias=bias, output_bias=False, experts=experts, windows=local)
    return llama(v, experts=experts, attention_extra=2 * head_size_of(v), windows=windows_if_used(v))


def gpt_oss(v: Values) -> Architecture:
    """Build a GPT-OSS: experts with biases, attention sinks, a window in every second layer."""
    experts = experts_of(v, router_bias=True, bias=True)
    return llama(v, experts=experts, attention_extra=v["heads"], windows=windows(v, lambda i: i % 2 == 0))


def bert(v: Values, token_types: bool = True, **rules: Any) -> Architecture:
    """Build a BERT: post-norm, no final norm; one more matrix and norm before the output layer."""
    d, small = v["width"], v["embedding_size"] or v["width"]
    extra = (v["type_vocab_size"] * small if token_types else 0) + 2 * small
    extra += (small * d + d if small != d else 0) + rules.pop("relative", 0)
    head = d * small + small + 2 * small + v["vocab"]
    return gpt(
        v,
        positions=v["positions"],
        final_norm=False,
        embedding_size=small,
        embedding_extra=extra,
        output_extra=head,
        causal=v["is_decoder"] is True,
        **rules,
    )


def modernbert(v: Values) -> Architecture:
    """Build a ModernBERT: an encoder with gated feed-forward blocks and windows in most layers."""
    d, gains = v["width"], 2 if v["norm_bias"] else 1
    bias = v["attention_bias"]
    # The first layer has no norm before its attention: the embeddings are normalised.
    return llama(
        v,
        query_key_value_bias=bias,
        output_bias=bias,
        norm_params=gains,
        embedding_extra=0,
        causal=False,
        windows=windows(v, lambda i: i % (v["global_attn_every_n_layers"] or 3) > 0, "local_attention"),
        output_extra=d * d + gains * d + v["decoder_bias"] * v["vocab"] + v["classifier_bias"] * d,
    )


def t5(v: Values) -> Architecture:
    """Build a T5, encoder and decoder; transformers always ties its output layer."""
    decoder = v["num_decoder_layers"] or v["depth"]
    return Architecture(
        **_sizes(v, tied=True),
        head_size=v["head_size"],
        gated=str(v["feed_forward_proj"]).startswith("gated"),
        positions=0,
        norm_params=1,
        query_key_value_bias=False,
        output_bias=False,
        feed_forward_bias=False,
        decoder=decoder,
        embedding_extra=2 * v["relative_attention_num_buckets"] * v["heads"],
    )
