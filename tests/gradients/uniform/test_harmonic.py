"""Equations 133 to 137, Remarks 12 and 13: what the sums of inverse times tend to."""

from __future__ import annotations

import math

import pytest

from plait.errors import ConfigError
from plait.gradients.uniform import (
    delta,
    harmonic_excess,
    log_beta,
    omega_asymptotic,
    omega_table,
    power_sum,
    psi,
    psi_limit,
    tail_sum,
)
from plait.gradients.uniform.harmonic import EULER


def test_equation_133() -> None:
    """H_n = ln n + γ_E + ε_n <= ln n + 1, γ_E > 1/2, and ε_n behaves like 1/(2n)."""
    assert EULER > 0.5
    for n in (*range(1, 60), 100, 300, 1000, 2000):
        total = math.fsum(1 / i for i in range(1, n + 1))  # rounded once
        assert harmonic_excess(n) == pytest.approx(total - math.log(n) - EULER, abs=3e-15)
        assert 0 < harmonic_excess(n) < 1 / (2 * n)
        assert total <= math.log(n) + 1
    assert 2 * 10**6 * harmonic_excess(10**6) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("t", [1, 2, 7])
def test_equations_134_to_137(t: int) -> None:
    """S_1 = ln β_{t−1,t+k−1}: the printed product for t >= 2, a difference of harmonic numbers for t = 1."""
    for k in (1, 5, 40):
        exact = float(power_sum(t, 0, k, 1))
        assert log_beta(t - 1, t + k - 1) == pytest.approx(exact, abs=1e-14)
        if t > 1:
            excess = harmonic_excess(t + k - 1) - harmonic_excess(t - 1)
            assert exact == pytest.approx(math.log((t + k - 1) / (t - 1) * math.exp(excess)), abs=1e-13)
            # read with a plus, as (135) is scanned, it is something else
            assert abs(exact - math.log((t + k - 1) / (t - 1) + math.exp(excess))) > 0.01
    ratios = [log_beta(t - 1, 10**e) / math.log(10**e) for e in (3, 6, 12)]
    assert abs(ratios[2] - 1) < abs(ratios[1] - 1) < abs(ratios[0] - 1) < 0.4


@pytest.mark.parametrize("t", [1, 3])
def test_remark_12_coefficients_converge(t: int) -> None:
    """δ_1 = 0; δ_j and ψ_l for j, l >= 2 tend to constants, with an error of order 1/k; S_1 does not."""
    limits = psi_limit(t, 6)
    errors = []
    for k in (50, 100, 200):
        assert delta(t, 0, k, 6)[1] == 0
        found = [float(value) for value in psi(t, 0, k, 6)]
        errors.append([abs(a - b) for a, b in zip(found, limits, strict=True)])
        assert float(power_sum(t, 0, k, 2)) == pytest.approx(tail_sum(t, 2), abs=1.01 / k)
    for order in range(2, 7):
        shrinks = 4 if order == 3 else 2  # ψ_3 = S_3/3 holds no S_2, whose tail is 1/k
        assert errors[0][order] / errors[1][order] == pytest.approx(shrinks, rel=0.1)
        assert errors[1][order] / errors[2][order] == pytest.approx(shrinks, rel=0.05)
    assert float(power_sum(t, 0, 200, 1)) - float(power_sum(t, 0, 50, 1)) > 1.3


def test_tail_sums_against_known_values() -> None:
    assert tail_sum(1, 2) == pytest.approx(math.pi**2 / 6, rel=1e-15)
    assert tail_sum(1, 4) == pytest.approx(math.pi**4 / 90, rel=1e-15)
    assert tail_sum(3, 2) == pytest.approx(math.pi**2 / 6 - 1.25, rel=1e-14)


@pytest.mark.parametrize("t", [1, 4])
def test_remark_13_polynomial_in_the_logarithm(t: int) -> None:
    """ω(s) is that polynomial up to (ln T)^{s−2}/T; its leading term is (ln T)^s/s!."""
    scaled = []
    for k in (1_000, 10_000, 100_000):
        table = omega_table(t, 0, k, 5)[:, -1]
        predicted = omega_asymptotic(t, k, 5)
        assert predicted[:2] == pytest.approx(table[:2].tolist(), rel=1e-12)
        logarithm = math.log(t + k)
        scaled.append([abs(predicted[s] - table[s]) * k / logarithm ** (s - 2) for s in range(2, 6)])
    for s in range(4):
        assert scaled[2][s] < 1.3 / math.factorial(s)
        assert scaled[2][s] > 0.2 * scaled[0][s]  # of that order, not smaller
    leading = [omega_asymptotic(t, 10**e, 3)[3] * 6 / math.log(10**e) ** 3 for e in (6, 12, 100, 300)]
    assert abs(leading[3] - 1) < abs(leading[2] - 1) < abs(leading[1] - 1)
    assert leading[3] == pytest.approx(1, abs=0.01)


def test_ranges() -> None:
    with pytest.raises(ConfigError, match="power: expected at least 2"):
        tail_sum(1, 1)
    with pytest.raises(ConfigError, match="n: expected at least 1"):
        harmonic_excess(0)
