"""The gradients of weights by the C++ library's own tiles."""

from __future__ import annotations

import pytest
import torch

from plait.lab.bench.timing import limit_threads
from plait.ops.scan.cpu_walk import missing, outer_product
from plait.ops.scan.weight_gradients import outer

pytestmark = pytest.mark.skipif(
    missing("cpu", torch.float32, "elman", 6, 5) is not None, reason="no compiled scans here"
)


# more rows than are taken at a time, columns of several tiles and of part of one, and too few for a vector
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "left", "right"), [(1, 1, 16), (300, 13, 80), (257, 24, 128), (40, 7, 5), (0, 3, 16)]
)
def test_an_outer_product_is_torchs(dtype: torch.dtype, rows: int, left: int, right: int) -> None:
    a, b = torch.randn(rows, left, dtype=dtype), torch.randn(rows, right, dtype=dtype)
    exact = outer(a.double(), b.double())
    torch.testing.assert_close(outer_product(a, b), exact.to(dtype), rtol=1e-5, atol=1e-4)
    # as a gradient may come: a part of wider rows
    wide = torch.randn(rows, left + 3, dtype=dtype)
    wide[:, :left] = a
    torch.testing.assert_close(outer_product(wide[:, :left], b), exact.to(dtype), rtol=1e-5, atol=1e-4)


def test_an_outer_product_has_the_same_bits_with_any_number_of_threads() -> None:
    a, b = torch.randn(500, 100), torch.randn(500, 64)
    with limit_threads(1):
        alone = outer_product(a, b)
    with limit_threads(2):
        assert torch.equal(outer_product(a, b), alone)
