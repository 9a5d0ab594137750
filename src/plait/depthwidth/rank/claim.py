"""Claims of a certificate, and the linear system that proves one: shared by the prover and the verifier.

A claim defines one square matrix A over GF(p) completely: the network, the prime, the seed of its weights
and templates, the degree (graded runs), and the templates that are its rows and columns. The right-hand
sides B are drawn from a hash of exactly that, so they cannot be chosen before A. A solution W of A W = B
proves that A is invertible, up to a probability of p^−k per attempt: if A is singular, its column space is a
proper subspace, which contains each of the k columns of B with probability at most 1/p.

This module neither evaluates networks nor eliminates; `certificate_check` and `witness` use it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.errors import DataError

__all__ = [
    "SCHEMA",
    "Claim",
    "canonical",
    "digest_of",
    "num_right_hand_sides",
    "pack",
    "right_hand_sides",
    "unpack",
]

SCHEMA = "plait rank certificate 2"
_SECURITY_BITS = 64  # p^k ≥ 2^64
Integers = npt.NDArray[np.int64]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Claim:
    """Square matrix by its definition; `rows` and `columns` are increasing half-open ranges of templates."""

    network: dict[str, Any]
    p: int
    seed: int
    degree: int | None
    rows: Ranges
    columns: Ranges

    @property
    def rank(self) -> int:
        return sum(stop - start for start, stop in self.rows)

    def description(self) -> str:
        """Return everything that A depends on as canonical JSON, which is then hashed."""
        return canonical(
            {
                "schema": SCHEMA,
                "network": self.network,
                "p": self.p,
                "seed": self.seed,
                "degree": self.degree,
                "rows": [list(pair) for pair in self.rows],
                "columns": [list(pair) for pair in self.columns],
            }
        )


def canonical(value: Any) -> str:
    """Serialise as canonical JSON: sorted keys, no spaces, no NaN.

    >>> canonical({"b": 1, "a": [2, None]})
    '{"a":[2,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(certificate: dict[str, Any]) -> str:
    """Return the SHA-256 of a certificate without its digest; it detects accidental changes only."""
    rest = {key: value for key, value in certificate.items() if key != "digest"}
    return "sha256:" + hashlib.sha256(canonical(rest).encode()).hexdigest()


def num_right_hand_sides(prime: int) -> int:
    """Return k, the least number of right-hand sides with p^k ≥ 2^64.

    >>> num_right_hand_sides(8388593), num_right_hand_sides(5)
    (3, 28)
    """
    count, power = 1, prime
    while power < 2**_SECURITY_BITS:
        count, power = count + 1, power * prime
    return count


def right_hand_sides(claim: Claim) -> Integers:
    """Return B, (rank, k) residues in 0..p−1: SHAKE-256 of the description, eight bytes per number, mod p.

    Eight bytes make the numbers uniform to within p/2^64.
    """
    count = num_right_hand_sides(claim.p)
    stream = hashlib.shake_256(claim.description().encode()).digest(8 * claim.rank * count)
    drawn = np.frombuffer(stream, dtype="<u8") % np.uint64(claim.p)
    return drawn.astype(np.int64).reshape(claim.rank, count)


def _bytes_each(prime: int) -> int:
    return (prime.bit_length() + 7) // 8


def pack(solution: Integers, prime: int) -> str:
    """Encode residues as base64 of little-endian numbers with as many bytes as p needs.

    >>> pack(np.array([[1, 2], [3, 4]]), 8388593)
    'AQAAAgAAAwAABAAA'
    """
    plain = np.ascontiguousarray(solution % prime, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return base64.b64encode(plain[:, : _bytes_each(prime)].tobytes()).decode()


def unpack(text: str, prime: int, shape: Sequence[int]) -> Integers:
    """Decode the base64 residues of `pack`.

    Raises:
        DataError: if it is not base64, has another shape, or a number is not below p.
    """
    size, count = _bytes_each(prime), int(np.prod(shape))
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError("solution: expected base64") from error
    if len(raw) != size * count:
        raise DataError(f"solution: expected {size * count:,} bytes ({count:,} residues), got {len(raw):,}")
    plain = np.zeros((count, 8), dtype=np.uint8)
    plain[:, :size] = np.frombuffer(raw, dtype=np.uint8).reshape(count, size)
    numbers = plain.view("<u8").astype(np.int64).reshape(shape)
    if numbers.size and int(numbers.max()) >= prime:
        raise DataError(f"solution: expected residues below {prime}, got {int(numbers.max())}")
    return numbers
