"""Exact parameter counts against the published totals of real models."""

import pytest

from plait.depthwidth.planner import Architecture, count_params
from plait.errors import ConfigError

LLAMA = {
    "gated": True,
    "positions": 0,
    "query_key_value_bias": False,
    "output_bias": False,
    "feed_forward_bias": False,
    "norm_params": 1,
    "tied": False,
}


@pytest.mark.parametrize(
    ("shape", "total"),
    [
        (Architecture(12, 768, 12), 124_439_808),  # GPT-2
        (Architecture(48, 1600, 25), 1_557_611_200),  # GPT-2 XL
        (Architecture(24, 1024, 16, 50304, positions=0, tied=False), 405_334_016),  # Pythia 410M
        (Architecture(32, 4096, 32, 32000, 11008, **LLAMA), 6_738_415_616),  # Llama 2 7B
        (Architecture(32, 4096, 32, 128256, 14336, 8, **LLAMA), 8_030_261_248),  # Llama 3.1 8B
        (Architecture(32, 4096, 32, 32000, 14336, 8, **LLAMA), 7_241_732_096),  # Mistral 7B
    ],
)
def test_published_totals(shape, total):
    assert count_params(shape).total == total


def test_parts_add_up():
    count = count_params(Architecture(2, 8, 2, vocab=10, positions=4))
    assert count.total == count.attention + count.feed_forward + count.norms + count.embeddings + count.output
    assert count.embeddings == 14 * 8


def test_bad_input():
    with pytest.raises(ConfigError, match="heads: must divide width 10"):
        Architecture(2, 10, 3)
    with pytest.raises(ConfigError, match="kv_heads: must divide heads 8"):
        Architecture(2, 16, 8, kv_heads=3)
    with pytest.raises(ConfigError, match="depth"):
        Architecture(0, 16, 8)
