"""Trained scores: what a head reads, files that are refused, and a cache that keeps what scores rank high."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
import torch

from plait.errors import ConfigError, DataError

transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from safetensors.torch import load_file, save_file  # noqa: E402

from plait.hf import BoundedCache, Scores  # noqa: E402
from plait.hf.saved import model_checksum  # noqa: E402
from plait.hf.tapped import TappedCache  # noqa: E402
from tests.hf.test_cache import FAMILIES, LARGE, SMALL, build, close, generate, logits, tokens  # noqa: E402


def drawn(model, seed=3, **options):
    """Return scores with random weights in every part."""
    scores = Scores(model, **{**SMALL, "width": 8, **options})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in scores.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return scores


@pytest.fixture
def saved(tmp_path):
    model = build()
    scores = drawn(model)
    scores.trained = {"recipe": "usage", "updates": 3}
    return model, scores, scores.save(tmp_path / "scores", model)


# In a cache


@pytest.mark.parametrize("features", ["states", "hidden"])
@pytest.mark.parametrize("family", [*FAMILIES, "Gemma3"])
def test_chunks_of_any_size_keep_the_same_states(family, features):
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
    model, ids = build(family, **(kinds if family == "Gemma3" else {})), tokens()
    scores = drawn(model, features=features)
    single = BoundedCache(model, **SMALL, scores=scores)
    expected = logits(model, ids, single, chunk=1)
    for chunk in (7, 40):
        cache = BoundedCache(model, **SMALL, scores=scores)
        close(logits(model, ids, cache, chunk), expected)
        assert all(torch.equal(cache.births(i), single.births(i)) for i in scores.layers)
    other = BoundedCache(model, **SMALL, scores=drawn(model, seed=4, features=features))
    logits(model, ids, other)
    assert not torch.equal(other.births(scores.layers[0]), single.births(scores.layers[0]))


@pytest.mark.parametrize("features", ["states", "hidden"])
def test_a_batch_padded_on_the_left_is_its_rows(features):
    model, ids = build(), tokens(rows=3, length=36)
    scores, lengths = drawn(model, features=features), [36, 21, 3]
    mask = torch.arange(36) >= 36 - torch.tensor(lengths)[:, None]
    cache = BoundedCache(model, **SMALL, scores=scores)
    with torch.no_grad():
        model(
            ids.where(mask, 0),
            past_key_values=cache,
            attention_mask=mask.long(),
            position_ids=(mask.cumsum(1) - 1).clamp_min(0),
        )
    for row, length in enumerate(lengths):
        alone = BoundedCache(model, **SMALL, scores=scores)
        logits(model, ids[row : row + 1, 36 - length :], alone)
        kept = alone.births(1)[0]
        assert torch.equal(cache.births(1)[row], torch.where(kept < 0, -1, kept + 36 - length))


def test_with_room_for_the_text_it_is_the_full_cache():
    model, ids = build(), tokens()
    full = logits(model, ids, transformers.DynamicCache(config=model.config))
    close(logits(model, ids, BoundedCache(model, **LARGE, scores=drawn(model)), chunk=17), full)


def test_new_scores_keep_the_first_states_and_a_rate_of_ageing_the_latest():
    model, ids = build(), tokens()
    cache = BoundedCache(model, **SMALL, scores=Scores(model, **SMALL))
    logits(model, ids, cache)
    assert cache.births(0)[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 36, 37, 38, 39]
    scores = Scores(model, **SMALL)
    with torch.no_grad():
        scores.heads["0"].recency.fill_(0.1)
    cache = BoundedCache(model, **SMALL, scores=scores)
    assert (cache.policy, BoundedCache(model, **SMALL).policy) == ("learned", "sinks")
    logits(model, ids, cache)
    recent = BoundedCache(model, **SMALL, policy="sinks")
    logits(model, ids, recent)
    assert torch.equal(cache.births(0), recent.births(0))


def test_generate_takes_scores_from_a_folder(saved):
    model, scores, folder = saved
    texts = [generate(model, tokens(), BoundedCache(model, **SMALL, scores=x)) for x in (scores, folder)]
    assert torch.equal(*texts)
    assert torch.equal(texts[0], generate(model, tokens(), BoundedCache(model, **SMALL, scores=str(folder))))


# A head


def states(model, ids):
    """Return the states of layer 0 of a text, as a cache has them."""
    seen = []

    def attention(query, token):
        seen.append(token)
        return torch.nn.functional.scaled_dot_product_attention(
            query, token.key, token.value, is_causal=True, enable_gqa=True
        )

    with torch.no_grad():
        model(ids, past_key_values=TappedCache(model, attention))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_those_of_any_position(family):
    """In the first layer a word has one score, wherever it stands, but for its age."""
    model = build(family)
    token = states(model, torch.tensor([[5, 9, 7, 11, 9, 3, 9]]))[0]
    scores = drawn(model)
    assert not torch.allclose(token.key[0, 0, 1], token.key[0, 0, 6], atol=1e-3)
    with torch.no_grad():
        scores.heads["0"].recency.zero_()
        ranks = scores(token)[0]
        close(ranks[:, [1, 1]], ranks[:, [4, 6]])
        assert (ranks[:, 1] - ranks[:, 0]).abs().min() > 1e-2
        scores.heads["0"].recency.fill_(2.0)
        close(scores(token)[0] - ranks, (2.0 * torch.arange(7) / 9).expand_as(ranks))


def test_a_tapped_cache_is_the_model():
    model, ids = build("GPTNeoX"), tokens()
    seen = []

    def attention(query, token):
        seen.append((token.layer, token.key.shape))
        return torch.nn.functional.scaled_dot_product_attention(query, token.key, token.value, is_causal=True)

    cache = TappedCache(model, attention)
    expected = logits(model, ids, transformers.DynamicCache(config=model.config))
    close(logits(model, ids, cache), expected)
    assert seen == [(0, (2, 4, 40, 8)), (1, (2, 4, 40, 8))]
    with pytest.raises(ConfigError, match="expected one call with a new TappedCache"):
        logits(model, ids, cache)


def test_hidden_states_are_those_that_attention_reads():
    """A linear layer of the attention maps the features to its values."""
    model = build()
    scores = Scores(model, **SMALL, features="hidden")
    for token in states(model, tokens()):
        values = model.model.layers[token.layer].self_attn.v_proj(scores.head(token.layer).features(token))
        close(values.unflatten(2, (2, 8)).transpose(1, 2), token.value)


def test_every_part_has_a_gradient_and_calibration_standardises():
    model = build()
    scores, seen = drawn(model), states(model, tokens())
    scores.calibrate(seen)
    for token in seen:
        head = scores.heads[str(token.layer)]
        x = ((head.features(token) - head.mean) * head.scale).flatten(0, 1)
        close(x.mean(dim=0), torch.zeros(x.shape[1]))
        close(x.std(dim=0, correction=0), torch.ones(x.shape[1]))
        scores(token).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in scores.parameters())
    assert len(list(scores.parameters())) == 2 * 5
    assert len(list(Scores(model, **SMALL, width=0).parameters())) == 2 * 2


def test_scores_are_float32_and_a_seed_decides_them():
    model = build().to(torch.bfloat16)
    scores = drawn(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert scores(states(model, tokens())[0]).dtype == torch.float32
    first, second, third = (
        Scores(model, **SMALL, seed=seed).heads["0"].hidden.detach() for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_scores_of_a_model_of_135_million_have_under_five_megabytes():
    config = transformers.LlamaConfig(
        vocab_size=8,
        hidden_size=576,
        intermediate_size=8,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        eos_token_id=None,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    for features in ("states", "hidden"):
        scores = Scores(model, window=64, capacity=188, features=features)
        assert sum(value.nbytes for value in scores.state_dict().values()) < 5e6


# On disk


def test_saved_scores_come_back_for_any_precision(saved):
    model, scores, folder = saved
    header = json.loads((folder / "scores.json").read_text())
    assert (header["format"], header["version"], header["model"]["type"]) == ("plait scores", 1, "llama")
    assert header["cache"] == {"window": 4, "capacity": 5, "sinks": 2}
    assert header["layers"]["1"] == {"kv_heads": 2, "key": 8, "value": 8, "rotated": 8, "hidden": 32}
    assert header["trained"] == {"recipe": "usage", "updates": 3}
    for dtype in (torch.float32, torch.bfloat16):
        again = Scores.load(folder, model.to(dtype))
        assert again.trained == scores.trained
        assert repr(again) == "Scores(2 layers, window=4, capacity=5, sinks=2, width=8)"
        expected = scores.state_dict()
        assert again.state_dict().keys() == expected.keys()
        assert all(torch.equal(value, expected[name]) for name, value in again.state_dict().items())


def test_the_checksum_is_that_of_the_weights():
    model = build()
    before = model_checksum(model)
    assert before == model_checksum(build()) == model_checksum(build().to(torch.bfloat16))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 0.01
    assert model_checksum(model) != before


def test_another_model_is_refused(saved):
    model, scores, folder = saved
    with torch.no_grad():
        model.lm_head.weight[5] += 1
    with pytest.raises(ConfigError, match=r"expected the model the scores were trained for, Llama.*checksum"):
        Scores.load(folder, model)
    with pytest.raises(ConfigError, match=r"expected the model .* got Qwen3.* with other weights"):
        BoundedCache(build("Qwen3"), **SMALL, scores=folder)
    with pytest.raises(ConfigError, match=r"scores: .* got LlamaForCausalLM with another layer 2"):
        BoundedCache(build(num_hidden_layers=3), **SMALL, scores=scores)
    with pytest.raises(ConfigError, match="with another layer 0"):
        scores.save(folder, build(num_key_value_heads=1))


def damage(folder, what):
    """Damage saved scores in one way."""
    header, tensors = folder / "scores.json", folder / "scores.safetensors"
    values = json.loads(header.read_text())
    if what == "no folder":
        header.unlink()
    elif what == "bits":
        content = bytearray(tensors.read_bytes())
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif what == "text":
        header.write_text("[" * 9)
    elif what == "version":
        header.write_text(json.dumps({**values, "version": 2}))
    elif what == "sizes":
        header.write_text(json.dumps({**values, "cache": {"window": -1, "capacity": 5, "sinks": 2}}))
    elif what == "names":
        header.write_text(json.dumps({**values, "cache": {"slots": 5}}))
    elif what == "kind":
        header.write_text(json.dumps({**values, "trained": []}))
    else:
        contents = load_file(tensors)
        if what == "shape":
            contents["heads.0.mean"] = torch.zeros(3)
        elif what == "lacking":
            del contents["heads.1.out"]
        elif what == "nan":
            contents["heads.1.out"][0, 0] = math.nan
        save_file(contents, tensors)

        values["sha256"] = hashlib.sha256(tensors.read_bytes()).hexdigest()
        header.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("no folder", "scores.json: expected a folder of trained scores, cannot read it"),
        ("bits", "scores.safetensors: is damaged or not what scores.json describes"),
        ("text", "scores.json: is not JSON"),
        (
            "version",
            "expected format 'plait scores', version 1, got {'format': 'plait scores', 'version': 2}",
        ),
        ("sizes", "scores.json: window: expected at least 1, got -1"),
        ("names", "scores.json: cache: expected window, capacity and sinks, got"),
        ("kind", "scores.json: trained: expected dict, got \\[\\]"),
        ("shape", "heads.0.mean: expected torch.float32 \\(24,\\), got torch.float32 \\(3,\\)"),
        ("lacking", "heads.1.out: expected torch.float32 \\(2, 8\\), got none"),
        ("nan", "heads.1.out: expected finite numbers"),
    ],
)
def test_damaged_files_are_refused_in_one_line(saved, what, match):
    model, _, folder = saved
    damage(folder, what)
    with pytest.raises(DataError, match=match) as error:
        Scores.load(folder, model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"window": 0}, "window: expected at least 1"),
        ({"capacity": -1}, "capacity: expected at least 0"),
        ({"width": -1}, "width: expected at least 0"),
        ({"width": 10**6}, "width: expected at most 4,096"),
        ({"seed": -1}, "seed: expected at least 0"),
    ],
    ids=str,
)
def test_bad_options(options, match):
    with pytest.raises(ConfigError, match=match):
        Scores(build(), **{**SMALL, **options})


def test_a_model_that_does_not_use_its_cache_is_refused():
    model = build().train()
    # renamed in transformers 5.23
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    with pytest.raises(ConfigError, match=r"expected LlamaForCausalLM to use its cache.*model\.eval\(\)"):
        Scores(model, **SMALL)


def test_scores_and_another_policy_are_refused():
    model = build()
    with pytest.raises(ConfigError, match="got policy='knorm' with scores"):
        BoundedCache(model, **SMALL, policy="knorm", scores=Scores(model, **SMALL))
    with pytest.raises(ConfigError, match="expected a model of transformers, got Linear"):
        Scores(torch.nn.Linear(2, 2), **SMALL)
