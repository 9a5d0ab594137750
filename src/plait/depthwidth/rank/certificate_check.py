"""Verification of a rank certificate: one pass over the entries of the matrix it names, without elimination.

No part of the file is trusted: its schema, its digest, derived values and the Gram bound are checked first,
then A W = B with the right-hand sides of `claim` and the entries of `certificate_matrix`. These modules
import nothing of the code that measures ranks and makes witnesses; the bound comes from `gram`.
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
from plait.depthwidth.rank.certificate_schema import read_certificate
from plait.depthwidth.rank.claim import Claim, num_right_hand_sides, right_hand_sides, unpack
from plait.errors import DataError, require

__all__ = ["CertificateCheck", "check_certificate", "degree_of_minor", "miss_chance"]

Integers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # rows checked, rows in total
_TILE = 64  # rows and columns of a tile on a CPU, whose vectors stay in the cache
_TILE_ON_GPU = 2048
_EXACT = 512  # columns added before a reduction; products of residues below 2^23 stay under 2^53


@dataclass(frozen=True)
class CertificateCheck:
    """Result of a successful verification.

    Attributes:
        rank: verified lower bound on the generic separation rank.
        gram: proven upper bound.
        forged_log2: log2 of the probability that one attempt at a false witness passes.
        miss_chance: bound on the probability that all runs missed a larger rank.
        entries: matrix entries that were computed.
        certificate: the certificate as read.
    """

    rank: int
    gram: int
    forged_log2: float
    miss_chance: float
    entries: int
    certificate: dict[str, Any]

    @property
    def certain(self) -> bool:
        """True if the bounds are equal."""
        return self.rank == self.gram


def degree_of_minor(depth: int, size: int) -> int:
    """Return the degree of a minor in weights and tokens; each entry has degree 3^(L+1) − 2.

    An entry has 3^L factors that are tokens and, for each of C(L) attention steps, four that are weights.

    >>> degree_of_minor(2, 1), degree_of_minor(2, 100)
    (25, 2500)
    """
    return size * (int(3 ** (depth + 1)) - 2)


def miss_chance(depth: int, rank: int, primes: list[int]) -> float:
    """Return Π min(1, (rank + 1)·degree/p), the chance that independent runs all miss a larger generic rank.

    By the Schwartz-Zippel lemma: if the generic rank over GF(p) is larger, some minor with one more row is a
    nonzero polynomial, and a random point of GF(p) is a zero of it with probability at most degree/p.

    >>> miss_chance(2, 107, [8388593, 8388587]) < 1.1e-7
    True
    """
    return math.prod(min(1.0, degree_of_minor(depth, rank + 1) / p) for p in primes)


def check_certificate(
    path: str | Path, *, device: str | None = None, progress: Progress | None = None
) -> CertificateCheck:
    """Verify a certificate file.

    Raises:
        DataError: if it is not a certificate or is wrong; the message states the first problem.
    """
    certificate = read_certificate(path)
    witness = certificate["witness"]
    done = 0
    total = sum(part["rank"] for part in witness["parts"])
    for part in witness["parts"]:
        claim = Claim(
            certificate["network"],
            witness["p"],
            witness["seed"],
            part["degree"],
            tuple((start, stop) for start, stop in part["rows"]),
            tuple((start, stop) for start, stop in part["columns"]),
        )
        try:
            solution = unpack(part["solution"], claim.p, (claim.rank, num_right_hand_sides(claim.p)))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

        def report(rows: int, done: int = done) -> None:
            if progress:
                progress(done + rows, total)

        wrong = _wrong_rows(claim, solution, device, report)
        if wrong:
            raise DataError(
                f"{path}: the witness does not hold: A w = b fails in {wrong:,} of {claim.rank:,} rows"
            )
        done += claim.rank
    net = certificate["network"]
    return CertificateCheck(
        rank=certificate["rank"],
        gram=certificate["gram_bound"],
        forged_log2=-num_right_hand_sides(witness["p"]) * math.log2(witness["p"]),
        miss_chance=miss_chance(net["depth"], certificate["rank"], [run["p"] for run in certificate["runs"]]),
        entries=sum(part["rank"] ** 2 for part in witness["parts"]),
        certificate=certificate,
    )


def _wrong_rows(claim: Claim, solution: Integers, device: str | None, report: Callable[[int], None]) -> int:
    """Count the rows in which A W differs from B."""
    expected = right_hand_sides(claim)
    if claim.degree is None:
        product = _product(sides(claim), solution, device, report)
    else:  # the coefficient of t^m of y(S_A + t S_B), from its values at t = 0..C
        weights = _coefficient_weights(claim.degree, (3 ** claim.network["depth"] - 1) // 2, claim.p)
        product = np.zeros_like(expected)
        for power, weight in enumerate(weights):
            product = (product + weight * _product(sides(claim, power), solution, device, lambda _: None)) % (
                claim.p
            )
        report(claim.rank)
    return int((product != expected).any(axis=1).sum())


def _coefficient_weights(degree: int, highest: int, p: int) -> list[int]:
    """Return c_0..c_C with coefficient of t^m in f = Σ_t c_t f(t) mod p, for deg f ≤ C (Lagrange).

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


def _product(
    factors: Sides, solution: Integers, device: str | None, report: Callable[[int], None]
) -> Integers:
    """Return A W in 0..p−1, tile by tile; each entry is computed once and discarded."""
    p = factors.prime
    vectors = np.where(solution > p // 2, solution - p, solution).astype(np.float64)
    on_gpu = device is not None and device != "cpu"
    if on_gpu:
        torch, torch_device = require("torch", "torch"), str(device).removeprefix("torch:")

        def to_device(array: Any) -> Any:
            return torch.from_numpy(array).to(torch_device)

        factors = _to_device(factors, to_device)
        vectors = to_device(vectors)
    tile, rank = _TILE_ON_GPU if on_gpu else _TILE, len(solution)
    result = np.zeros(solution.shape, dtype=np.int64)
    spans = [slice(i, min(i + tile, rank)) for i in range(0, rank, tile)]

    def fill(rows: slice) -> slice:
        total: Any = 0
        for columns in spans:
            block = entries(factors.part(rows, columns))
            for i in range(0, block.shape[1], _EXACT):
                part = block[:, i : i + _EXACT] @ vectors[columns][i : i + _EXACT]
                total = total + part - p * (part * (1.0 / p)).round()
        host = np.asarray(total.cpu() if on_gpu else total)
        result[rows] = host.astype(np.int64) % p
        return rows

    threads = 1 if on_gpu else _threads()
    if threads == 1:
        for rows in spans:
            report(fill(rows).stop)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for rows in pool.map(fill, spans):
                report(rows.stop)
    return result


def _to_device(factors: Sides, to_device: Callable[[Any], Any]) -> Sides:
    left = {name: to_device(array) for name, array in factors.left.items()}
    right = {name: to_device(array) for name, array in factors.right.items()}
    outer, inner = (
        [to_device(array) for array in factors.outer],
        [to_device(array) for array in factors.inner],
    )
    return Sides(
        factors.prime, factors.depth, factors.coordinate, factors.residual, outer, inner, left, right
    )


def _threads() -> int:
    expected = os.environ.get("OMP_NUM_THREADS", "")
    if expected.isdigit() and int(expected) > 0:
        return int(expected)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
