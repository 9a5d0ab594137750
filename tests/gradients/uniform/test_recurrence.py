"""The O(1) recurrences against exact rationals, against each other, and their golden numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plait.errors import ConfigError
from plait.gradients.uniform import chi, polynomial, propagation, propagation_to, sample_lengths, slope

GOLDEN = {
    0.25: [2, 1.25, 0.9166666667, 0.5549045139, 0.3674869773, 0.083433651, 0.01807658894],
    -0.5: [2, -1, 0.6666666667, -0.06944444444, 0.01485339506, 0.0006073335382, 2.86236021e-05],
    0.3 + 0.4j: [
        2,
        1.4 + 1.2j,
        0.4533333333 + 1.493333333j,
        -0.4446977778 + 0.5211066667j,
        -0.2672637955 + 0.1800164003j,
        -0.02825184452 - 0.02790012924j,
        0.002765147297 - 0.003871105669j,
    ],
}
DISTANCES = np.array([0, 1, 2, 5, 10, 100, 1000])


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("value", list(GOLDEN))
def test_golden_values(backend: str, value: complex) -> None:
    if backend == "numba":
        pytest.importorskip("numba")
    result = propagation([value], DISTANCES + 1, backend=backend).values[:, 0]
    assert result == pytest.approx(np.array(GOLDEN[value]), rel=2e-9)


@given(
    t=st.integers(1, 9),
    numerator=st.integers(-12, 12),
    k=st.integers(0, 30),
    backend=st.sampled_from(["numpy", "auto"]),
)
@settings(deadline=None)
def test_equals_exact_polynomial(t: int, numerator: int, k: int, backend: str) -> None:
    value = Fraction(numerator, 10)
    exact = float(polynomial(chi(t, k)[k], value))
    scale = max(1e-3, abs(exact))
    got = propagation([float(value)], [t + k], start=t, backend=backend).values[0, 0]
    assert abs(got - exact) < 1e-11 * scale
    assert abs(propagation_to(float(value), t + k).values[t - 1] - exact) < 1e-9 * scale


def test_backends_agree_on_a_long_walk() -> None:
    pytest.importorskip("numba")
    values = [0.9, -0.9, 0.5j, 0.99, 1.0, 1.1, -0.3 + 0.6j]
    lengths = sample_lengths(7, 30_000, 60)
    one, two = (propagation(values, lengths, start=7, backend=name) for name in ("numba", "numpy"))
    assert one.log_abs == pytest.approx(two.log_abs, abs=1e-10)
    scale = np.exp2(two.exponent - one.exponent)
    assert np.abs(one.mantissa / (two.mantissa * scale) - 1).max() < 1e-10


def test_accuracy_against_rational_steps() -> None:
    """λ = 2/3 from t = 1 is (k + 4)/2 exactly; the error after 20,000 steps stays at rounding."""
    got = propagation([2 / 3, 0.5], [20_001]).values[0].real
    assert got / [(20_000 + 4) / 2, 2] - 1 == pytest.approx([0, 0], abs=2e-13)


def test_all_starts_for_one_end() -> None:
    end = 300
    backwards = propagation_to(0.6 + 0.2j, end).values
    forwards = [propagation([0.6 + 0.2j], [end], start=t).values[0, 0] for t in (1, 2, 150, 299, 300)]
    assert backwards[[0, 1, 149, 298, 299]] == pytest.approx(np.array(forwards), rel=1e-11)


def test_mix_replaces_the_eigenvalue_and_scales() -> None:
    plain = propagation([0.15, -0.2], [1, 5, 50]).values
    assert propagation([0.3, -0.4], [1, 5, 50], mix=0.5).values == pytest.approx(0.5 * plain, rel=1e-12)


@pytest.mark.parametrize("lengths", [[], [3, 3], [5, 4], [0, 1]])
def test_lengths_must_increase_from_start(lengths: list[int]) -> None:
    with pytest.raises(ConfigError, match="increasing lengths"):
        propagation([0.5], lengths)


def test_unknown_backend_and_bad_slope() -> None:
    with pytest.raises(ConfigError, match="unknown backend"):
        propagation([0.5], [3], backend="cuda")
    with pytest.raises(ConfigError, match="at least two lengths"):
        slope([1], [0.0])
    with pytest.raises(ConfigError, match="not zero"):
        slope([1, 2], [0.0, -np.inf])


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert propagation([0.5], [9]).values[0, 0] == pytest.approx(2)
