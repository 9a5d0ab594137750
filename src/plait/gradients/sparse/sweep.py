"""Polynomial p(λ) over a support: forwards from one t, backwards from one T, and with the full matrix V.

    p_m = w(m,t) + 1[m=t] + λ ( p_{m−1} + Σ_{i∈A_m, i>t} w(m,i) p_{i−1} )        ds_m/dh_t = p_m(V)

Mantissa and exponent are kept apart for every time, so chains of any length neither overflow nor
vanish. With mixing s = γ(h + c) the result is γ p(γλ).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plait.errors import ConfigError, ShapeError
from plait.gradients.fast import compiled, use_numba
from plait.gradients.scaled import Scaled, rescale
from plait.gradients.sparse.support import Support
from plait.gradients.uniform.law import finite, some

__all__ = ["is_normal", "log_norm", "matrix_derivative", "norms", "propagation_from", "propagation_to"]

Complexes = NDArray[np.complex128]


def propagation_to(
    support: Support,
    eigenvalues: Sequence[complex],
    end: int | None = None,
    mix: float = 1.0,
    backend: str = "auto",
) -> Scaled:
    """Return p_{0:T−t}(λ) for T = `end` (default: the last step) and every t = 1..T; shape (T, eigenvalues).

    The adjoint sweep: for m = T..1, q = 1 if m = T else λ g_{m+1}; g_m += q; g_i += w(m,i) q for i in A_m.

    >>> support = Support.from_lists([[1], [1, 2], [2], [1, 4], [3], [2, 5], [4, 6], [1, 7]])
    >>> propagation_to(support, [0.5]).values.real[[0, 2], 0].tolist()
    [2.0, 0.734375]
    """
    end = len(support) if end is None else end
    support.check_time(end=end)
    lam = mix * np.array([finite(value) for value in some(eigenvalues)], dtype=np.complex128)
    if use_numba(backend):
        mantissa = np.zeros((end, lam.size), dtype=np.complex128)
        exponent = np.zeros((end, lam.size), dtype=np.int64)
        compiled(_adjoint)(support.bounds, support.times, support.weights, lam, mantissa, exponent)
    else:
        unit = np.ones((1, lam.size, 1), dtype=np.complex128)
        mantissa, exponent = _adjoint_rows(support, end, unit, lambda value: lam[:, None] * value)
        mantissa = mantissa[:, :, 0]
    return Scaled(mantissa, exponent).times(mix)


def _adjoint(
    bounds: NDArray[np.int64],
    times: NDArray[np.int64],
    weights: NDArray[np.float64],
    lam: Complexes,
    mantissa: Complexes,
    exponent: NDArray[np.int64],
) -> None:
    """Run `_adjoint_rows` for eigenvalues as a plain loop, with an exponent for each number."""
    end = mantissa.shape[0]
    for e in range(lam.shape[0]):
        for m in range(end, 0, -1):
            q, q_exp = complex(1.0), 0
            if m < end:
                q, q_exp = lam[e] * mantissa[m, e], exponent[m, e]
            size = max(abs(q.real), abs(q.imag))
            if size > 0.0 and (size > 1e60 or size < 1e-60):
                shift = min(1000, max(-1000, int(np.floor(np.log2(size)))))
                q = q * 2.0 ** (-shift)
                q_exp += shift
            for edge in range(bounds[m - 1], bounds[m] + 1):
                # The iteration after the last attended time is the recurrent edge h_m → s_m.
                i = times[edge] - 1 if edge < bounds[m] else m - 1
                weight = weights[edge] if edge < bounds[m] else 1.0
                if mantissa[i, e] == 0.0:
                    exponent[i, e] = q_exp
                gap = q_exp - exponent[i, e]
                if gap > 0:
                    mantissa[i, e] = mantissa[i, e] * 2.0 ** (-gap) + weight * q
                    exponent[i, e] = q_exp
                elif q != 0.0:
                    mantissa[i, e] += weight * q * 2.0**gap


def _adjoint_rows(
    support: Support, end: int, seed: Complexes, advance: Callable[[Complexes], Complexes]
) -> tuple[Complexes, NDArray[np.int64]]:
    """Run the adjoint sweep one row A_m at a time; values (T, lanes, width) share an exponent per lane."""
    value = np.zeros((end, *seed.shape[1:]), dtype=np.complex128)
    exponent = np.zeros(value.shape[:2], dtype=np.int64)
    for m in range(end, 0, -1):
        q, q_exp = seed[0], np.zeros(seed.shape[1], dtype=np.int64)
        if m < end:
            q, q_exp = advance(value[m]), exponent[m]
        q, q_exp = rescale(q, q_exp)
        for rows, weights in (
            (support.attended(m) - 1, support.weight(m)),
            (np.array([m - 1]), np.ones(1)),
        ):
            _add(value, exponent, rows, weights, q, q_exp)
    return value, exponent


def _add(
    value: Complexes,
    exponent: NDArray[np.int64],
    rows: NDArray[np.int64],
    weights: NDArray[np.float64],
    q: Complexes,
    q_exp: NDArray[np.int64],
) -> None:
    """Add weights · q to value[rows], after bringing both to the larger of their exponents."""
    old = value[rows]
    old_exp = np.where(old.any(axis=-1), exponent[rows], q_exp)
    joint = np.maximum(old_exp, q_exp)
    value[rows] = old * np.exp2(old_exp - joint)[..., None]
    value[rows] += (weights[:, None] * np.exp2(q_exp - joint))[..., None] * q
    exponent[rows] = joint


def propagation_from(
    support: Support, eigenvalues: Sequence[complex], start: int, mix: float = 1.0
) -> Scaled:
    """Return p_{0:T−t}(λ) for t = `start` and every T = t..; shape (T_last − t + 1, eigenvalues)."""
    support.check_time(start=start)
    lam = mix * np.array([finite(value) for value in some(eigenvalues)], dtype=np.complex128)
    unit = np.ones((lam.size, 1), dtype=np.complex128)
    value, exponent = _forward_rows(support, start, unit, lambda value: lam[:, None] * value)
    return Scaled(value[:, :, 0], exponent).times(mix)


def _forward_rows(
    support: Support, start: int, unit: Complexes, advance: Callable[[Complexes], Complexes]
) -> tuple[Complexes, NDArray[np.int64]]:
    """Return p_m for m = start..T with `unit` in place of 1 and `advance` in place of λ."""
    length = len(support) - start + 1
    value = np.zeros((length, *unit.shape), dtype=np.complex128)
    exponent = np.zeros((length, unit.shape[0]), dtype=np.int64)
    value[0] = (1.0 + support.weight(start)[support.attended(start) == start].sum()) * unit
    for m in range(start + 1, len(support) + 1):
        attended, weights = support.attended(m), support.weight(m)
        later = attended > start
        sources = np.append(attended[later] - 1, m - 1) - start
        shares = np.append(weights[later], 1.0)
        inner, top = _sum(value[sources], exponent[sources], shares)
        direct = weights[attended == start].sum()
        terms, tops = np.stack([advance(inner), unit]), np.stack([top, np.zeros_like(top)])
        value[m - start], exponent[m - start] = rescale(*_sum(terms, tops, np.array([1.0, direct])))
    return value, exponent


def _sum(
    terms: Complexes, exponents: NDArray[np.int64], factors: NDArray[np.float64]
) -> tuple[Complexes, NDArray[np.int64]]:
    """Return Σ factor · term over the first axis, at the largest exponent among the terms that are not 0."""
    alive = terms.any(axis=-1) & (factors != 0)[:, None]
    top = np.where(alive, exponents, np.iinfo(np.int64).min).max(axis=0)
    top = np.where(alive.any(axis=0), top, 0)
    scale = np.where(alive, factors[:, None] * np.exp2(np.minimum(exponents - top, 0)), 0.0)
    return (terms * scale[..., None]).sum(axis=0), top


def matrix_derivative(support: Support, matrix: ArrayLike, start: int, end: int, mix: float = 1.0) -> Any:
    """Return ds_T/dh_t = p_{0:T−t}(V) itself, (n, n): one product with V per step, for any square V.

    Complex, non-normal and defective V are all fine here; only the eigenvalue forms need a normal V.
    """
    square = _square(matrix)
    support.check_time(start=start, end=end)
    if start > end:
        raise ConfigError(f"start: expected at most end = {end}, got {start}")
    n = square.shape[0]
    value, exponent = _forward_rows(
        support, start, np.eye(n, dtype=np.complex128).reshape(1, n * n), _multiply(mix * square)
    )
    result = Scaled(value[end - start], exponent[end - start]).times(mix).values.reshape(n, n)
    return result if np.iscomplexobj(matrix) else result.real


def norms(
    support: Support, matrix: ArrayLike, end: int | None = None, mix: float = 1.0
) -> NDArray[np.float64]:
    """Return ln ‖ds_T/dh_t‖_F for T = `end` and every t = 1..T, exact for any V; −inf where it is 0.

    A normal V needs its eigenvalues alone, ‖p(V)‖² = Σ|p(λ_i)|²; any other V the matrices: T·n² numbers.

    >>> support = Support.from_lists([[1], [1], *[[1, 2]] * 5])  # ds_T/dh_1 = 0 for V = −I/2
    >>> norms(support, -np.eye(2) / 2)[0]
    np.float64(-inf)
    """
    square = _square(matrix)
    end = len(support) if end is None else end
    if is_normal(square):
        logs = propagation_to(support, np.linalg.eigvals(square).tolist(), end, mix).log_abs
        return log_norm(logs)
    support.check_time(end=end)
    n = square.shape[0]
    seed = np.eye(n, dtype=np.complex128).reshape(1, 1, n * n)
    value, exponent = _adjoint_rows(support, end, seed, _multiply(mix * square))
    return log_norm(Scaled(value[:, 0, :], exponent).times(mix).log_abs)


def log_norm(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln sqrt(Σ exp(2·logs)) over the last axis."""
    top = logs.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(top[..., 0] + 0.5 * np.log(np.exp(2 * (logs - top)).sum(axis=-1)))


def _multiply(matrix: Complexes) -> Callable[[Complexes], Complexes]:
    n = matrix.shape[0]
    return lambda value: (matrix @ value.reshape(-1, n, n)).reshape(value.shape)


def is_normal(matrix: ArrayLike, tolerance: float = 1e-12) -> bool:
    """Return True if V V* = V* V up to rounding.

    >>> is_normal([[0, 1], [-1, 0]]), is_normal([[1, 1], [0, 1]])
    (True, False)
    """
    square = _square(matrix)
    gap = square @ square.conj().T - square.conj().T @ square
    return bool(np.abs(gap).max() <= tolerance * max(1e-300, float(np.abs(square).max()) ** 2))


def _square(matrix: ArrayLike) -> Complexes:
    square = np.asarray(matrix).astype(np.complex128)
    if square.ndim != 2 or square.shape[0] != square.shape[1] or not np.all(np.isfinite(square)):
        raise ShapeError(f"V: expected a finite square matrix, got shape {square.shape}")
    return square
