"""What a certificate of a rank claims, and what must be shown for it: the definition both sides share.

A claim names one square matrix A over GF(p) completely: the network, the prime, the seed that its weights
and templates are drawn from, the degree (graded runs), and which templates are its rows and columns. The
right-hand sides B are drawn from a hash of exactly that, so they are fixed only when A is. Whoever shows W
with A W = B has shown, but for a chance of p^−k a try, that A is invertible: if it were not, a column of B
would lie in its column space, a proper subspace, with chance 1/p, and there are k of them.

Nothing here evaluates a network or eliminates anything; `check` reads this, and so does what makes witnesses.
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

__all__ = ["SCHEMA", "Claim", "canonical", "digest_of", "pack", "right_hand_sides", "sides_needed", "unpack"]

SCHEMA = "plait rank certificate 2"
_SECURITY_BITS = 64  # p^k is at least 2 to this
Integers = npt.NDArray[np.int64]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Claim:
    """One square matrix; `rows` and `columns` are half-open ranges of template numbers, increasing."""

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
        """What is hashed: everything that A depends on, in one spelling."""
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
    """JSON with one spelling: keys sorted, no blanks, no NaN.

    >>> canonical({"b": 1, "a": [2, None]})
    '{"a":[2,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(held: dict[str, Any]) -> str:
    """The SHA-256 of everything in a certificate but its digest: tells edits by accident, not by intent."""
    rest = {key: value for key, value in held.items() if key != "digest"}
    return "sha256:" + hashlib.sha256(canonical(rest).encode()).hexdigest()


def sides_needed(prime: int) -> int:
    """k, the least number of right-hand sides with p^k ≥ 2^64.

    >>> sides_needed(8388593), sides_needed(5)
    (3, 28)
    """
    count, power = 1, prime
    while power < 2**_SECURITY_BITS:
        count, power = count + 1, power * prime
    return count


def right_hand_sides(claim: Claim) -> Integers:
    """B, (rank, k) residues in 0..p−1: SHAKE-256 of the description, eight bytes a number, mod p.

    Eight bytes make the numbers uniform to within p/2^64.
    """
    count = sides_needed(claim.p)
    stream = hashlib.shake_256(claim.description().encode()).digest(8 * claim.rank * count)
    drawn = np.frombuffer(stream, dtype="<u8") % np.uint64(claim.p)
    return drawn.astype(np.int64).reshape(claim.rank, count)


def _bytes_each(prime: int) -> int:
    return (prime.bit_length() + 7) // 8


def pack(solution: Integers, prime: int) -> str:
    """Residues as base64 of little-endian numbers of as many bytes as p needs.

    >>> pack(np.array([[1, 2], [3, 4]]), 8388593)
    'AQAAAgAAAwAABAAA'
    """
    plain = np.ascontiguousarray(solution % prime, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return base64.b64encode(plain[:, : _bytes_each(prime)].tobytes()).decode()


def unpack(text: str, prime: int, shape: Sequence[int]) -> Integers:
    """The reverse of `pack`.

    Raises:
        DataError: it is not base64, not of this shape, or holds a number of p or more.
    """
    size, count = _bytes_each(prime), int(np.prod(shape))
    try:
        held = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError("solution: expected base64") from error
    if len(held) != size * count:
        raise DataError(f"solution: expected {size * count:,} bytes ({count:,} residues), got {len(held):,}")
    plain = np.zeros((count, 8), dtype=np.uint8)
    plain[:, :size] = np.frombuffer(held, dtype=np.uint8).reshape(count, size)
    numbers = plain.view("<u8").astype(np.int64).reshape(shape)
    if numbers.size and int(numbers.max()) >= prime:
        raise DataError(f"solution: expected residues below {prime}, got {int(numbers.max())}")
    return numbers
