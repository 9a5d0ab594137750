"""Parameter counts against the models `transformers` builds on `meta`: nothing is allocated."""

import json

import pytest

from plait.depthwidth.planner import count_params, read_config
from plait.depthwidth.planner.count import Architecture
from plait.depthwidth.planner.count_by_building import count_by_building, read_stack
from plait.depthwidth.planner.families import FAMILIES, NAMES
from plait.errors import DataError

SMALL = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "vocab_size": 101}
MODERN = {**SMALL, "intermediate_size": 80, "num_key_value_heads": 2}
GPT2 = {"n_layer": 3, "n_embd": 48, "n_head": 6, "vocab_size": 101, "n_positions": 33}
BERT = {**SMALL, "intermediate_size": 80, "max_position_embeddings": 37, "type_vocab_size": 3}
MOE = {"num_experts_per_tok": 2, "pad_token_id": 0}
DBRX = {
    "n_layers": 3,
    "d_model": 48,
    "n_heads": 6,
    "vocab_size": 101,
    "attn_config": {"kv_n_heads": 2, "rope_theta": 5e5, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 5, "moe_top_k": 2},
}
FALCON = {**SMALL, "ffn_hidden_size": 100}
T5 = {"num_layers": 3, "d_model": 48, "num_heads": 6, "d_kv": 10, "d_ff": 80, "vocab_size": 101}

# Every family, and every setting that moves its count.
CASES = [
    ("gpt2", {**GPT2, "n_inner": 70}),
    ("gpt2", {**GPT2, "tie_word_embeddings": False}),
    (
        "gpt_neo",
        {
            "num_layers": 4,
            "hidden_size": 48,
            "num_heads": 6,
            "vocab_size": 101,
            "attention_types": [[["global", "local"], 2]],
            "max_position_embeddings": 33,
        },
    ),
    ("gptj", {**GPT2, "rotary_dim": 4}),
    ("codegen", {**GPT2, "n_head": 8, "rotary_dim": 4}),
    ("gpt_neox", {**SMALL, "intermediate_size": 80}),
    ("gpt_neox", {**SMALL, "intermediate_size": 80, "attention_bias": False}),
    ("gpt_bigcode", GPT2),
    ("gpt_bigcode", {**GPT2, "multi_query": False}),
    ("openai-gpt", GPT2),
    ("opt", {**SMALL, "ffn_dim": 80, "max_position_embeddings": 33}),
    (
        "opt",
        {
            **SMALL,
            "ffn_dim": 80,
            "word_embed_proj_dim": 24,
            "do_layer_norm_before": False,
            "enable_bias": False,
        },
    ),
    ("biogpt", {**SMALL, "intermediate_size": 80, "max_position_embeddings": 33}),
    ("xglm", {"num_layers": 3, "d_model": 48, "attention_heads": 6, "ffn_dim": 80, "vocab_size": 101}),
    ("bloom", {"n_layer": 3, "hidden_size": 48, "n_head": 6, "vocab_size": 101}),
    ("mpt", {"n_layers": 3, "d_model": 48, "n_heads": 6, "vocab_size": 101}),
    ("falcon", FALCON),
    ("falcon", {**FALCON, "bias": True, "parallel_attn": False, "multi_query": False}),
    ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("starcoder2", MODERN),
    ("starcoder2", {**MODERN, "use_bias": False, "tie_word_embeddings": False}),
    ("nemotron", {**MODERN, "head_dim": 10}),
    ("persimmon", {**SMALL, "intermediate_size": 80}),
    ("phi", MODERN),
    ("phi", {**MODERN, "qk_layernorm": True}),
    ("llama", MODERN),
    ("llama", {**MODERN, "head_dim": 10, "attention_bias": True, "mlp_bias": True}),
    ("granite", {**MODERN, "tie_word_embeddings": True}),
    ("mistral", {**MODERN, "head_dim": 10}),
    ("smollm3", {**MODERN, "pad_token_id": 0}),
    ("qwen2", MODERN),
    ("qwen3", {**MODERN, "head_dim": 10, "attention_bias": True}),
    ("phi3", {**MODERN, "pad_token_id": 0}),
    ("olmo", MODERN),
    ("olmo2", MODERN),
    ("gemma", {**MODERN, "head_dim": 10}),
    ("gemma2", {**MODERN, "head_dim": 10}),
    ("gemma3_text", {**MODERN, "head_dim": 10}),
    ("cohere", MODERN),
    ("cohere", {**MODERN, "use_qk_norm": True}),
    ("glm", {**MODERN, "head_dim": 10, "pad_token_id": 0}),
    ("stablelm", {**MODERN, "use_qkv_bias": True}),
    ("stablelm", {**MODERN, "qk_layernorm": True}),
    ("mixtral", {**MODERN, **MOE, "num_local_experts": 5}),
    (
        "qwen2_moe",
        {
            **MODERN,
            **MOE,
            "num_experts": 5,
            "moe_intermediate_size": 30,
            "shared_expert_intermediate_size": 50,
            "mlp_only_layers": [1],
        },
    ),
    (
        "qwen3_moe",
        {
            **MODERN,
            **MOE,
            "num_experts": 5,
            "moe_intermediate_size": 30,
            "head_dim": 10,
            "decoder_sparse_step": 2,
        },
    ),
    ("olmoe", {**MODERN, **MOE, "num_experts": 5}),
    ("mistral", {**MODERN, "sliding_window": 7}),
    ("mistral", {**MODERN, "sliding_window": None}),
    ("mixtral", {**MODERN, **MOE, "num_local_experts": 5, "sliding_window": 7}),
    ("phi3", {**MODERN, "sliding_window": 7, "pad_token_id": 0}),
    ("starcoder2", {**MODERN, "sliding_window": 7}),
    ("phimoe", {**MODERN, **MOE, "num_local_experts": 5, "sliding_window": 7}),
    ("qwen2", {**MODERN, "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1}),
    ("qwen3", {**MODERN, "sliding_window": 7, "use_sliding_window": True, "max_window_layers": 2}),
    ("qwen2", {**MODERN, "sliding_window": 7, "use_sliding_window": False}),
    ("qwen2_moe", {**MODERN, **MOE, "num_experts": 5, "sliding_window": 7, "use_sliding_window": True}),
    ("qwen3_moe", {**MODERN, **MOE, "num_experts": 5, "sliding_window": 7, "use_sliding_window": True}),
    (
        "smollm3",
        {
            **MODERN,
            "pad_token_id": 0,
            "sliding_window": 7,
            "use_sliding_window": True,
            "no_rope_layer_interval": 2,
        },
    ),
    (
        "smollm3",
        {
            **MODERN,
            "pad_token_id": 0,
            "sliding_window": 7,
            "use_sliding_window": True,
            "no_rope_layers": [0, 1, 0],
        },
    ),
    ("gemma2", {**MODERN, "head_dim": 10, "sliding_window": 7}),
    ("gemma3_text", {**MODERN, "head_dim": 10, "sliding_window": 7, "sliding_window_pattern": 2}),
    ("gemma3_text", {**MODERN, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("gpt_oss", {**MODERN, **MOE, "num_local_experts": 5, "sliding_window": 7}),
    ("bert", {**BERT, "is_decoder": True}),
    ("phimoe", {**MODERN, **MOE, "num_local_experts": 5, "lm_head_bias": True}),
    ("granitemoe", {**MODERN, **MOE, "num_local_experts": 5}),
    ("dbrx", DBRX),
    ("gpt_oss", {**MODERN, **MOE, "num_local_experts": 5, "head_dim": 10}),
    ("bert", BERT),
    ("roberta", BERT),
    ("xlm-roberta", BERT),
    ("camembert", BERT),
    ("electra", {**BERT, "embedding_size": 24}),
    (
        "distilbert",
        {
            "n_layers": 3,
            "dim": 48,
            "n_heads": 6,
            "hidden_dim": 80,
            "vocab_size": 101,
            "max_position_embeddings": 37,
        },
    ),
    ("mpnet", {**SMALL, "intermediate_size": 80, "max_position_embeddings": 37}),
    (
        "modernbert",
        {**SMALL, "intermediate_size": 80, "pad_token_id": 0, "norm_bias": True, "attention_bias": True},
    ),
    ("t5", T5),
    ("t5", {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 2, "tie_word_embeddings": False}),
    ("mt5", T5),
    ("mt5", {**T5, "tie_word_embeddings": False}),
]
# As published; left out are only settings that move no parameter.
PUBLISHED = {
    "falcon-7b": (
        "falcon",
        {
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
        },
        6_921_720_704,
    ),
    "starcoder2-3b": (
        "starcoder2",
        {
            "hidden_size": 3072,
            "num_hidden_layers": 30,
            "num_attention_heads": 24,
            "num_key_value_heads": 2,
            "intermediate_size": 12288,
            "vocab_size": 49152,
            "use_bias": True,
        },
        3_030_371_328,
    ),
    "gemma-2b": (
        "gemma",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 16384,
            "vocab_size": 256000,
        },
        2_506_172_416,
    ),
    "llama-3-8b": (
        "llama",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "tie_word_embeddings": False,
        },
        8_030_261_248,
    ),
    "mixtral-8x7b": (
        "mixtral",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        46_702_792_704,
    ),
    "bert-base": (
        "bert",
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        },
        109_514_298,
    ),
    "t5-small": (
        "t5",
        {"d_model": 512, "num_layers": 6, "num_heads": 8, "d_kv": 64, "d_ff": 2048, "vocab_size": 32128},
        60_506_624,
    ),
}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="counts are held against transformers' own models")


@pytest.fixture
def read(tmp_path):
    def reader(values):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return read_config(path)

    return reader


def build(transformers, family, values):
    import torch

    kinds = ["AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"]
    config = transformers.CONFIG_MAPPING[family](**values)
    kind = next(
        name
        for name in kinds
        if type(config) in getattr(transformers, name)._model_mapping
        and not (name == kinds[0] and family in ("t5", "mt5"))
    )
    with torch.device("meta"):
        return getattr(transformers, kind).from_config(config)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # their GPT-BigCode
@pytest.mark.parametrize(("family", "values"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_counts_equal_transformers(transformers, read, family, values):
    model = build(transformers, family, values)
    config = read({"model_type": family, **values})
    assert config.count.total == sum(p.numel() for p in model.parameters())
    theirs = read_stack(model, model.config, bool(getattr(model.config, "is_encoder_decoder", False)))
    assert config.stack.kind == theirs.kind
    assert config.stack.attention == theirs.attention
    if config.architecture is not None:
        assert family in FAMILIES
        assert config.count == count_params(config.architecture)
        built = count_by_building({"model_type": family, **values}).count
        assert built.layers == config.count.layers
        assert built.output == config.count.output
    assert config.depth in (3, 4)
    assert config.width == 48


def test_every_family_has_a_case():
    assert set(FAMILIES) <= {family for family, _ in CASES}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_defaults_are_those_of_the_class(transformers, family):
    config = transformers.CONFIG_MAPPING[family]().to_dict()
    for name, value in FAMILIES[family].defaults.items():
        theirs = [config[key] for key in NAMES.get(name, (name,)) if key in config]
        assert theirs == [value], name


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes(read, name):
    family, values, total = PUBLISHED[name]
    assert read({"model_type": family, **values}).count.total == total


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_are_what_transformers_builds(transformers, name):
    family, values, total = PUBLISHED[name]
    assert sum(p.numel() for p in build(transformers, family, values).parameters()) == total


def test_experts_are_counted_whole_and_by_what_a_token_uses(read):
    family, values, _ = PUBLISHED["mixtral-8x7b"]
    count = read({"model_type": family, **values}).count
    assert count.inactive == 32 * 6 * 3 * 4096 * 14336
    assert count.active + count.embeddings + count.output == 12_879_925_248  # known as 12.9 B active
    dense = count_params(Architecture(2, 8, 2))
    assert dense.active == dense.layers


def test_assumptions_about_the_file_are_reported(read):
    text = {name: value for name, value in MODERN.items() if name != "num_attention_heads"}
    gemma = read({"model_type": "gemma3", "text_config": text})
    assert gemma.family == "gemma3_text"
    assert "the language part of gemma3" in gemma.assumed[0]
    assert "num_attention_heads = 8" in gemma.assumed[1]
    assert "tie_word_embeddings = True" in gemma.assumed[1]
    assert gemma.count.output == 0


def test_any_other_is_built(transformers, read, monkeypatch):
    values = {"model_type": "ernie4_5", **MODERN, "head_dim": 8}
    config = read(values)
    assert config.architecture is None
    assert "that transformers builds" in config.assumed[-1]
    model = build(transformers, "ernie4_5", {k: v for k, v in values.items() if k != "model_type"})
    assert config.count.total == sum(p.numel() for p in model.parameters())
    with pytest.raises(DataError, match="known neither here nor to transformers"):
        read({**values, "model_type": "surprise"})
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(DataError, match=r"which is not installed \(pip install 'plait\[hf\]'\)"):
        read(values)
    assert read({"model_type": "llama", **MODERN}).architecture is not None
    with pytest.raises(DataError, match="is counted on the model that transformers builds"):
        read({"model_type": "qwen2", **MODERN, "use_sliding_window": True})


# Attention, feed-forward, norms, embeddings, output layer, and the experts that a token does not use.
PARTS = {
    "bert": (28224, 23424, 576, 6864, 2549, 0),
    "bloom": (28224, 56016, 672, 4944, 0, 0),
    "dbrx": (18432, 173520, 336, 4848, 4848, 103680),
    "gpt_neo": (37056, 74688, 864, 6432, 0, 0),
    "granitemoe": (18432, 173520, 336, 4848, 4848, 103680),
    "mixtral": (18432, 173520, 336, 4848, 4848, 103680),
}


@pytest.mark.parametrize("family", PARTS)
def test_parameters_are_sorted_into_parts(read, family):
    values = next(values for name, values in CASES if name == family and not values.get("is_decoder"))
    count = read({"model_type": family, **values}).count
    names = ("attention", "feed_forward", "norms", "embeddings", "output", "inactive")
    assert tuple(getattr(count, name) for name in names) == PARTS[family]
