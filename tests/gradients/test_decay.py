"""Distance, reach, holes, laws and structural zeros, on norms whose answer is known."""

from __future__ import annotations

import time

import numpy as np
import pytest

from plait.gradients.decay import Decay, structural_zeros

BACK = np.arange(99, -1, -1)  # distance from the last of 100 positions


def test_laws_are_named_with_their_fit() -> None:
    exponential = Decay.of(0.9**BACK)
    assert exponential is not None
    assert exponential.follows == "exponential"
    assert exponential.rate == pytest.approx(0.9)
    assert exponential.fit == pytest.approx(1)
    power = Decay.of((BACK + 1.0) ** -2)
    assert power is not None
    assert power.follows == "power"
    assert power.power == pytest.approx(-2)
    noise = Decay.of(np.exp(np.random.default_rng(0).normal(size=100)))
    assert noise is not None
    assert noise.fit < 0.2
    flat = Decay.of(np.ones(100))
    assert flat is not None
    assert (flat.rate, flat.fit) == (pytest.approx(1), 1)


def test_a_hole_is_named() -> None:
    norms = np.full(100, 1e-22)
    norms[80:] = 1.0
    norms[0] = 0.0152
    decay = Decay.of(norms)
    assert decay is not None
    assert decay.hole == (2, 80)
    assert decay.reached == 21
    assert decay.vanishes_at is None
    assert decay.farthest == pytest.approx(0.0152)
    norms[0] = 1e-22
    gone = Decay.of(norms)
    assert gone is not None
    assert gone.hole is None
    assert gone.vanishes_at == 20


def test_distance_is_from_where_the_loss_acts() -> None:
    norms = 0.5 ** np.abs(np.arange(100) - 10.0)
    first = Decay.of(norms, [10])
    assert first is not None
    assert first.explodes_at is None
    assert first.rate == pytest.approx(0.5)
    assert first.reached == 10 + 1 + 19
    several = Decay.of(np.where(np.arange(30) >= 20, 1.0, 0.8 ** (20.0 - np.arange(30))), range(20, 30))
    assert several is not None
    assert several.rate == pytest.approx(0.8)  # from the first of the ten, not from the last


def test_zeros_without_a_path_are_not_vanishing_gradients() -> None:
    norms = np.zeros(30)
    norms[13:18] = [0.2, 0.5, 1.0, 0.5, 0.2]
    assert structural_zeros(norms, [15]).sum() == 25
    decay = Decay.of(norms, [15])
    assert decay is not None
    assert (decay.reached, decay.reachable, decay.vanishes_at) == (5, 5, None)
    shrinking = np.where(BACK > 80, 0.0, np.exp(-BACK.astype(float)))  # 1e-35 and then nothing, in float32
    assert not structural_zeros(shrinking, [99]).any()
    assert structural_zeros(shrinking, [99], "float64").any()  # there 1e-35 is no small number
    fading = Decay.of(shrinking)
    assert fading is not None
    assert fading.reachable == 100
    assert fading.vanishes_at == 14


def test_long_sequences_take_no_square_of_their_length() -> None:
    norms, began = 0.9999 ** np.arange(100_000)[::-1], time.process_time()
    decay = Decay.of(norms)
    assert decay is not None
    assert decay.reached == norms.size
    assert time.process_time() - began < 1
