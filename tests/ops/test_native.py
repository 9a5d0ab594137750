"""Torch's own layers, called with weights that are parameters of their own."""

from __future__ import annotations

import warnings

import pytest

from plait.ops import native


def test_cudnns_word_on_the_layout_of_weights_is_not_passed_on():
    with native._quiet():
        warnings.warn("RNN module weights are not part of single contiguous chunk of memory.", stacklevel=1)


def test_every_other_warning_is():
    with pytest.warns(UserWarning, match="something else"), native._quiet():
        warnings.warn("something else", stacklevel=1)
