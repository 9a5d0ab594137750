"""Judgements of published configurations: parameters and cache to the digit, and a sentence that fits.

Totals are those of the published weights; the cache per token is keys and values of the layers without a
window, in 16 bits.
"""

import json
import re

import pytest

from plait.depthwidth.planner import MODELS, judge, read_config
from plait.depthwidth.planner.cost import price_stack
from plait.depthwidth.planner.judgement import why_no_verdict

_NAMES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)


def gated(family, *sizes, vocab, tied=False, **more):
    """Settings of a Llama-like model: layers, width, heads, key and value heads, inner width."""
    shape = dict(zip(_NAMES, sizes, strict=True))
    return {"model_type": family, **shape, "vocab_size": vocab, "tie_word_embeddings": tied, **more}


def plain(family, layers, width, heads, vocab, **more):
    shape = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    return {"model_type": family, **shape, "vocab_size": vocab, **more}


QWEN3_MIXTURE = {
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
PHI_MIXTURE = {
    "num_local_experts": 16,
    "attention_bias": True,
    "lm_head_bias": True,
    "sliding_window": 131072,
}
GPT2 = {"model_type": "gpt2", "n_positions": 1024, "vocab_size": 50257}
# name: settings, parameters, bytes in the cache per token
DECODERS = {
    "Llama 3 8B": (gated("llama", 32, 4096, 32, 8, 14336, vocab=128256), 8_030_261_248, 131_072),
    "Llama 3 70B": (gated("llama", 80, 8192, 64, 8, 28672, vocab=128256), 70_553_706_496, 327_680),
    "Llama 3.2 1B": (gated("llama", 16, 2048, 32, 8, 8192, vocab=128256, tied=True), 1_235_814_400, 32_768),
    "Llama 2 7B": (gated("llama", 32, 4096, 32, 32, 11008, vocab=32000), 6_738_415_616, 524_288),
    "TinyLlama 1.1B": (gated("llama", 22, 2048, 32, 4, 5632, vocab=32000), 1_100_048_384, 22_528),
    "Qwen2.5 0.5B": (gated("qwen2", 24, 896, 14, 2, 4864, vocab=151936, tied=True), 494_032_768, 12_288),
    "Qwen2.5 7B": (gated("qwen2", 28, 3584, 28, 4, 18944, vocab=152064), 7_615_616_512, 57_344),
    "Qwen3 8B": (gated("qwen3", 36, 4096, 32, 8, 12288, vocab=151936, head_dim=128), 8_190_735_360, 147_456),
    "Qwen3 30B-A3B": (
        gated("qwen3_moe", 48, 2048, 32, 4, 6144, vocab=151936, **QWEN3_MIXTURE),
        30_532_122_624,
        98_304,
    ),
    "Gemma 3 1B": (
        gated("gemma3_text", 26, 1152, 4, 1, 6912, vocab=262144, tied=True, head_dim=256, sliding_window=512),
        999_885_952,
        4_096,
    ),
    "Mixtral 8x7B": (
        gated("mixtral", 32, 4096, 32, 8, 14336, vocab=32000, num_local_experts=8, sliding_window=None),
        46_702_792_704,
        131_072,
    ),
    "OLMo 2 7B": (gated("olmo2", 32, 4096, 32, 32, 11008, vocab=100352), 7_298_617_344, 524_288),
    "SmolLM2 135M": (gated("llama", 30, 576, 9, 3, 1536, vocab=49152, tied=True), 134_515_008, 23_040),
    "Phi-3 mini": (
        gated("phi3", 32, 3072, 32, 32, 8192, vocab=32064, sliding_window=2047),
        3_821_079_552,
        0,
    ),
    "Phi-3.5 MoE": (gated("phimoe", 32, 4096, 32, 8, 6400, vocab=32064, **PHI_MIXTURE), 41_873_153_344, 0),
    "StableLM 2 1.6B": (
        gated("stablelm", 24, 2048, 32, 32, 5632, vocab=100352, use_qkv_bias=True),
        1_644_515_328,
        196_608,
    ),
    "Phi-2": (plain("phi", 32, 2560, 32, 51200, intermediate_size=10240), 2_779_683_840, 327_680),
    "GPT-2": ({**GPT2, "n_layer": 12, "n_embd": 768, "n_head": 12}, 124_439_808, 36_864),
    "GPT-2 XL": ({**GPT2, "n_layer": 48, "n_embd": 1600, "n_head": 25}, 1_557_611_200, 307_200),
    "GPT-NeoX 20B": (
        plain("gpt_neox", 44, 6144, 64, 50432, intermediate_size=24576),
        20_554_567_680,
        1_081_344,
    ),
    "Pythia 410M": (plain("gpt_neox", 24, 1024, 16, 50304, intermediate_size=4096), 405_334_016, 98_304),
    "GPT-J 6B": (
        {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "vocab_size": 50400},
        6_050_882_784,
        458_752,
    ),
    "OPT 1.3B": (
        plain(
            "opt", 24, 2048, 32, 50272, ffn_dim=8192, max_position_embeddings=2048, word_embed_proj_dim=2048
        ),
        1_315_758_080,
        196_608,
    ),
    "BLOOM 7.1B": (
        {"model_type": "bloom", "n_layer": 30, "hidden_size": 4096, "n_head": 32, "vocab_size": 250880},
        7_069_016_064,
        491_520,
    ),
    "Falcon 7B": (plain("falcon", 32, 4544, 71, 65024), 6_921_720_704, 8_192),
    "Falcon 40B": (
        plain("falcon", 60, 8192, 128, 65024, num_kv_heads=8, new_decoder_architecture=True),
        41_303_293_952,
        122_880,
    ),
    "MPT 7B": (
        {"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "vocab_size": 50432},
        6_649_286_656,
        524_288,
    ),
    "GPT-Neo 1.3B": (
        {
            "model_type": "gpt_neo",
            "num_layers": 24,
            "hidden_size": 2048,
            "num_heads": 16,
            "vocab_size": 50257,
        },
        1_315_575_808,
        98_304,
    ),
}
OTHERS = {
    "BERT base": (plain("bert", 12, 768, 12, 30522, intermediate_size=3072), 109_514_298, "an encoder"),
    "ModernBERT base": (
        plain("modernbert", 22, 768, 12, 50368, intermediate_size=1152),
        149_655_232,
        "an encoder",
    ),
    "T5 base": (
        {"model_type": "t5", "num_layers": 12, "d_model": 768, "num_heads": 12, "d_kv": 64, "d_ff": 3072},
        222_903_552,
        "an encoder and a decoder",
    ),
}


@pytest.fixture
def read(tmp_path):
    def reader(values):
        (tmp_path / "config.json").write_text(json.dumps(values))
        return read_config(tmp_path)

    return reader


@pytest.mark.parametrize("name", DECODERS)
def test_parameters_cache_and_words(read, name):
    values, params, cache = DECODERS[name]
    model = read(values)
    assert model.count.total == params
    assert price_stack(model.stack, model.count).cache_bytes == cache
    assert why_no_verdict(model) == ""
    result = judge(model.depth, model.width, model.count.layers)
    # All are published, within the range of their like: no verdict is against all of these.
    assert result.verdict in (None, "balanced")
    assert not re.search(r"\b(far|clearly|slightly)\b", result.words)
    assert "published model" in result.words
    low, high = result.interval
    assert low <= model.depth <= high or len(result.supported_by) == 1
    known = [row for row in MODELS if row.name == name]
    assert all((row.depth, row.width) == (model.depth, model.width) for row in known)


@pytest.mark.parametrize("name", OTHERS)
def test_no_law_for_encoders(read, name):
    values, params, kind = OTHERS[name]
    model = read(values)
    assert model.count.total == params
    assert why_no_verdict(model).endswith(f"this is {kind}")


def test_names_are_those_of_the_table():
    """Most are in the table of published models, whose depths and widths are thus held against totals."""
    assert sum(row.name in DECODERS for row in MODELS) >= 18
