"""What will not fit is refused before anything is allocated."""

import pytest

from plait.depthwidth.rank import sep_rank_exact
from plait.depthwidth.rank.elimination_memory import elimination_bytes
from plait.errors import ConfigError


def test_refused_with_the_graded_alternative():
    with pytest.raises(
        ConfigError, match=r"needs about .* GB .* free .*graded, the largest .* rank 26,978,328"
    ):
        sep_rank_exact(3, 8)


def test_graded_blocks_are_checked_too():
    with pytest.raises(ConfigError, match=r"needs about 2,911,840.* take fewer templates"):
        sep_rank_exact(3, 8, graded=True)


def test_estimate_matches_the_stored_triangle():
    one = elimination_bytes(10_000, 10_000, 4, 13, 8388593)
    assert 8 * 10_000**2 / 2 < one < 1.4 * 8 * 10_000**2 / 2
