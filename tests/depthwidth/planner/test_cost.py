"""Operations and cache of a token, against counts done by hand."""

import json

import pytest

from plait.depthwidth.planner import Architecture, Experts, count_params, price, read_config
from plait.depthwidth.planner.cost import price_stack
from plait.depthwidth.planner.judgement import why_no_verdict
from plait.errors import ConfigError


def test_a_small_network_by_hand():
    shape = Architecture(2, 8, 4, vocab=10, inner=16, kv_heads=2, positions=0)
    cost = price(shape, context=5, bytes_per_number=4)
    assert cost.layers == 2
    assert cost.cache_bytes == 2 * 2 * (2 * 2) * 4  # keys and values, layers, two heads of two, four bytes
    attention = 2 * 2 * 8 * 5 * 2  # scores and sums, a multiplication and an addition each, two layers
    assert cost.flops == 2 * count_params(shape).layers + 2 * 10 * 8 + attention


def test_experts_a_token_skips_cost_nothing():
    shape = {"depth": 2, "width": 8, "heads": 2}
    few = price(Architecture(**shape, experts=Experts(4, 2, 16)))
    many = price(Architecture(**shape, experts=Experts(8, 2, 16)))
    assert many.params - few.params == 2 * 4 * (2 * 8 * 16 + 8)  # experts, and rows of the router
    assert many.flops - few.flops == 2 * 2 * 4 * 8  # the router alone
    with pytest.raises(ConfigError, match="context: expected at least 0"):
        price(Architecture(**shape), context=-1)


KIB, MIB = 1024, 2**20


def read(tmp_path, values):
    (tmp_path / "config.json").write_text(json.dumps(values))
    return read_config(tmp_path)


# Settings as published; per layer and token: keys and values, two bytes each.
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
GEMMA_2_9B = {
    "model_type": "gemma2",
    "num_hidden_layers": 42,
    "hidden_size": 3584,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "intermediate_size": 14336,
    "vocab_size": 256000,
    "sliding_window": 4096,
}
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "sliding_window": 1024,
    },
}
MISTRAL_7B = {
    "model_type": "mistral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
}
QWEN = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "sliding_window": 131072,
    "max_window_layers": 28,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {"model_type": "deepseek_v3"}  # its class has the published sizes
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "vocab_size": 102400,
    "n_group": 1,
    "topk_group": 1,
}
JAMBA = {"model_type": "jamba"}
QWEN3_NEXT = {"model_type": "qwen3_next"}
MAMBA_130M = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16}

# Bytes a token adds for good, bytes of full windows, operations of attention after 2,048 others.
BY_HAND = {
    "gpt-oss-20b": (
        GPT_OSS_20B,
        12 * 2 * 8 * 64 * 2,
        12 * 2 * 8 * 64 * 2 * 128,
        4 * 64 * 64 * (12 * 2048 + 12 * 128),
    ),
    "Gemma-2-9B": (GEMMA_2_9B, 168 * KIB, 21 * 8 * KIB * 4096, 42 * 4 * 16 * 256 * 2048),
    "Gemma-3-4B": (GEMMA_3_4B, 20 * KIB, 29 * 4 * KIB * 1024, 4 * 8 * 256 * (5 * 2048 + 29 * 1024)),
    "Mistral-7B-v0.1": (MISTRAL_7B, 0, 512 * MIB, 32 * 4 * 4096 * 2048),
    "Mistral-7B-v0.3": ({**MISTRAL_7B, "sliding_window": None}, 128 * KIB, 0, 32 * 4 * 4096 * 2048),
    "Qwen2.5-7B": (QWEN, 56 * KIB, 0, 28 * 4 * 3584 * 2048),
    "DeepSeek-V3": (DEEPSEEK_V3, 61 * 576 * 2, 0, 61 * 2 * 128 * (192 + 128) * 2048),
    "DeepSeek-V2-Lite": (DEEPSEEK_V2_LITE, 27 * 576 * 2, 0, 27 * 2 * 16 * (192 + 128) * 2048),
    "Jamba": (JAMBA, 4 * 2 * 8 * 128 * 2, 0, 4 * 4 * 4096 * 2048),
    "Qwen3-Next-80B": (QWEN3_NEXT, 12 * 2 * 2 * 256 * 2, 0, 12 * 4 * 16 * 256 * 2048),
    "Mamba-130M": (MAMBA_130M, 0, 0, 0),
}
BUILT = {"DeepSeek-V3", "DeepSeek-V2-Lite", "Jamba", "Qwen3-Next-80B", "Mamba-130M"}


@pytest.mark.parametrize("name", BY_HAND)
def test_costs_of_published_models_by_hand(name, tmp_path):
    if name in BUILT:
        pytest.importorskip("transformers", reason="built by it and counted")
    values, growth, windows, attention = BY_HAND[name]
    model = read(tmp_path, values)
    cost = price_stack(model.stack, model.count, 2048)
    assert (cost.cache_bytes, cost.window_bytes) == (growth, windows)
    assert cost.flops - price_stack(model.stack, model.count, 0).flops == attention
    if name == "gpt-oss-20b":
        assert f"{cost.flops:.4g}" == "7.644e+09"


def test_states_of_fixed_size_by_hand(tmp_path):
    pytest.importorskip("transformers", reason="built by it and counted")
    mamba, jamba, qwen = (read(tmp_path, values).stack for values in (MAMBA_130M, JAMBA, QWEN3_NEXT))
    assert mamba.state == 24 * 1536 * (16 + 4)
    assert jamba.state == 28 * 8192 * (16 + 4)
    # 32 heads of values times 16 of keys, 128 features each; queries, keys and values convolved over 4 steps
    assert qwen.state == 36 * (32 * 128 * 128 + (2 * 16 * 128 + 32 * 128) * 4)
    rwkv = read(tmp_path, {"model_type": "rwkv", "hidden_size": 768, "num_hidden_layers": 12}).stack
    assert (rwkv.recurrent, rwkv.state, rwkv.attention) == (12, None, ())


ENCODER = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
WITHOUT = {
    "bert": ({"model_type": "bert", **ENCODER}, "this is an encoder"),
    "modernbert": ({"model_type": "modernbert"}, "this is an encoder"),
    "EmbeddingGemma": ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "is an encoder"),
    "ernie": ({"model_type": "ernie", **ENCODER}, "this is an encoder"),
    "vit": ({"model_type": "vit", **ENCODER}, "this is an encoder"),
    "t5": ({"model_type": "t5"}, "this is an encoder and a decoder"),
    "bart": ({"model_type": "bart"}, "this is an encoder and a decoder"),
    "whisper": ({"model_type": "whisper"}, "this is an encoder and a decoder"),
    "mamba": (MAMBA_130M, "every layer attends; here none does"),
    "rwkv": ({"model_type": "rwkv", "hidden_size": 768, "num_hidden_layers": 12}, "here none does"),
    "jamba": (JAMBA, "every layer attends; here 4 of 32 do"),
    "recurrent_gemma": ({"model_type": "recurrent_gemma"}, "here 8 of 26 do"),
    "qwen3_next": (QWEN3_NEXT, "every layer attends; here 12 of 48 do"),
    "minimax": ({"model_type": "minimax"}, "here 16 of 32 do"),
    "falcon_h1": ({"model_type": "falcon_h1"}, "here 32 of 32 are recurrent too"),
    "lfm2": (
        {
            "model_type": "lfm2",
            "num_hidden_layers": 16,
            "hidden_size": 2048,
            "layer_types": (["conv", "conv", "full_attention"] * 6)[:16],
        },
        "here 5 of 16 do",
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_no_verdict_where_the_law_says_nothing(name, tmp_path):
    pytest.importorskip("transformers", reason="some are built by it")
    values, words = WITHOUT[name]
    assert words in why_no_verdict(read(tmp_path, values))


@pytest.mark.parametrize("name", ["gpt-oss-20b", "Gemma-3-4B", "DeepSeek-V3"])
def test_a_verdict_on_decoders_whose_layers_all_attend(name, tmp_path):
    pytest.importorskip("transformers", reason="one is built by it")
    assert why_no_verdict(read(tmp_path, BY_HAND[name][0])) == ""
    assert why_no_verdict(read(tmp_path, {"model_type": "bert", "is_decoder": True, **ENCODER})) == ""


def test_an_encoder_has_no_cache():
    encoder = Architecture(2, 8, 4, causal=False)
    assert price(encoder).cache_bytes == 0
    assert price(encoder).flops == price(Architecture(2, 8, 4)).flops
    with pytest.raises(ConfigError, match="windows: expected one for each of 2 layers, got 1"):
        Architecture(2, 8, 4, windows=(3,))
