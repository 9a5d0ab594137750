"""A bounded cache in `generate`: what it keeps is the definition's, and a large one is `DynamicCache`."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from plait.errors import ConfigError, PlaitError, UnknownNameError

transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.hf import POLICIES, BoundedCache  # noqa: E402
from plait.hf.layer import BoundedLayer, Limits  # noqa: E402
from plait.hf.policies import Policy, make_policy  # noqa: E402

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
UNTRAINED = sorted(set(POLICIES) - {"learned"})
SMALL = {"window": 4, "capacity": 5, "sinks": 2}
LARGE = {"window": 20, "capacity": 60, "sinks": 2}
FAMILIES = ["Llama", "Qwen2", "Qwen3", "Mistral", "Gemma", "GPTNeoX", "Phi"]


def build(family="Llama", **changes):
    """Return a model with random weights, the same for the same arguments."""
    torch.manual_seed(0)
    sizes = {**SIZES, **({"sliding_window": None} if family == "Mistral" else {})}
    if family in ("Qwen3", "Gemma"):
        sizes["head_dim"] = 8
    config = getattr(transformers, f"{family}{'Text' * (family == 'Gemma3')}Config")(**{**sizes, **changes})
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def tokens(rows=2, length=40, seed=1):
    """Return texts in which no token comes twice, so that no two keys have one norm but for rounding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(95, generator=generator)[:length] + 2 for _ in range(rows)])


def logits(model, ids, cache, chunk=None, **options):
    """Return the logits of a text that is read in chunks."""
    with torch.no_grad():
        pieces = ids.split(chunk or ids.shape[1], dim=1)
        return torch.cat([model(x, past_key_values=cache, **options).logits for x in pieces], dim=1)


def generate(model, ids, cache=None, tokens=12, **options):
    torch.manual_seed(3)
    options = {"do_sample": False, **options}
    return model.generate(ids, past_key_values=cache, max_new_tokens=tokens, **options)


def close(a, b):
    torch.testing.assert_close(a, b, atol=5e-5, rtol=1e-5)


# The definition


def definition(policy, query, key, value, limits, layer, valid):
    """Read one token after another with lists: return outputs and the births kept, head by head."""
    rows, heads, steps, size = key.shape
    group = query.shape[1] // heads
    window, capacity, sinks = limits
    output, births = torch.zeros_like(query), []
    for row in range(rows):
        for head in range(heads):
            ranks = {}
            kept = []
            k = key[row, head]
            for t in range(steps):
                if valid[row, t]:
                    ranks[t] = birth_rank(policy, k[t], int(valid[row, :t].sum()), head, layer)
                    kept.append(t)
                older = [j for j in kept[sinks:] if j <= t - window]
                for j in sorted(older, key=lambda j: (-ranks[j], j))[capacity:]:
                    kept.remove(j)
                assert len(kept) <= limits.slots
                if not valid[row, t]:
                    continue
                q = query[row, head * group : (head + 1) * group, t]
                weights = (q @ k[kept].T / size**0.5).softmax(-1)
                output[row, head * group : (head + 1) * group, t] = weights @ value[row, head, kept]
                move(policy, ranks, kept, weights, k, t, window)
            births.append(kept)
    return output, births


def birth_rank(policy, key, number, head, layer):
    if policy == "sinks":
        return number
    if policy == "knorm":
        return -float(key.norm())
    if policy == "coarse":
        return round(float(key[0]))
    if policy == "random":
        return lowbias(lowbias(lowbias(lowbias(head + 1) + layer) + 7) + number)
    return 0.0


def lowbias(x):
    """Hash as C does with 32 bits (Wellons, lowbias32)."""
    x &= 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def move(policy, ranks, kept, weights, keys, now, window):
    if policy == "keydiff":
        mean = normalize(keys[kept], dim=-1).mean(0, keepdim=True)
        for j, value in zip(kept, (-cosine_similarity(keys[kept], mean)).tolist(), strict=True):
            ranks[j] = value
    for j, received in zip(kept, weights.sum(0).tolist(), strict=True):
        if policy == "tova":
            ranks[j] = received
        elif policy == "h2o" or (policy == "earned" and j > now - window):
            ranks[j] += received


class Config:
    _attn_implementation = "plait_sdpa"


COARSE = Policy(lambda token: token.key[..., 0].round())  # ranks that often agree


def one_layer(policy, limits):
    ranking = COARSE if policy == "coarse" else make_policy(policy, None, 7)
    return BoundedLayer(3, limits, ranking, Config)


def states(rows=2):
    generator = torch.Generator().manual_seed(5)
    query = torch.randn(rows, 4, 30, 8, generator=generator, dtype=torch.float64)
    return query, *torch.randn(2, rows, 2, 30, 8, generator=generator, dtype=torch.float64)


def read(layer, query, key, value, valid=None, chunks=(30,)):
    """Return what the queries of all chunks read."""
    flags = [None] * len(chunks) if valid is None else valid.split(chunks, dim=1)
    parts = []
    for q, k, v, ok in zip(*(x.split(chunks, dim=2) for x in (query, key, value)), flags, strict=True):
        parts.append(layer.read(q, *layer.update(k, v), valid=ok, scaling=None))
    return torch.cat(parts, dim=2)


def kept_births(layer):
    return [[j for j in row if j >= 0] for row in layer.births.flatten(0, 1).sort(dim=1).values.tolist()]


CHUNKS = {"tokens": [1] * 30, "sevens": [7, 7, 7, 7, 2], "whole": [30], "mixed": [9, 1, 1, 1, 8, 1, 1, 8]}


@pytest.mark.parametrize("limits", [(4, 5, 2), (1, 3, 0), (3, 0, 1), (1, 0, 0)], ids=str)
@pytest.mark.parametrize("policy", [*UNTRAINED, "coarse"])
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("padded", [False, True], ids=["dense", "padded"])
def test_a_layer_keeps_and_reads_what_the_definition_does(policy, limits, chunks, padded):
    """Padding stands in the middle as well, as between the turns of a batch."""
    limits, tensors = Limits(*limits), states()
    valid = torch.rand(2, 30, generator=torch.Generator().manual_seed(2)) > (0.3 if padded else -1)
    layer = one_layer(policy, limits)
    output = read(layer, *tensors, valid if padded else None, CHUNKS[chunks])
    expected, births = definition(policy, *tensors, limits, 3, valid)
    seen = valid[:, None, :, None]
    torch.testing.assert_close(output * seen, expected * seen, atol=1e-6, rtol=1e-6)
    assert kept_births(layer) == births
    assert layer.keys.shape == (2, 2, limits.slots, 8)


@pytest.mark.parametrize("policy", UNTRAINED)
def test_rows_can_be_repeated_and_exchanged_between_chunks(policy):
    tensors, rows = states(), torch.tensor([1, 1, 0, 0])
    layer = one_layer(policy, Limits(4, 5, 2))
    read(layer, *(x[:, :, :15] for x in tensors), chunks=[15])
    layer.batch_repeat_interleave(2)
    layer.reorder_cache(torch.tensor([2, 3, 0, 1]))
    after = read(layer, *(x[rows, :, 15:] for x in tensors), chunks=[1] * 15)
    expected = read(one_layer(policy, Limits(4, 5, 2)), *tensors)[rows, :, 15:]
    torch.testing.assert_close(after, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("chunks", [[30], [1] * 30], ids=["whole", "tokens"])
def test_a_nan_rank_comes_last(chunks):
    def ranks(token):
        values = token.number[:, None].expand(token.key.shape[:3]).float()
        return values.where(values % 3 > 0, torch.nan)

    layer = BoundedLayer(0, Limits(1, 4, 0), Policy(ranks), Config)
    read(layer, *states(), chunks=chunks)
    assert kept_births(layer) == [[23, 25, 26, 28, 29]] * 4


# A model with room for the whole text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_cache_as_large_as_the_text_is_the_full_cache(family, attention):
    model = build(family, attn_implementation=attention)
    ids = tokens()
    full = logits(model, ids, transformers.DynamicCache(config=model.config))
    greedy = generate(model, ids, tokens=20)
    cache = BoundedCache(model, **LARGE, policy="knorm")
    close(logits(model, ids, cache, chunk=17), full)
    assert torch.equal(generate(model, ids, BoundedCache(model, **LARGE), tokens=20), greedy)
    assert torch.equal(logits(model, ids, transformers.DynamicCache(config=model.config)), full)


def test_layers_with_a_sliding_window_keep_theirs():
    kinds = ["sliding_attention", "full_attention"]
    model = build("Gemma3", sliding_window=8, head_dim=8, layer_types=kinds)
    ids = tokens()
    full = logits(model, ids, transformers.DynamicCache(config=model.config), chunk=9)
    close(logits(model, ids, BoundedCache(model, **LARGE), chunk=9), full)
    cache = BoundedCache(model, **SMALL)
    logits(model, ids, cache)
    assert cache.births(1).shape == (2, 2, 11)
    with pytest.raises(ConfigError, match="expected one of \\[1\\], got 0"):
        cache.births(0)


@pytest.mark.parametrize("options", [{"do_sample": True, "top_k": 20}, {"num_beams": 3}], ids=str)
def test_sampling_and_beams_with_room_are_those_of_the_full_cache(options):
    model, ids = build(), tokens()
    assert torch.equal(
        generate(model, ids, BoundedCache(model, **LARGE), **options), generate(model, ids, **options)
    )


# A small cache


@pytest.mark.parametrize("policy", UNTRAINED)
def test_chunks_of_any_size_give_the_same_text(policy):
    model, ids = build(), tokens()
    single = BoundedCache(model, **SMALL, policy=policy)
    expected = logits(model, ids, single, chunk=1)
    assert not torch.allclose(expected, logits(model, ids, BoundedCache(model, **LARGE)), atol=0.1)
    for chunk in (7, 40):
        cache = BoundedCache(model, **SMALL, policy=policy)
        close(logits(model, ids, cache, chunk), expected)
        assert all(torch.equal(cache.births(i), single.births(i)) for i in range(2))
    texts = [
        generate(model, ids, BoundedCache(model, **SMALL, policy=policy), prefill_chunk_size=n)
        for n in (5, 64)
    ]
    assert torch.equal(*texts)


@pytest.mark.parametrize("policy", UNTRAINED)
def test_a_batch_padded_on_the_left_is_its_rows(policy):
    model, ids = build(), tokens(rows=3, length=36)
    lengths = [36, 21, 3]
    mask = torch.arange(36) >= 36 - torch.tensor(lengths)[:, None]
    padded = ids.where(mask, 0)
    options = {"attention_mask": mask.long(), "position_ids": (mask.cumsum(1) - 1).clamp_min(0)}
    cache = BoundedCache(model, **SMALL, policy=policy)
    with torch.no_grad():
        batch = model(padded, past_key_values=cache, **options).logits
    text = generate(model, padded, BoundedCache(model, **SMALL, policy=policy), attention_mask=mask.long())
    for row, length in enumerate(lengths):
        alone, own = BoundedCache(model, **SMALL, policy=policy), ids[row : row + 1, 36 - length :]
        close(batch[row : row + 1, 36 - length :], logits(model, own, alone))
        kept = alone.births(0)[0]
        assert torch.equal(cache.births(0)[row], torch.where(kept < 0, -1, kept + 36 - length))
        expected = generate(model, own, BoundedCache(model, **SMALL, policy=policy))
        assert torch.equal(text[row, 36:], expected[0, length:])


def test_beam_search_carries_each_beams_own_states():
    """The logits of the best beam's text are those that a cache of its own gives."""
    model, ids = build(), tokens(rows=1)
    result = generate(
        model,
        ids,
        BoundedCache(model, **SMALL, policy="h2o"),
        num_beams=4,
        return_dict_in_generate=True,
        output_scores=True,
        length_penalty=0.0,
    )
    text = result.sequences
    steps = logits(model, text, BoundedCache(model, **SMALL, policy="h2o")).log_softmax(-1)[:, 39:-1]
    score = steps.gather(2, text[:, 40:, None]).sum()
    close(result.sequences_scores, score[None])


def test_runs_are_deterministic_and_reset_clears_the_cache():
    model, ids = build(), tokens()
    cache = BoundedCache(model, **SMALL, policy="random")
    first = logits(model, ids, cache, chunk=9)
    addresses = [cache.layers[0].keys.data_ptr(), cache.layers[0].births.data_ptr()]
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.equal(logits(model, ids, cache, chunk=9), first)
    cache.reset()
    close(logits(model, ids, cache, chunk=1), first)
    assert addresses == [cache.layers[0].keys.data_ptr(), cache.layers[0].births.data_ptr()]
    other = logits(model, ids, BoundedCache(model, **SMALL, policy="random", seed=1), chunk=9)
    assert not torch.equal(other, first)


def test_a_second_turn_continues_the_first():
    model, ids = build(), tokens(rows=1)
    cache = BoundedCache(model, **SMALL, policy="knorm")
    first = generate(model, ids, cache)
    turn = torch.cat([first, tokens(rows=1, length=6, seed=2)], dim=1)
    assert cache.get_seq_length() == 51  # the last token has not been read yet
    again = generate(model, turn, cache)
    assert torch.equal(again, generate(model, turn, BoundedCache(model, **SMALL, policy="knorm")))


def test_memory_is_that_of_the_slots_from_the_first_token():
    model, ids = build(), tokens()
    cache = BoundedCache(model, **SMALL)
    assert sum(cache.bytes().values()) == 0
    logits(model, ids[:, :1], cache)
    states = 2 * 2 * 2 * 11  # layers, rows, heads, slots
    expected = {"keys": states * 32, "values": states * 32, "positions": states * 9, "scores": states * 4}
    assert cache.bytes() == expected
    logits(model, ids[:, 1:], cache)
    assert cache.bytes() == expected
    assert cache.slots == 11
    assert "policy='sinks', seen=40" in repr(cache)


def test_half_precision():
    model, ids = build().to(torch.bfloat16), tokens()
    chunks = [logits(model, ids, BoundedCache(model, **SMALL), chunk) for chunk in (1, 40)]
    torch.testing.assert_close(*chunks, atol=0.3, rtol=0.1)
    assert chunks[0].dtype == torch.bfloat16


# Refused, each in one line


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"window": 0}, "window: expected at least 1, got 0"),
        ({"capacity": -1}, "capacity: expected at least 0"),
        ({"policy": "h20"}, "unknown policy 'h20': did you mean 'h2o'"),
        ({"policy": "learned"}, "scores: expected trained scores with policy='learned'"),
        ({"seed": -1}, "seed: expected at least 0"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_bad_options(options, match):
    with pytest.raises((ConfigError, UnknownNameError), match=match) as error:
        BoundedCache(build(), **{**SMALL, **options})
    assert "\n" not in str(error.value)


def other_models():
    small = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2}
    t5 = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    sliding = {**SIZES, "sliding_window": 8}
    bert = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**bert, num_attention_heads=2)),
        "mamba": lambda: transformers.MambaForCausalLM(transformers.MambaConfig(**small, state_size=4)),
        "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**t5)),
        "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**sliding)),
        "Linear": lambda: torch.nn.Linear(2, 2),
    }


REASONS = {
    "Linear": "expected a model of transformers, got Linear",
    "bert": "expected a decoder, got 'bert', whose attention looks both ways",
    "mamba": "got 'mamba', which is recurrent",
    "mistral": "got 'mistral', whose layers all have a sliding window",
    "t5": "expected a decoder alone, got 't5'",
}


@pytest.mark.parametrize("name", sorted(other_models()))
def test_models_without_a_cache_of_full_attention(name):
    with pytest.raises(ConfigError, match=f"model: .*{REASONS[name]}") as error:
        BoundedCache(other_models()[name](), **SMALL)
    assert "\n" not in str(error.value)


def test_terms_of_attention_that_it_does_not_have():
    kinds = ["full_attention", "full_attention"]
    model = build("Gemma2", head_dim=8, layer_types=kinds, attn_logit_softcapping=5.0)
    with pytest.raises(ConfigError, match="softcap: Gemma2Attention uses it"):
        logits(model, tokens(), BoundedCache(model, **SMALL))


def test_misuse_while_reading():
    model, ids = build(attention_dropout=0.1), tokens()
    cache = BoundedCache(model, **SMALL)
    with pytest.raises(ConfigError, match="length: expected at most 128 tokens"):
        logits(model, tokens(length=65).repeat(1, 2), cache)
    logits(model, ids, cache)
    with pytest.raises(PlaitError, match="batch: expected 2 rows as in the calls before, got 1"):
        logits(model, ids[:1], cache)
    with pytest.raises(ConfigError, match="attention_mask: expected \\(B, tokens\\)"):
        logits(model, ids, cache, attention_mask=torch.ones(2, 1, 40, 80, dtype=torch.bool))
    cache.reset()
    with pytest.raises(ConfigError, match=r"dropout: expected 0 .*model\.eval\(\)"):
        logits(model.train(), ids, cache)
    model.eval().set_attn_implementation("eager")
    with pytest.raises(ConfigError, match="attention: expected the function that BoundedCache"):
        logits(model, ids, cache)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_weights_are_refused_while_a_bounded_cache_is_read(attention):
    model, ids = build(attn_implementation=attention), tokens()
    cache = BoundedCache(model, **SMALL)
    with pytest.raises(ConfigError, match="output_attentions: a bounded cache gives no attention weights"):
        logits(model, ids, cache, output_attentions=True)
    if attention == "eager":  # with another cache it computes what it did
        full = transformers.DynamicCache(config=model.config)
        weights = model(ids, past_key_values=full, output_attentions=True).attentions
        assert [x.shape for x in weights] == 2 * [(2, 4, 40, 40)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_cache_is_read_by_its_own_model_alone(attention):
    """Another model's attention would pass over what the cache holds."""
    model, ids = build(), tokens()
    other = build(attn_implementation=attention)
    cache = BoundedCache(model, **SMALL)
    logits(model, ids, cache)
    with pytest.raises(ConfigError, match="cache: expected the model it was made for, and calls that end"):
        logits(other, ids[:, :1], cache)
    cache.reset()
    close(logits(model, ids, cache), logits(model, ids, BoundedCache(model, **SMALL)))


def test_what_takes_tokens_back():
    model, ids = build(), tokens(rows=1).repeat(1, 2)
    with pytest.raises(ConfigError, match="prompt lookup and assisted decoding"):
        generate(model, ids, BoundedCache(model, **SMALL), prompt_lookup_num_tokens=3)
    with pytest.raises(ConfigError, match="prompt lookup and assisted decoding"):
        generate(model, ids, BoundedCache(model, **SMALL), assistant_model=build(num_hidden_layers=1))
    with pytest.raises(ConfigError, match="offloading"):
        BoundedCache(model, **SMALL).offload(0)
