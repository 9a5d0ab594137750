"""Dependency depth, best path, number of paths, coefficients by degree: one graph, four semirings."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.gradients.fast import compiled, use_numba
from plait.gradients.sparse.support import Support

__all__ = ["Path", "best_path", "best_values", "chi", "depth_all", "depth_to", "path_counts"]

ALL_PAIRS_LIMIT = 20_000


def depth_to(support: Support, end: int | None = None, backend: str = "auto") -> NDArray[np.int64]:
    """Return d(t, T) for T = `end` and every t = 1..T: the least number of s → s edges from h_t to s_T.

    0 means that s_T attends to h_t (or t = T). Recurrent edges count too, so d(t,T) <= T − t.

    >>> window = Support.from_lists([range(max(1, m - 2), m + 1) for m in range(1, 11)])
    >>> depth_to(window).tolist()  # floor((T − t)/3)
    [3, 2, 2, 2, 1, 1, 1, 0, 0, 0]
    """
    end = len(support) if end is None else end
    support.check_time(end=end)
    depth = np.full(end, end, dtype=np.int64)
    if use_numba(backend):
        compiled(_depths)(support.bounds, support.times, depth)
        return depth
    for m in range(end, 0, -1):
        q = 0 if m == end else 1 + depth[m]
        attended = support.attended(m) - 1
        depth[attended] = np.minimum(depth[attended], q)
        depth[m - 1] = min(depth[m - 1], q)
    return depth


def _depths(bounds: NDArray[np.int64], times: NDArray[np.int64], depth: NDArray[np.int64]) -> None:
    end = depth.shape[0]
    for m in range(end, 0, -1):
        q = 0 if m == end else 1 + depth[m]
        depth[m - 1] = min(depth[m - 1], q)
        for edge in range(bounds[m - 1], bounds[m]):
            depth[times[edge] - 1] = min(depth[times[edge] - 1], q)


def depth_all(support: Support) -> NDArray[np.int32]:
    """Return d(t, T) for all pairs: entry [T−1, t−1], −1 where t > T. T² numbers, so T <= 20,000.

    row_m = 1 + min over j ∈ {m−1} ∪ {i−1 : i ∈ A_m} of row_j, then 0 at A_m ∪ {m}.
    """
    length = len(support)
    if length > ALL_PAIRS_LIMIT:
        raise ConfigError(
            f"all pairs need T² numbers: expected T <= {ALL_PAIRS_LIMIT}, got {length}; use depth_to"
        )
    far = np.int32(2 * length)
    rows = np.full((length, length), far, dtype=np.int32)
    for m in range(1, length + 1):
        attended = support.attended(m)
        sources = np.append(attended[attended >= 2] - 2, [m - 2] if m >= 2 else [])
        if sources.size:
            rows[m - 1] = 1 + rows[sources.astype(np.int64)].min(axis=0)
        rows[m - 1, attended - 1] = 0
        rows[m - 1, m - 1] = 0
    rows[np.triu_indices(length, 1)] = -1
    return rows


@dataclass(frozen=True)
class Path:
    """Path h_t → s_{m_1} → … → s_T: the times m_1 < … < m_last = T, and ln of its value."""

    times: tuple[int, ...]
    log_value: float

    @property
    def degree(self) -> int:
        """Number of s → s edges, each of which carries one V."""
        return len(self.times) - 1


def best_values(
    support: Support, eigenvalue: float, end: int | None = None, mix: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return ln of the largest single-path value from every t to T = `end`, and the first s on that path.

    b_m = max( w(m,t) + 1[m=t], λ max_j (w(m,j+1) + 1[j=m−1]) b_j ), λ > 0. Every path is at most p(λ).
    """
    end = len(support) if end is None else end
    support.check_time(end=end)
    step = np.log(positive(eigenvalue) * mix)
    value = np.full(end, -np.inf)
    entry = np.full(end, -1, dtype=np.int64)
    for m in range(end, 0, -1):
        q = np.log(mix) + (0.0 if m == end else step - np.log(mix) + value[m])
        times, weights = support.attended(m), support.weight(m)
        here = times == m
        # The attention edge and the recurrent edge h_m → s_m are one edge of weight w + 1.
        edges = np.append(times[~here], m) - 1
        with np.errstate(divide="ignore"):
            candidates = q + np.log(np.append(weights[~here], 1.0 + weights[here].sum()))
        better = candidates > value[edges]
        value[edges[better]] = candidates[better]
        entry[edges[better]] = m
    return value, entry


def best_path(support: Support, eigenvalue: float, start: int, end: int, mix: float = 1.0) -> Path:
    """Return the single path of largest value from h_t to s_T.

    >>> support = Support.from_lists([[1], [1, 2], [2], [1, 4], [3]])
    >>> best_path(support, 0.5, start=1, end=5).times  # h_1 → s_1 → s_2 → s_5, which attends to h_3
    (1, 2, 5)
    """
    support.check_time(start=start, end=end)
    if start > end:
        raise ConfigError(f"start: expected at most end = {end}, got {start}")
    value, entry = best_values(support, eigenvalue, end, mix)
    times = [int(entry[start - 1])]
    while times[-1] != end:
        times.append(int(entry[times[-1]]))
    return Path(tuple(times), float(value[start - 1]))


def path_counts(support: Support, end: int | None = None) -> list[int]:
    """Return the number of paths from h_t to s_T for every t = 1..T, as exact integers (up to 2^{T−t}).

    An attention edge that coincides with the recurrent edge counts once.
    """
    end = len(support) if end is None else end
    support.check_time(end=end)
    counts = [0] * end
    for m in range(end, 0, -1):
        q = 1 if m == end else counts[m]
        for i in {m, *support.attended(m).tolist()}:
            counts[i - 1] += q
    return counts


def chi(support: Support, start: int, end: int, degree: int | None = None) -> list[Fraction]:
    """Return χ_{0:T−t}(0..degree), the coefficients of ds_T/dh_t as a polynomial in V, exactly.

    P_m = [w(m,t) + 1[m=t]] + λ ( P_{m−1} + Σ_{i∈A_m, i>t} w(m,i) P_{i−1} ) as coefficient vectors.
    Uniform weights enter as the fractions 1/κ_m, others as the exact value of the float.
    """
    support.check_time(start=start, end=end)
    top = max(end - start, 0) if degree is None else degree
    polynomials: dict[int, list[Fraction]] = {}
    for m in range(start, end + 1):
        weights = dict(zip(support.attended(m).tolist(), _fractions(support, m), strict=True))
        total = [weights.get(start, Fraction(0)) + (m == start)] + [Fraction(0)] * top
        sources = {i - 1: w for i, w in weights.items() if i > start}
        if m > start:
            sources[m - 1] = sources.get(m - 1, Fraction(0)) + 1
        for j, w in sources.items():
            for s in range(top):
                total[s + 1] += w * polynomials[j][s]
        polynomials[m] = total
    return polynomials[end]


def _fractions(support: Support, m: int) -> list[Fraction]:
    if support.is_uniform:
        return [Fraction(1, int(support.sizes[m - 1]))] * int(support.sizes[m - 1])
    return [Fraction(w) for w in support.weight(m).tolist()]


def positive(eigenvalue: complex) -> float:
    """Return the eigenvalue as a float; raise a ConfigError unless it is real and positive."""
    value = complex(eigenvalue)
    if value.imag != 0 or not 0 < value.real < np.inf:
        raise ConfigError(
            f"eigenvalue: expected a real number > 0, got {eigenvalue}: with other eigenvalues the paths "
            "can cancel (V = −I/2 has gradients that are exactly 0)"
        )
    return value.real
