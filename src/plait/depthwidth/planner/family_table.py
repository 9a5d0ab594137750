"""Table of the families that are counted by formula, each with the defaults of its configuration class."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from plait.depthwidth.planner.count import Architecture
from plait.depthwidth.planner.families import (
    Family,
    Values,
    bert,
    dbrx,
    experts_of,
    falcon,
    gpt,
    gpt_oss,
    gptj,
    head_size_of,
    llama,
    modernbert,
    opt,
    phi,
    qwen_moe,
    stablelm,
    t5,
    wide_norms,
    windows,
    windows_if_used,
)

__all__ = ["FAMILIES"]

_MASKED = "counted with the output layer for masked words, without a pooler"


def _defaults(
    depth: int, width: int, heads: int, vocab: int, *, tied: bool = False, **more: Any
) -> dict[str, Any]:
    return {"depth": depth, "width": width, "heads": heads, "vocab": vocab, "tied": tied, **more}


def _learned(v: Values, **rules: Any) -> Architecture:
    """Build a GPT-2 with learned position embeddings."""
    offset = rules.pop("offset", 0)
    return gpt(v, positions=v["positions"] + offset, **rules)


def _grouped(v: Values, bias: str, **rules: Any) -> Architecture:
    """Build a GPT with grouped queries and rotary positions; `bias` is the name of the setting for biases."""
    has = v[bias]
    biases = {"query_key_value_bias": has, "output_bias": has, "feed_forward_bias": has}
    return gpt(v, positions=0, kv_heads=v["kv_heads"], **{**biases, **rules})


def _bloom(v: Values) -> Architecture:
    return gpt(v, positions=0, inner=4 * v["width"], embedding_extra=2 * v["width"])


def _mpt(v: Values) -> Architecture:
    plain = {"query_key_value_bias": False, "output_bias": False, "feed_forward_bias": False}
    return gpt(v, positions=0, inner=4 * v["width"], norm_params=1, **plain)


def _neox(v: Values) -> Architecture:
    bias = v["attention_bias"]
    return gpt(v, positions=0, query_key_value_bias=bias, output_bias=bias)


def _nemotron(v: Values) -> Architecture:
    return _grouped(v, "attention_bias", feed_forward_bias=v["mlp_bias"], head_size=v["head_size"])


def _persimmon(v: Values) -> Architecture:
    return gpt(v, positions=0, attention_extra=4 * head_size_of(v) if v["qk_layernorm"] else 0)


def _plain(v: Values, **rules: Any) -> Architecture:
    """Build a Llama that never has biases."""
    return llama(v, query_key_value_bias=False, output_bias=False, **rules)


def _cohere(v: Values) -> Architecture:
    return llama(v, norms=1, attention_extra=wide_norms(v) if v["use_qk_norm"] else 0)


def _mixture(v: Values, **rules: Any) -> Architecture:
    return llama(v, experts=experts_of(v), **rules)


def _phimoe(v: Values) -> Architecture:
    extra = v["vocab"] if v["lm_head_bias"] else 0
    return _mixture(v, norm_params=2, output_extra=extra, windows=windows(v))


def _olmoe(v: Values) -> Architecture:
    return _mixture(v, attention_extra=wide_norms(v))


def _head_norms(v: Values, **rules: Any) -> Architecture:
    return llama(v, attention_extra=2 * head_size_of(v), **rules)


def _mpnet(v: Values) -> Architecture:
    return bert(v, token_types=False, relative=v["relative_attention_num_buckets"] * v["heads"])


def _gpt_neo(v: Values) -> Architecture:
    """Build a GPT-Neo: every second layer has a window, unless the file lists the attention types."""
    depth, runs = v["depth"], v["attention_types"] or [[["global", "local"], v["depth"]]]
    every = (kind for kinds, times in runs for _ in range(times) for kind in kinds)
    local = [kind == "local" for kind in islice(every, depth)]
    return _learned(
        v,
        query_key_value_bias=False,
        windows=windows(v, lambda i: i < len(local) and local[i], "window_size"),
    )


def _mistral(v: Values) -> Architecture:
    return _plain(v, windows=windows(v))


def _starcoder2(v: Values) -> Architecture:
    return _grouped(v, "use_bias", windows=windows(v))


def _smollm3(v: Values) -> Architecture:
    """Build a SmolLM3; its windows, if used, are on the layers without rotary positions."""
    rotary, every = v["no_rope_layers"], v["no_rope_layer_interval"] or 4
    return llama(v, windows=windows_if_used(v, lambda i: not rotary[i] if rotary else (i + 1) % every == 0))


def _later(v: Values) -> tuple[int, ...]:
    first = 28 if v["max_window_layers"] is None else v["max_window_layers"]
    return windows_if_used(v, lambda i: i >= first)


def _gemma(v: Values, every: int, **rules: Any) -> Architecture:
    """Build a Gemma: in each group of `every` layers, all but the last have a window.

    EmbeddingGemma is an encoder of this family.
    """
    local = windows(v, lambda i: (i + 1) % every > 0)
    return llama(v, norms=4, windows=local, causal=not v["use_bidirectional_attention"], **rules)


def _gemma3(v: Values) -> Architecture:
    every = v["sliding_window_pattern"] or v["_sliding_window_pattern"] or 6
    return _gemma(v, every, attention_extra=2 * head_size_of(v))


_BIASES: dict[str, Any] = {"attention_bias": False, "mlp_bias": False}
_BERT: dict[str, Any] = {"positions": 512, "type_vocab_size": 2, "inner": 3072}
_T5: dict[str, Any] = {"num_decoder_layers": None, "relative_attention_num_buckets": 32, "head_size": 64}
_QWEN_MOE: dict[str, Any] = {"decoder_sparse_step": 1, "head_size": None}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(_learned, _defaults(12, 768, 12, 50257, tied=True, positions=1024)),
    "gpt_neo": Family(_gpt_neo, _defaults(24, 2048, 16, 50257, tied=True, positions=2048, window_size=256)),
    "gptj": Family(gptj, _defaults(28, 4096, 16, 50400)),
    "codegen": Family(gptj, _defaults(28, 4096, 16, 50400)),
    "gpt_neox": Family(_neox, _defaults(44, 6144, 64, 50432, inner=24576, attention_bias=True)),
    "gpt_bigcode": Family(
        lambda v: _learned(v, kv_heads=1 if v["multi_query"] else None),
        _defaults(12, 768, 12, 50257, tied=True, positions=1024, multi_query=True),
    ),
    "openai-gpt": Family(
        partial(_learned, final_norm=False), _defaults(12, 768, 12, 40478, tied=True, positions=512)
    ),
    "opt": Family(
        opt,
        _defaults(
            12,
            768,
            12,
            50272,
            tied=True,
            inner=3072,
            positions=2048,
            enable_bias=True,
            do_layer_norm_before=True,
            layer_norm_elementwise_affine=True,
            _remove_final_layer_norm=False,
        ),
    ),
    "biogpt": Family(
        partial(_learned, offset=2), _defaults(24, 1024, 16, 42384, tied=True, inner=4096, positions=1024)
    ),
    "xglm": Family(partial(gpt, positions=0), _defaults(24, 1024, 16, 256008, tied=True, inner=4096)),
    "bloom": Family(_bloom, _defaults(2, 64, 8, 250880, tied=True)),
    "mpt": Family(_mpt, _defaults(24, 2048, 16, 50368, tied=True)),
    "falcon": Family(
        falcon,
        _defaults(
            32,
            4544,
            71,
            65024,
            tied=True,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            new_decoder_architecture=False,
        ),
    ),
    "starcoder2": Family(
        _starcoder2,
        _defaults(30, 3072, 24, 49152, tied=True, inner=12288, kv_heads=2, use_bias=True),
    ),
    "nemotron": Family(_nemotron, _defaults(32, 6144, 48, 256000, inner=24576, **_BIASES)),
    "persimmon": Family(_persimmon, _defaults(36, 4096, 64, 262144, inner=16384, qk_layernorm=True)),
    "phi": Family(phi, _defaults(24, 2048, 32, 51200, inner=8192, qk_layernorm=False)),
    "llama": Family(llama, _defaults(32, 4096, 32, 32000, inner=11008, **_BIASES)),
    "granite": Family(llama, _defaults(32, 4096, 32, 32000, inner=11008, **_BIASES)),
    "mistral": Family(_mistral, _defaults(32, 4096, 32, 32000, inner=14336, kv_heads=8, sliding_window=4096)),
    "smollm3": Family(
        _smollm3, _defaults(36, 2048, 16, 128256, tied=True, inner=11008, kv_heads=4, **_BIASES)
    ),
    "qwen2": Family(
        lambda v: llama(v, query_key_value_bias=True, output_bias=False, windows=_later(v)),
        _defaults(32, 4096, 32, 151936, inner=22016, kv_heads=32),
    ),
    "qwen3": Family(
        lambda v: _head_norms(v, windows=_later(v)),
        _defaults(32, 4096, 32, 151936, inner=22016, kv_heads=32, head_size=128, attention_bias=False),
    ),
    "phi3": Family(_mistral, _defaults(32, 3072, 32, 32064, inner=8192)),
    "olmo": Family(
        partial(llama, norm_params=0), _defaults(32, 4096, 32, 50304, inner=11008, attention_bias=False)
    ),
    "olmo2": Family(
        lambda v: llama(v, attention_extra=wide_norms(v)),
        _defaults(32, 4096, 32, 50304, inner=11008, attention_bias=False),
    ),
    "gemma": Family(
        llama,
        _defaults(
            28, 3072, 16, 256000, tied=True, inner=24576, kv_heads=16, head_size=256, attention_bias=False
        ),
    ),
    "gemma2": Family(
        partial(_gemma, every=2),
        _defaults(
            26,
            2304,
            8,
            256000,
            tied=True,
            inner=9216,
            kv_heads=4,
            head_size=256,
            attention_bias=False,
            sliding_window=4096,
        ),
    ),
    "gemma3_text": Family(
        _gemma3,
        _defaults(
            26,
            2304,
            8,
            262208,
            tied=True,
            inner=9216,
            kv_heads=4,
            head_size=256,
            attention_bias=False,
            sliding_window=4096,
        ),
    ),
    "cohere": Family(
        _cohere,
        _defaults(40, 8192, 64, 256000, tied=True, inner=22528, attention_bias=False, use_qk_norm=False),
    ),
    "glm": Family(
        lambda v: llama(v, query_key_value_bias=v["attention_bias"], output_bias=False),
        _defaults(40, 4096, 32, 151552, inner=13696, kv_heads=2, head_size=128, attention_bias=True),
    ),
    "stablelm": Family(
        stablelm,
        _defaults(32, 2560, 32, 50304, inner=6912, kv_heads=32, use_qkv_bias=False, qk_layernorm=False),
    ),
    "mixtral": Family(
        lambda v: _mixture(v, query_key_value_bias=False, output_bias=False, windows=windows(v)),
        _defaults(32, 4096, 32, 32000, inner=14336, kv_heads=8, experts=8, active=2),
    ),
    "qwen2_moe": Family(
        qwen_moe,
        _defaults(
            24,
            2048,
            16,
            151936,
            inner=5632,
            kv_heads=16,
            experts=60,
            active=4,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            qkv_bias=True,
            **_QWEN_MOE,
        ),
    ),
    "qwen3_moe": Family(
        qwen_moe,
        _defaults(
            24,
            2048,
            32,
            151936,
            inner=6144,
            kv_heads=4,
            experts=128,
            active=8,
            moe_intermediate_size=768,
            attention_bias=False,
            **_QWEN_MOE,
        ),
    ),
    "olmoe": Family(
        _olmoe, _defaults(16, 2048, 16, 50304, inner=2048, experts=64, active=8, attention_bias=False)
    ),
    "phimoe": Family(
        _phimoe,
        _defaults(
            32,
            4096,
            32,
            32064,
            inner=6400,
            kv_heads=8,
            experts=16,
            active=2,
            attention_bias=False,
            lm_head_bias=False,
        ),
    ),
    "granitemoe": Family(
        _mixture, _defaults(32, 4096, 32, 32000, inner=11008, experts=8, active=2, attention_bias=False)
    ),
    "dbrx": Family(
        dbrx,
        _defaults(
            24,
            2048,
            16,
            32000,
            attn_config={"kv_n_heads": 1},
            ffn_config={"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1},
        ),
    ),
    "gpt_oss": Family(
        gpt_oss,
        _defaults(
            36,
            2880,
            64,
            201088,
            inner=2880,
            kv_heads=8,
            head_size=64,
            experts=128,
            active=4,
            attention_bias=True,
            sliding_window=128,
        ),
    ),
    "bert": Family(bert, _defaults(12, 768, 12, 30522, tied=True, **_BERT), _MASKED),
    "roberta": Family(bert, _defaults(12, 768, 12, 50265, tied=True, **_BERT), _MASKED),
    "xlm-roberta": Family(bert, _defaults(12, 768, 12, 30522, tied=True, **_BERT), _MASKED),
    "camembert": Family(bert, _defaults(12, 768, 12, 30522, tied=True, **_BERT), _MASKED),
    "electra": Family(
        bert,
        _defaults(12, 256, 4, 30522, tied=True, **{**_BERT, "inner": 1024, "embedding_size": 128}),
        _MASKED,
    ),
    "distilbert": Family(
        partial(bert, token_types=False),
        _defaults(6, 768, 12, 30522, tied=True, positions=512, inner=3072),
        _MASKED,
    ),
    "mpnet": Family(
        _mpnet,
        _defaults(
            12, 768, 12, 30527, tied=True, positions=512, inner=3072, relative_attention_num_buckets=32
        ),
        _MASKED,
    ),
    "modernbert": Family(
        modernbert,
        _defaults(
            22,
            768,
            12,
            50368,
            tied=True,
            inner=1152,
            attention_bias=False,
            mlp_bias=False,
            norm_bias=False,
            decoder_bias=True,
            classifier_bias=False,
            local_attention=128,
        ),
        _MASKED,
    ),
    "t5": Family(t5, _defaults(6, 512, 8, 32128, tied=True, inner=2048, feed_forward_proj="relu", **_T5)),
    "mt5": Family(
        t5, _defaults(8, 512, 6, 250112, tied=True, inner=1024, feed_forward_proj="gated-gelu", **_T5)
    ),
}
