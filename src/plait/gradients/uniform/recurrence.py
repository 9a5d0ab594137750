"""Polynomial p(λ) under uniform attention at any distance: two numbers per eigenvalue, O(1) per step.

With u_n = p_{0:n−t}(λ), the recurrence is  u ← B/n + λu,  B ← B + λu  from u = 1 + 1/t, B = 1 + λu.
It is linear in (u, B), so both can be rescaled together when they outgrow float64, and a stretch of
steps is a 2×2 matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plait.errors import ConfigError, check_min
from plait.gradients.fast import compiled, use_numba
from plait.gradients.scaled import Scaled, normalise
from plait.gradients.uniform.law import finite, some

__all__ = ["propagation", "propagation_to", "sample_lengths", "slope"]

Complexes = NDArray[np.complex128]


def propagation(
    eigenvalues: Sequence[complex],
    lengths: ArrayLike,
    start: int = 1,
    mix: float = 1.0,
    backend: str = "auto",
) -> Scaled:
    """Return p_{0:T−t}(λ) for every T of `lengths` and every eigenvalue; shape (lengths, eigenvalues).

    Any λ is accepted, also outside the unit disc. With mixing s = γ(h + c) the result is γ p(γλ).
    `backend`: "numba" steps through time (10^7 steps of 50 eigenvalues in about a second), "numpy"
    multiplies transfer matrices of many stretches at once (about twenty times slower), "auto" selects numba
    if it is installed.

    >>> propagation([0.5, 2 / 3], [1, 10, 1000]).values.real.round(6).tolist()
    [[2.0, 2.0], [2.0, 6.5], [2.0, 501.5]]
    """
    check_min(1, start=start)
    marks = np.asarray(lengths, dtype=np.int64).ravel()
    if marks.size == 0 or np.any(np.diff(marks) <= 0) or marks[0] < start:
        raise ConfigError(f"lengths: expected increasing lengths from start = {start} on")
    lam = mix * np.array([finite(value) for value in some(eigenvalues)], dtype=np.complex128)
    block = _safe_block(lam)
    walk = _walk_numba if use_numba(backend) else _walk_numpy
    return walk(lam, marks, start, block).times(mix)


def _safe_block(lam: Complexes) -> int:
    """Return the most steps between two rescalings: a step grows (u, B) at most (2 + |λ|)²-fold."""
    return max(1, min(4096, int(400 / (2 * math.log(2 + float(np.abs(lam).max()))))))


def _walk_numba(lam: Complexes, marks: NDArray[np.int64], start: int, block: int) -> Scaled:
    step = compiled(_steps)
    state = np.empty((4, lam.size))
    first = np.array([np.full(lam.size, 1 + 1 / start), 1 + lam * (1 + 1 / start)])
    state[0::2], state[1::2] = first.real, first.imag
    exponent = np.zeros(lam.size, dtype=np.int64)
    real, imag = np.ascontiguousarray(lam.real), np.ascontiguousarray(lam.imag)
    mantissas = np.empty((marks.size, lam.size), dtype=np.complex128)
    exponents = np.empty((marks.size, lam.size), dtype=np.int64)
    now = start
    for row, mark in enumerate(marks.tolist()):
        while now < mark:
            end = min(now + block, mark)
            step(real, imag, state, now + 1, end + 1)
            shift = np.frexp(np.abs(state).max(axis=0))[1]
            state *= np.ldexp(1.0, -shift)
            exponent += shift
            now = end
        mantissas[row] = state[0] + 1j * state[1]
        exponents[row] = exponent
    return Scaled(mantissas, exponents)


def _steps(
    real: NDArray[np.float64],
    imag: NDArray[np.float64],
    state: NDArray[np.float64],
    first: int,
    last: int,
) -> None:
    """Set u ← B/n + λu, B ← B + λu for n = first .. last − 1; rows of `state`: Re u, Im u, Re B, Im B."""
    u_re, u_im, b_re, b_im = state[0], state[1], state[2], state[3]
    for n in range(first, last):
        inverse = 1.0 / n
        for i in range(real.shape[0]):
            re = b_re[i] * inverse + real[i] * u_re[i] - imag[i] * u_im[i]
            im = b_im[i] * inverse + real[i] * u_im[i] + imag[i] * u_re[i]
            u_re[i] = re
            u_im[i] = im
            b_re[i] += real[i] * re - imag[i] * im
            b_im[i] += real[i] * im + imag[i] * re


def _walk_numpy(lam: Complexes, marks: NDArray[np.int64], start: int, block: int) -> Scaled:
    """Compute p at the marks from a product of 2×2 matrices, one for each stretch of time.

    Stretches end at the marks; both unit vectors are carried through all stretches at once.
    """
    cuts = _cuts(marks, start, min(block, max(1, math.isqrt(int(marks[-1])))))
    transfer = _transfers(lam, cuts)
    state = np.array([np.full(lam.size, 1 + 1 / start), 1 + lam * (1 + 1 / start)])
    exponent = np.zeros(lam.size, dtype=np.int64)
    mantissas = {start: state[0].copy()}
    exponents = {start: exponent.copy()}
    for end, matrix in zip(cuts[1:].tolist(), transfer, strict=True):
        state = np.einsum("ijl,jl->il", matrix, state)
        shift = np.frexp(np.abs(state).max(axis=0))[1]
        state = state * np.ldexp(1.0, -shift)
        exponent = exponent + shift
        mantissas[end], exponents[end] = state[0], exponent
    times = marks.tolist()
    return Scaled(np.array([mantissas[m] for m in times]), np.array([exponents[m] for m in times]))


def _cuts(marks: NDArray[np.int64], start: int, longest: int) -> NDArray[np.int64]:
    """Return start, every mark, and enough points between that no stretch is longer than `longest`."""
    inner = np.arange(start, marks[-1] + 1, longest)
    return np.unique(np.concatenate([inner, marks, [start]])).astype(np.int64)


def _transfers(lam: Complexes, cuts: NDArray[np.int64]) -> Complexes:
    """Return the 2×2 matrix of every stretch (cuts[i], cuts[i+1]], shape (stretches, 2, 2, eigenvalues)."""
    lengths = np.diff(cuts)
    order = np.argsort(-lengths)  # longest first: the stretches still under way are a prefix
    begin, length = cuts[:-1][order], lengths[order]
    u = np.zeros((order.size, 2, lam.size), dtype=np.complex128)
    b = np.zeros_like(u)
    u[:, 0], b[:, 1] = 1.0, 1.0
    for step in range(1, int(length[0]) + 1 if length.size else 0):
        alive = int(np.searchsorted(-length, -step, side="right"))
        n = (begin[:alive] + step)[:, None, None]
        u[:alive] = b[:alive] / n + lam * u[:alive]
        b[:alive] += lam * u[:alive]
    result = np.empty((order.size, 2, 2, lam.size), dtype=np.complex128)
    result[order, 0], result[order, 1] = u, b
    return result


def propagation_to(eigenvalue: complex, end: int, mix: float = 1.0) -> Scaled:
    """Return p_{0:T−t}(λ) for one T = `end` and every t = 1..T, by the three-term recurrence in t.

    g_T = 1 + 1/T, g_{T−1} = λ g_T (1 + 1/(T−1)) + 1/T, g_t = (1 + λ + λ/t) g_{t+1} − λ g_{t+2}.

    >>> propagation_to(0.5, end=6).values.real.round(4)[0]  # t = 1: 2 whatever T
    np.float64(2.0)
    """
    check_min(1, end=end)
    lam = mix * finite(eigenvalue)
    mantissas = np.zeros(end, dtype=np.complex128)
    exponents = np.zeros(end, dtype=np.int64)
    after, now, scale = 0j, 1 + 1 / end + 0j, 0
    for t in range(end, 0, -1):
        if t == end - 1:
            after, now = now, lam * now * (1 + 1 / t) + 1 / end
        elif t < end:
            after, now = now, (1 + lam + lam / t) * now - lam * after
        if abs(now) > 1e100:
            after, now, scale = after * 2.0**-300, now * 2.0**-300, scale + 300
        mantissas[t - 1], exponents[t - 1] = now, scale
    return Scaled(*normalise(mantissas, exponents)).times(mix)


def sample_lengths(first: int, last: int, count: int = 200) -> NDArray[np.int64]:
    """Return at most `count` lengths from `first` to `last`, evenly spread on a logarithmic axis.

    >>> sample_lengths(1, 1000, 4).tolist()
    [1, 10, 100, 1000]
    """
    check_min(1, first=first)
    check_min(first, last=last)
    check_min(2, count=count)
    return np.unique(np.rint(np.geomspace(first, last, count)).astype(np.int64))


def slope(lengths: ArrayLike, log_values: ArrayLike) -> float:
    """Return the least-squares slope of ln|p| against ln T: the measured power of T.

    >>> round(slope([1, 10, 100], np.log([5, 50, 500])), 12)
    1.0
    """
    x, y = np.log(np.asarray(lengths, dtype=float)), np.asarray(log_values, dtype=float)
    if x.size < 2 or not np.all(np.isfinite(y)):
        raise ConfigError("slope: expected at least two lengths and values that are not zero")
    return float(np.polyfit(x, y, 1)[0])
