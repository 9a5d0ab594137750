"""Adapters change nothing until trained, come and go without a trace, and their files fit one model."""

from __future__ import annotations

import json

import pytest
import torch

from plait.errors import ConfigError, DataError

transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")

from plait.hf import Adapter, BoundedCache, Scores  # noqa: E402
from tests.hf.test_cache import FAMILIES, SMALL, build, close, logits, tokens  # noqa: E402


def drawn(model, rank=3):
    """Return an adapter whose second factor is not zero."""
    adapter = Adapter(model, rank=rank)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for up in adapter.up.values():
            up.copy_(0.1 * torch.randn(up.shape, generator=generator))
    return adapter.eval().requires_grad_(False)


def full(model):
    return logits(model, tokens(), transformers.DynamicCache(config=model.config))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_is_a_change_of_the_weights(family):
    model = build(family)
    before = full(model)
    adapter = Adapter(model, rank=3).apply_to(model)
    assert torch.equal(full(model), before)
    adapter.remove(model)
    adapter = drawn(model).apply_to(model)
    changed = full(model)
    assert not torch.allclose(changed, before, atol=1e-3)
    with adapter.off():
        assert torch.equal(full(model), before)
    adapter.remove(model)
    assert torch.equal(full(model), before)
    modules = dict(model.named_modules())
    for name in adapter.layers:
        key = name.replace(".", "/")
        with torch.no_grad():
            modules[name].weight.add_(2 * adapter.up[key] @ adapter.down[key])
    close(full(model), changed)


def test_another_adapter_takes_its_place():
    model = build()
    first, second = drawn(model), drawn(model, rank=2)
    second.apply_to(model)
    expected = full(model)
    first.apply_to(model)
    second.apply_to(model)
    assert torch.equal(full(model), expected)


def test_a_saved_adapter_comes_back_and_refuses_another_model(tmp_path):
    model = build()
    adapter = drawn(model).apply_to(model)
    expected = full(model)
    adapter.save(tmp_path, model)
    other = build()
    again = Adapter.load(tmp_path, other).apply_to(other)
    assert torch.equal(full(other), expected)
    assert again.digest == adapter.digest
    with torch.no_grad():
        other.lm_head.weight.add_(1)
    with pytest.raises(ConfigError, match="expected the model the adapters were trained for"):
        Adapter.load(tmp_path, other)
    header = json.loads((tmp_path / "adapter.json").read_text())
    (tmp_path / "adapter.json").write_text(json.dumps({**header, "rank": 4}))
    with pytest.raises(DataError, match="expected"):
        Adapter.load(tmp_path, build())
    with pytest.raises(DataError, match="expected a folder of trained adapters, cannot read it"):
        Adapter.load(tmp_path / "none", build())


def test_scores_know_the_adapter_they_were_trained_with(tmp_path):
    model = build()
    adapter = drawn(model).apply_to(model)
    scores = Scores(model, **SMALL)
    scores.adapter = adapter.save(tmp_path, model)
    scores.save(tmp_path, model)
    BoundedCache(model, **SMALL, scores=tmp_path)
    plain = build()
    with pytest.raises(ConfigError, match="expected the model with the adapter they were trained with"):
        BoundedCache(plain, **SMALL, scores=tmp_path)
    Adapter.load(tmp_path, plain).apply_to(plain)
    BoundedCache(plain, **SMALL, scores=tmp_path)
    with pytest.raises(ConfigError, match="got it with an adapter; remove it"):
        BoundedCache(plain, **SMALL, scores=Scores(plain, **SMALL))
