"""Configuration files: real shapes, assumptions said aloud, and files that are none."""

import json

import pytest
from starlette.testclient import TestClient

from plait.depthwidth.planner import read_config
from plait.errors import DataError
from plait.lab.cli import main
from plait.lab.report.explore.app import application

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "max_position_embeddings": 131072,
}
QWEN = {
    "model_type": "qwen2",
    "num_hidden_layers": 24,
    "hidden_size": 896,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
PYTHIA = {
    "model_type": "gpt_neox",
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 50304,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}
DBRX = {"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2}


def read(tmp_path, values):
    path = tmp_path / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return read_config(path)


@pytest.mark.parametrize(
    ("values", "total"),
    [(GPT2, 124_439_808), (LLAMA, 8_030_261_248), (QWEN, 494_032_768), (PYTHIA, 405_334_016)],
    ids=["gpt2", "llama", "qwen2", "pythia"],
)
def test_published_totals(tmp_path, values, total):
    config = read(tmp_path, values)
    assert config.count.total == total


def test_nothing_is_assumed_in_silence(tmp_path):
    assert read(tmp_path, {**LLAMA, "head_dim": 128}).assumed == ()
    open_ended = {key: value for key, value in LLAMA.items() if key not in ("vocab_size", "mlp_bias")}
    assert "vocab_size = 32000" in read(tmp_path, open_ended).assumed[0]
    assert "mlp_bias = False" in read(tmp_path, open_ended).assumed[0]


def test_the_language_part_of_a_larger_model(tmp_path):
    part = read(tmp_path, {"model_type": "several", "text_config": LLAMA})
    assert part.depth == 32
    assert "the language part of several" in part.assumed[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "expected a JSON object"),
        ({"hello": 1}, "it lacks num_hidden_layers"),
        ({**GPT2, "n_head": 7}, "heads: must divide width 768"),
        ({**GPT2, "n_layer": 0}, "n_layer: expected a positive whole number, got 0"),
        ({**GPT2, "n_embd": "wide"}, "n_embd: expected a positive whole number"),
        ({**LLAMA, "attention_bias": 3}, "attention_bias: expected true or false, got 3"),
        ({"n_layer": 2, "n_embd": 64, "n_head": 4}, "it lacks model_type"),
    ],
)
def test_files_that_are_none(tmp_path, values, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, values)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_config(tmp_path / "nothing.json")


HOSTILE = {
    "deep": "[" * 200_000 + "]" * 200_000,
    "deep inside": '{"model_type": "gpt2", "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a number of 400 digits": {**GPT2, "n_layer": 10**400},
    "a width of 400 digits": {**GPT2, "n_embd": 12 * 10**400},
    "a number of 5000 digits": json.dumps(GPT2)[:-1] + ', "n_layer": 1' + "0" * 5000 + "}",
    "a vocabulary beyond all": {**GPT2, "vocab_size": 2**63},
    "half a character": {"model_type": "\ud800", "text_config": {}},
    "half a character inside": {**GPT2, "model_type": "\udc00"},
    "experts as an object": {**MIXTRAL, "num_local_experts": {"a": 1}},
    "experts as a list": {**MIXTRAL, "num_experts_per_tok": [2]},
    "more experts at work than there are": {**MIXTRAL, "num_experts_per_tok": 10**9},
    "text for a switch": {**LLAMA, "tie_word_embeddings": "yes"},
    "NaN": {**GPT2, "n_layer": float("nan")},
    "settings as a list": {**DBRX, "ffn_config": [1]},
    "settings of text": {**DBRX, "ffn_config": {"ffn_hidden_size": "x"}},
    "built, experts as an object": {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "n_routed_experts": {"a": 1},
    },
    "layers without end": {"model_type": "qwen2_moe", "num_hidden_layers": 10**12},
    "built, without end": {"model_type": "deepseek_v3", "num_hidden_layers": 10**9, "hidden_size": 64},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_line(name, tmp_path, capsys):
    values = HOSTILE[name]
    path = tmp_path / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    assert main(["plan", "judge", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert "bug in plait" not in said
    assert said.count("\n") == 1
    assert len(said) < 500
    browser = TestClient(application(tmp_path), base_url="http://localhost", raise_server_exceptions=False)
    answer = browser.post("/api/config", content=path.read_bytes())
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_the_explorer_gives_no_verdict_where_the_law_says_nothing(tmp_path):
    browser = TestClient(application(tmp_path), base_url="http://localhost")
    answer = browser.post("/api/config", content=json.dumps({"model_type": "bert"}))
    assert answer.status_code == 200
    (table,) = answer.json()["parts"]
    assert table["notes"][-1].startswith("no verdict: the law is about decoders")
    tables = browser.post("/api/config", content=json.dumps(GPT2)).json()["parts"]
    assert [label for table in tables for label, *_ in table["rows"]].count("verdict") == 1
