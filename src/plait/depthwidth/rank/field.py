"""Arithmetic in the field GF(p) with floating-point numbers: residues are centred integers in float64.

Every product and sum below 2^53 is exact in float64, so a matrix product of residues is exact while its
inner dimension K satisfies K ((p + 5)/2)² < 2^53. That turns exact linear algebra into ordinary matrix
products, at their speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from plait.errors import ConfigError

__all__ = [
    "PRIMES",
    "FloatArray",
    "centre",
    "check_prime",
    "exact_depth",
    "inverse_mod",
    "is_prime",
]

FloatArray = npt.NDArray[np.float64]

# The three largest primes below 2^23: products of residues stay below 2^44, and 512 of them may be added.
PRIMES = (8388593, 8388587, 8388581)

_BASE = 32  # below this size an inverse is computed column by column


def is_prime(number: int) -> bool:
    """Test for primes by the deterministic Miller–Rabin test, valid below 3.3e24.

    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    """
    small = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    if number < 2 or any(number % q == 0 for q in small):
        return number in small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in small:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def exact_depth(prime: int) -> int:
    """Return how many products of two residues can be added exactly in float64.

    Reduction leaves |r| ≤ (p + 5)/2 (the quotient x/p is itself rounded), so K ((p + 5)/2)² + p < 2^53.

    >>> exact_depth(8388593), exact_depth(1048573)
    (512, 32767)
    """
    half = (prime + 5) // 2 + 1
    return (2**53 - 1 - prime) // (half * half)


def check_prime(prime: int, products: int = 1, degree: int = 0) -> int:
    """Return `prime` if exact arithmetic with `products` added products is possible in GF(prime).

    `degree` is the number of Gram factors C(L) of a network: binomials up to it must not vanish.
    """
    if isinstance(prime, bool) or not isinstance(prime, int | np.integer):
        raise ConfigError(f"p: expected a prime number, got {prime!r}")
    prime = int(prime)
    if not is_prime(prime):
        raise ConfigError(f"p: expected a prime, got {prime}; {PRIMES[0]} is a good choice")
    if prime <= degree:
        raise ConfigError(
            f"p: expected more than C(L) = {degree}, got {prime}: in so small a characteristic "
            f"coefficients vanish; take p = {PRIMES[0]}"
        )
    if exact_depth(prime) < products:
        enough = exact_depth(PRIMES[0]) >= products
        alternative = f"prime, such as {PRIMES[0]}" if enough else "width, fewer heads or fewer tokens"
        raise ConfigError(
            f"p: {products} products of residues mod {prime} must be added exactly in float64, which "
            f"allows {exact_depth(prime)}; take a smaller {alternative}"
        )
    return prime


def centre(values: Any, prime: int) -> FloatArray:
    """Convert integers of any type to centred residues in float64.

    >>> centre([0, 4, 7, -1], 7)
    array([ 0., -3.,  0., -1.])
    """
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            raise ConfigError(
                "a matrix over GF(p) must have integer entries; got fractions or non-finite values"
            )
        if array.size and np.abs(array).max() >= 2.0**53:
            raise ConfigError("float entries of 2^53 and more are not exact integers; pass an integer array")
        return _reduced(array.astype(np.float64, copy=False), prime)
    if array.dtype.kind not in "iuO":
        raise ConfigError(f"a matrix over GF(p) must have integer entries, got {array.dtype}")
    if array.dtype.kind == "u":  # unsigned subtraction would wrap around
        residue = (array % np.uint64(prime)).astype(np.int64)
    else:
        residue = (array % prime).astype(np.int64)
    return np.where(residue > prime // 2, residue - prime, residue).astype(np.float64)


def _reduced(x: FloatArray, prime: int) -> FloatArray:
    reduced: FloatArray = x - prime * np.rint(x * (1.0 / prime))
    return reduced


def inverse_mod(matrix: FloatArray, prime: int) -> FloatArray | None:
    """Return the inverse of a square matrix of residues, or None if the recursion meets a singular block.

    [[A, B], [C, D]] is inverted by A and its Schur complement D − C A⁻¹ B, so all work above 32 columns is
    matrix products. None means that the matrix or a leading block is singular; to distinguish them, eliminate
    with a search for pivots.
    """
    size = len(matrix)
    if size <= _BASE:
        return _gauss_jordan(matrix, prime)
    half = size // 2
    b, c, d = matrix[:half, half:], matrix[half:, :half], matrix[half:, half:]
    a_inverse = inverse_mod(matrix[:half, :half], prime)
    if a_inverse is None:
        return None
    right = _reduced(a_inverse @ b, prime)
    schur_inverse = inverse_mod(_reduced(d - c @ right, prime), prime)
    if schur_inverse is None:
        return None
    left = _reduced(c @ a_inverse, prime)
    corner = _reduced(schur_inverse @ left, prime)
    result = np.empty_like(matrix)
    result[:half, :half] = _reduced(a_inverse + right @ corner, prime)
    result[:half, half:] = _reduced(-right @ schur_inverse, prime)
    result[half:, :half] = -corner
    result[half:, half:] = schur_inverse
    return result


def _gauss_jordan(matrix: FloatArray, prime: int) -> FloatArray | None:
    size = len(matrix)
    work = np.concatenate([matrix, np.eye(size)], axis=1)
    for i in range(size):
        below = np.flatnonzero(work[i:, i])
        if not below.size:
            return None
        if below[0]:
            work[[i, i + below[0]]] = work[[i + below[0], i]]
        inverse = pow(int(work[i, i]) % prime, -1, prime)
        row = _reduced(work[i] * float(inverse), prime)
        work -= np.outer(work[:, i], row)
        work[i] = row
        work = _reduced(work, prime)
    return work[:, size:].copy()
