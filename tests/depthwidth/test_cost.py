"""Operations and cache of a token, against counts done by hand."""

import pytest

from plait.depthwidth import Architecture, Experts, count_params, price
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
