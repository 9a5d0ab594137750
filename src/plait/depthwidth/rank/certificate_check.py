"""Is a certificate of a rank true? One pass over the entries of the matrix it names, and no elimination.

The file is believed in nothing: its form, its digest, the numbers that follow from others and the Gram bound
are checked first, then A W = B with the right-hand sides of `claim` and the entries of `entries`. This file
and those two import nothing of what measured the rank or made the witness; the bound comes from `gram`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.depthwidth.rank.certificate_matrix import Sides, entries, sides
from plait.depthwidth.rank.certificate_schema import read_form
from plait.depthwidth.rank.claim import Claim, right_hand_sides, sides_needed, unpack
from plait.errors import DataError, require

__all__ = ["Checked", "check_certificate", "degree_of_minor", "short_chance"]

Integers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # rows checked, rows in all
_TILE = 64  # rows and columns of a tile on a processor: its vectors stay in the cache
_TILE_ON_GPU = 2048
_EXACT = 512  # columns added before a reduction; products of residues below 2^23 stay under 2^53


@dataclass(frozen=True)
class Checked:
    """What a certificate has shown.

    Attributes:
        rank: the generic separation rank is at least this.
        gram: and at most this, which is proven.
        forged_log2: log2 of the chance that one try at a false witness passes.
        short: bound on the chance that every run fell short of a larger rank, had it been there.
        entries: how many entries of matrices were computed.
        held: the certificate as read.
    """

    rank: int
    gram: int
    forged_log2: float
    short: float
    entries: int
    held: dict[str, Any]

    @property
    def certain(self) -> bool:
        """Both sides meet."""
        return self.rank == self.gram


def degree_of_minor(depth: int, size: int) -> int:
    """Degree in weights and tokens of a minor of that size: each entry has 3^(L+1) − 2.

    3^L of an entry's factors are tokens; each of its C(L) attention steps brings four weights.

    >>> degree_of_minor(2, 1), degree_of_minor(2, 100)
    (25, 2500)
    """
    return size * (int(3 ** (depth + 1)) - 2)


def short_chance(depth: int, rank: int, primes: list[int]) -> float:
    """Π min(1, (rank + 1)·degree/p): the chance that independent runs all miss a larger generic rank.

    Schwartz and Zippel: were the generic rank over GF(p) larger, some minor of one more row would be a
    polynomial that is not 0, and a random point of GF(p) is a zero of it with chance degree/p at most.

    >>> short_chance(2, 107, [8388593, 8388587]) < 1.1e-7
    True
    """
    return math.prod(min(1.0, degree_of_minor(depth, rank + 1) / p) for p in primes)


def check_certificate(
    path: str | Path, *, device: str | None = None, progress: Progress | None = None
) -> Checked:
    """Check one file.

    Raises:
        DataError: it is not a certificate, or not a true one; the message says what is wrong.
    """
    held = read_form(path)
    witness = held["witness"]
    done = 0
    total = sum(part["rank"] for part in witness["parts"])
    for part in witness["parts"]:
        claim = Claim(
            held["network"],
            witness["p"],
            witness["seed"],
            part["degree"],
            tuple((start, stop) for start, stop in part["rows"]),
            tuple((start, stop) for start, stop in part["columns"]),
        )
        try:
            solution = unpack(part["solution"], claim.p, (claim.rank, sides_needed(claim.p)))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

        def tell(rows: int, done: int = done) -> None:
            if progress:
                progress(done + rows, total)

        wrong = _wrong_rows(claim, solution, device, tell)
        if wrong:
            raise DataError(
                f"{path}: the witness does not hold: A w = b fails in {wrong:,} of {claim.rank:,} rows"
            )
        done += claim.rank
    net = held["network"]
    return Checked(
        rank=held["rank"],
        gram=held["gram_bound"],
        forged_log2=-sides_needed(witness["p"]) * math.log2(witness["p"]),
        short=short_chance(net["depth"], held["rank"], [run["p"] for run in held["runs"]]),
        entries=sum(part["rank"] ** 2 for part in witness["parts"]),
        held=held,
    )


def _wrong_rows(claim: Claim, solution: Integers, device: str | None, tell: Callable[[int], None]) -> int:
    """In how many rows A W differs from B."""
    wanted = right_hand_sides(claim)
    if claim.degree is None:
        product = _product(sides(claim), solution, device, tell)
    else:  # the coefficient of t^m of y(S_A + t S_B), from its values at t = 0..C
        weights = _coefficient_weights(claim.degree, (3 ** claim.network["depth"] - 1) // 2, claim.p)
        product = np.zeros_like(wanted)
        for power, weight in enumerate(weights):
            product = (product + weight * _product(sides(claim, power), solution, device, lambda _: None)) % (
                claim.p
            )
        tell(claim.rank)
    return int((product != wanted).any(axis=1).sum())


def _coefficient_weights(degree: int, highest: int, p: int) -> list[int]:
    """c_0..c_C with f's coefficient of t^m = Σ_t c_t f(t) mod p, for any f of degree C at most (Lagrange).

    >>> _coefficient_weights(1, 1, 7)  # f(1) − f(0)
    [6, 1]
    """
    weights = []
    for node in range(highest + 1):
        basis, scale = [1], 1  # Π_{j≠node} (t − j)/(node − j), low powers first
        for other in range(highest + 1):
            if other != node:
                longer = [0, *basis]
                for power, coefficient in enumerate(basis):
                    longer[power] = (longer[power] - other * coefficient) % p
                basis, scale = longer, scale * (node - other) % p
        weights.append(basis[degree] * pow(scale, -1, p) % p)
    return weights


def _product(held: Sides, solution: Integers, device: str | None, tell: Callable[[int], None]) -> Integers:
    """A W in 0..p−1, tile by tile; each entry is computed once and dropped."""
    p = held.prime
    vectors = np.where(solution > p // 2, solution - p, solution).astype(np.float64)
    on_gpu = device is not None and device != "cpu"
    if on_gpu:
        torch, place = require("torch", "torch"), str(device).removeprefix("torch:")

        def hold(array: Any) -> Any:
            return torch.from_numpy(array).to(place)

        held = _moved(held, hold)
        vectors = hold(vectors)
    tile, rank = _TILE_ON_GPU if on_gpu else _TILE, len(solution)
    result = np.zeros(solution.shape, dtype=np.int64)
    spans = [slice(i, min(i + tile, rank)) for i in range(0, rank, tile)]

    def fill(rows: slice) -> slice:
        total: Any = 0
        for columns in spans:
            block = entries(held.part(rows, columns))
            for i in range(0, block.shape[1], _EXACT):
                part = block[:, i : i + _EXACT] @ vectors[columns][i : i + _EXACT]
                total = total + part - p * (part * (1.0 / p)).round()
        host = np.asarray(total.cpu() if on_gpu else total)
        result[rows] = host.astype(np.int64) % p
        return rows

    threads = 1 if on_gpu else _threads()
    if threads == 1:
        for rows in spans:
            tell(fill(rows).stop)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for rows in pool.map(fill, spans):
                tell(rows.stop)
    return result


def _moved(held: Sides, hold: Callable[[Any], Any]) -> Sides:
    left = {name: hold(array) for name, array in held.left.items()}
    right = {name: hold(array) for name, array in held.right.items()}
    outer, inner = [hold(array) for array in held.outer], [hold(array) for array in held.inner]
    return Sides(held.prime, held.depth, held.coordinate, held.residual, outer, inner, left, right)


def _threads() -> int:
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
