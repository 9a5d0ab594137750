"""Support of a sparse attention: the states that every step attends to, with frozen weights.

A_m is the set of times i <= m that s_m attends to (counted from 1), w(m,i) its weight. Together with the
recurrent edges this is the directed acyclic graph over which every quantity of this package is one sweep:

    h_t → s_m   if m = t or t ∈ A_m,          s_j → s_m (through h_{j+1})   if m = j+1 or j+1 ∈ A_m.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plait.errors import ConfigError, ShapeError

__all__ = ["Support"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Support:
    """Sets A_1, …, A_T in one flat list: A_m is `times[bounds[m-1]:bounds[m]]`, sorted, counted from 1.

    Build it with `from_lists`, `from_mask` or `from_trace`; all three check that no set contains a
    future time and that none is empty.
    """

    bounds: Ints
    times: Ints
    weights: Floats
    is_uniform: bool

    def __len__(self) -> int:
        return self.bounds.size - 1

    def attended(self, m: int) -> Ints:
        """Return A_m."""
        return self.times[self.bounds[m - 1] : self.bounds[m]]

    def weight(self, m: int) -> Floats:
        """Return w(m, i) for i in A_m."""
        return self.weights[self.bounds[m - 1] : self.bounds[m]]

    @cached_property
    def sizes(self) -> Ints:
        """Sizes κ_m = |A_m| for m = 1..T."""
        return np.diff(self.bounds)

    @property
    def kappa(self) -> int:
        """Largest size κ = max_m |A_m|."""
        return int(self.sizes.max())

    def uniform(self) -> Support:
        """Return these sets with weights 1/κ_m, as Theorem 2 assumes."""
        weights = np.repeat(1.0 / np.maximum(self.sizes, 1), self.sizes)
        return Support(self.bounds, self.times, weights, is_uniform=True)

    def check_time(self, **named: int) -> None:
        """Raise a ConfigError unless every time, passed by name, is in 1..T."""
        for name, time in named.items():
            if not 1 <= time <= len(self):
                raise ConfigError(f"{name}: expected a time in 1..{len(self)}, got {time}")

    @staticmethod
    def from_lists(
        sets: Sequence[Iterable[int]],
        weights: Sequence[Iterable[float]] | None = None,
        allow_empty: bool = False,
    ) -> Support:
        """Build a support from A_1, A_2, … as lists of times, from 1; weights default to 1/|A_m|.

        >>> support = Support.from_lists([[1], [1, 2], [2]])
        >>> support.kappa, support.weight(2).tolist()
        (2, [0.5, 0.5])
        """
        rows = [np.array(sorted(row), dtype=np.int64) for row in map(list, sets)]
        if weights is None:
            shares = [np.full(row.size, 1.0 / max(row.size, 1)) for row in rows]
        else:
            pairs = zip(map(list, sets), map(list, weights), strict=True)
            shares = [np.array(share, dtype=float)[np.argsort(row)] for row, share in pairs]
        return _checked(rows, shares, weights is None, allow_empty)

    @staticmethod
    def from_mask(mask: ArrayLike, weights: ArrayLike | None = None, allow_empty: bool = False) -> Support:
        """Build a support from (T, T) arrays: `mask[m−1, i−1]` is true if s_m attends to h_i.

        >>> Support.from_mask(np.tri(3)).kappa
        3
        """
        chosen = np.asarray(mask)
        if chosen.ndim != 2 or chosen.shape[0] != chosen.shape[1]:
            raise ShapeError(f"mask: expected a square (T, T) array, got shape {chosen.shape}")
        rows = [np.flatnonzero(row).astype(np.int64) + 1 for row in chosen]
        if weights is None:
            return Support.from_lists([row.tolist() for row in rows], allow_empty=allow_empty)
        values = np.asarray(weights, dtype=float)
        if values.shape != chosen.shape:
            raise ShapeError(f"weights: expected the mask's shape {chosen.shape}, got {values.shape}")
        shares = [values[m, row - 1] for m, row in enumerate(rows)]
        return _checked(rows, shares, False, allow_empty)

    @staticmethod
    def from_trace(trace: Any, row: int = 0, threshold: float = 0.0, allow_empty: bool = False) -> Support:
        """Build a support from batch element `row` of a trace: its `born` and `weights` are (T, B, slots).

        `born` = i means that the slot holds h_{i+1}, −1 that it is empty. Slots whose weight is not above
        `threshold` are left out; with the default 0, A_m is where the weight is not zero.
        """
        born, weights = (_array(getattr(trace, name, None), name) for name in ("born", "weights"))
        if born.ndim != 3 or born.shape != weights.shape:
            raise ShapeError(f"trace: expected (T, B, slots) twice, got {born.shape} and {weights.shape}")
        if not 0 <= row < born.shape[1]:
            raise ConfigError(f"row: expected 0..{born.shape[1] - 1}, got {row}")
        rows: list[Ints] = []
        shares: list[Floats] = []
        for births, share in zip(born[:, row], weights[:, row].astype(float), strict=True):
            kept = np.flatnonzero((births >= 0) & ~(share <= threshold))
            times, index = np.unique(births[kept], return_inverse=True)  # heads may share a state
            rows.append(times.astype(np.int64) + 1)
            shares.append(np.bincount(index, share[kept], len(times)).astype(float))
        return _checked(rows, shares, False, allow_empty)


def _array(value: Any, name: str) -> NDArray[Any]:
    if value is None:
        raise ShapeError(f"trace: has no {name}; call the model with need_trace=True")
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _checked(rows: list[Ints], shares: list[Floats], is_uniform: bool, allow_empty: bool) -> Support:
    if not rows:
        raise ConfigError("support: expected at least one time step, got none")
    for m, (row, share) in enumerate(zip(rows, shares, strict=True), start=1):
        if row.size != share.size:
            raise ShapeError(f"A_{m}: has {row.size} times and {share.size} weights")
        if row.size == 0 and not allow_empty:
            raise ConfigError(f"A_{m} is empty: every step must attend to something (or allow_empty=True)")
        if row.size and (row[-1] > m or row[0] < 1):
            raise ConfigError(f"A_{m}: expected times in 1..{m}, got {row.tolist()}: the future is closed")
        if np.any(np.diff(row) == 0):
            raise ConfigError(f"A_{m}: a time occurs twice in {row.tolist()}")
        if not np.all(np.isfinite(share)) or np.any(share < 0):
            raise ConfigError(f"A_{m}: expected weights >= 0 and finite, got {share.tolist()}")
    bounds = np.cumsum([0, *(row.size for row in rows)], dtype=np.int64)
    return Support(bounds, np.concatenate(rows), np.concatenate(shares), is_uniform)
