"""Numbers beyond the range of float64: a mantissa and a power of two.

With an eigenvalue of 0.99 the gradient under uniform attention grows like T^98, and along a chain of
recurrent steps it shrinks like 0.1^T. Both leave the range of float64 long before T = 10^7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError

__all__ = ["Scaled", "normalise", "rescale"]


@dataclass(frozen=True)
class Scaled:
    """Array of numbers `mantissa · 2**exponent`.

    >>> huge = Scaled(np.array([1.0 + 0j]), np.array([2000]))
    >>> round(float(huge.log_abs[0]), 6)  # 2000 ln 2
    1386.294361
    """

    mantissa: NDArray[np.complex128]
    exponent: NDArray[np.int64]

    @property
    def log_abs(self) -> NDArray[np.float64]:
        """Natural logarithm of the modulus; minus infinity where the number is exactly 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.abs(self.mantissa)) + self.exponent * np.log(2.0))

    @property
    def values(self) -> NDArray[np.complex128]:
        """Plain complex numbers; moduli below 1e-308 become 0.

        Raises:
            ConfigError: if a value is too large for float64.
        """
        if np.any(self.log_abs > np.log(np.finfo(np.float64).max)):
            raise ConfigError("a value exceeds 1e308: read .log_abs instead of .values")
        exponent = self.exponent.astype(np.int32)
        real, imag = np.ldexp(self.mantissa.real, exponent), np.ldexp(self.mantissa.imag, exponent)
        return np.asarray(real + 1j * imag)

    def __getitem__(self, key: Any) -> Scaled:
        return Scaled(self.mantissa[key], self.exponent[key])

    def times(self, factor: complex) -> Scaled:
        """Return the numbers multiplied by `factor`."""
        return Scaled(*normalise(self.mantissa * factor, self.exponent))


def normalise(
    mantissa: NDArray[np.complex128], exponent: NDArray[np.int64]
) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    """Bring every mantissa near 1 and adjust its exponent; exact, as it multiplies by a power of two."""
    scaled, moved = rescale(mantissa[..., None], exponent)
    return scaled[..., 0], moved


def rescale(
    values: NDArray[np.complex128], exponent: NDArray[np.int64]
) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    """Normalise in groups: all of `values` (…, width) that share an `exponent` (…) are scaled together."""
    size = np.maximum(np.abs(values.real), np.abs(values.imag)).max(axis=-1)
    # One step can scale by 2^±1000 without leaving float64; denormal numbers would need more.
    shift = np.clip(np.frexp(size)[1], -1000, 1000).astype(np.int64)
    return values * np.ldexp(1.0, -shift)[..., None], exponent + shift
