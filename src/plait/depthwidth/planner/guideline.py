"""Fitted guideline for width as a function of depth, with standard errors.

    d(L) = exp(a + b L),  a = 5.039 ± 0.030,  b = 0.0555 ± 0.0013   (fitted on depths 6 to 48)
    N    = 12 L d²  parameters without embeddings
    L(N) = W(2 b N / (12 e^{2a})) / (2 b)                           W: Lambert's function

A network narrower than d(L) is too deep for its width; a wider one could use more depth. The theory has
the same form with a far steeper slope (ln 3 per layer), so it supports the guideline only qualitatively.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from plait.errors import ConfigError, check_min

__all__ = [
    "GUIDELINE",
    "SUFFIXES",
    "Estimate",
    "Fit",
    "Optimum",
    "check_budget",
    "optimal_shape",
    "param_count",
    "parse_budget",
    "transition_params",
    "transition_width",
    "width_step",
]

FITTED_DEPTHS = (6, 48)
# Less is not even one layer; more is three decades past the largest model.
BUDGETS = (1e5, 1e15)
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Fit:
    """Linear fit ln d = intercept + slope · L, with standard errors and their covariance."""

    intercept: float = 5.039
    slope: float = 5.55e-2
    intercept_error: float = 0.030
    slope_error: float = 1.3e-3
    covariance: float = 0.0

    def sigma(self, depth: float) -> float:
        """Return the standard error of ln d at this depth: σ² = δa² + L² δb² + 2 L cov.

        >>> round(GUIDELINE.sigma(24), 5)
        0.04328
        """
        variance = self.intercept_error**2 + depth**2 * self.slope_error**2
        variance += 2 * depth * self.covariance
        if variance < 0:
            raise ConfigError(f"covariance {self.covariance} makes the variance negative at depth {depth}")
        return math.sqrt(variance)


GUIDELINE = Fit()


@dataclass(frozen=True)
class Estimate:
    """Fitted value with the standard error of its logarithm; `extrapolated` outside the fitted depths."""

    value: float
    log_error: float
    extrapolated: bool

    @property
    def low(self) -> float:
        return self.value * math.exp(-self.log_error)

    @property
    def high(self) -> float:
        return self.value * math.exp(self.log_error)

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Optimum:
    """Balanced shape for a parameter budget.

    Attributes:
        depth, width: rounded if `optimal_shape` was called with `rounded`.
        exact_depth, exact_width: unrounded values of the fit.
        depth_error, width_error: standard errors of the depth and of ln(width) at fixed parameters.
        tolerance: distance in layers up to which a shape of this size counts as balanced: one standard
            error, half a step of the width, and half a layer.
    """

    params: float
    depth: float
    width: float
    exact_depth: float
    exact_width: float
    depth_error: float
    width_error: float
    tolerance: float
    extrapolated: bool


def width_step(width: float) -> int:
    """Return the grid step for widths of this size: a power of two from 8 to 128, at most width/16.

    >>> [width_step(width) for width in (100, 300, 1600, 20_000)]
    [8, 16, 64, 128]
    """
    step = 8
    while step < 128 and 2 * step <= width / 16:
        step *= 2
    return step


def _outside(depth: float) -> bool:
    return not FITTED_DEPTHS[0] <= depth <= FITTED_DEPTHS[1]


def param_count(depth: float, width: float) -> float:
    """Return 12 L d², the parameters of attention and a 4d-wide feed-forward block, without biases and norms.

    >>> param_count(96, 12288)
    173946175488
    """
    check_min(1, depth=depth, width=width)
    return 12 * depth * width * width


def transition_width(depth: float, fit: Fit = GUIDELINE) -> Estimate:
    """Return the width d(L) = exp(a + b L) that balances a depth.

    >>> round(transition_width(48).value, 3), transition_width(96).extrapolated
    (2214.983, True)
    """
    check_min(1, depth=depth)
    return Estimate(math.exp(fit.intercept + fit.slope * depth), fit.sigma(depth), _outside(depth))


def transition_params(depth: float, fit: Fit = GUIDELINE) -> Estimate:
    """Return N_tr(L) = 12 L exp(2a + 2bL), the size from which a network of this depth is not too deep.

    >>> round(transition_params(24).value)
    98440265
    """
    width = transition_width(depth, fit)
    return Estimate(12 * depth * width.value**2, 2 * width.log_error, width.extrapolated)


def parse_budget(text: str) -> float:
    """Parse a number of parameters with an optional suffix K, M, B, G or T.

    >>> parse_budget("1.3B"), parse_budget("125_000_000"), parse_budget("1e9")
    (1300000000.0, 125000000.0, 1000000000.0)
    """
    trimmed = text.strip().upper().replace("_", "")
    if re.match(r"\d{1,3}(,\d{3})+(?![\d,])", trimmed):  # groups of thousands, and no decimal comma
        trimmed = trimmed.replace(",", "")
    scale = SUFFIXES.get(trimmed[-1:])
    try:
        value = float(trimmed[:-1] if scale else trimmed) * (scale or 1.0)
    except ValueError:
        raise ConfigError(f"budget: expected parameters such as 125M, 1.3B or 1e9, got {text!r}") from None
    if not BUDGETS[0] <= value <= BUDGETS[1]:
        raise ConfigError(f"budget: expected {BUDGETS[0]:.0e} to {BUDGETS[1]:.0e} parameters, got {text}")
    return value


def check_budget(params: float) -> float:
    """Return a number of parameters as a float.

    Raises:
        ConfigError: if it is not a number or outside `BUDGETS`.
    """
    if isinstance(params, bool) or not isinstance(params, int | float) or math.isnan(params):
        raise ConfigError(f"params: expected a number of parameters, got {params!r}")
    if not BUDGETS[0] <= params <= BUDGETS[1]:
        raise ConfigError(f"params: expected {BUDGETS[0]:.0e} to {BUDGETS[1]:.0e}, got {params:.4g}")
    return float(params)


def optimal_shape(params: float, rounded: bool = True, fit: Fit = GUIDELINE) -> Optimum:
    """Return the balanced shape, with L(N) by Lambert's W and d = √(N / 12 L); `rounded` rounds L.

    >>> best = optimal_shape(1e9)
    >>> best.depth, round(best.width), round(best.exact_depth, 4), round(best.exact_width, 2)
    (40.0, 1443, 40.2316, 1439.22)
    """
    params = check_budget(params)
    twice = 2 * fit.slope
    exact = _lambert_w(twice * params / (12 * math.exp(2 * fit.intercept))) / twice
    depth = max(1.0, float(round(exact))) if rounded else exact
    shrink = 1 + twice * exact
    sigma = fit.sigma(exact)
    exact_width = math.sqrt(params / (12 * exact))
    # An error of ln(width) equals 1/slope layers at fixed width, and `share` of that at fixed size.
    share = twice * exact / shrink
    rounding = width_step(exact_width) / (2 * exact_width)
    return Optimum(
        params=params,
        depth=depth,
        width=math.sqrt(params / (12 * depth)),
        exact_depth=exact,
        exact_width=exact_width,
        depth_error=2 * exact * sigma / shrink,
        width_error=sigma / shrink,
        tolerance=share * ((sigma + rounding) / fit.slope + 0.5),
        extrapolated=_outside(exact),
    )


def _lambert_w(z: float) -> float:
    """Solve w e^w = z for z > 0, by Newton's method on w + ln w = ln z, which never overflows."""
    log_z = math.log(z)
    w = log_z - math.log(log_z) if log_z > 1.5 else math.exp(min(log_z, 0.0)) * 0.6
    for _ in range(60):
        step = (w + math.log(w) - log_z) / (1 + 1 / w)
        w = max(w - step, w / 8)
        if abs(step) <= 1e-16 * w:
            break
    return w
