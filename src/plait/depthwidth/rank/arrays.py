"""Array backends for residues: numpy arrays, or torch tensors on a GPU, behind one interface.

All arrays hold centred residues in float64 (see `field`). The operations below are all that elimination and
the evaluation of networks need, so both are written once.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from plait.depthwidth.rank.field import FloatArray
from plait.errors import BackendError, require

__all__ = ["Arrays", "NumpyArrays", "TorchArrays", "arrays_on", "usable_cores"]


class Arrays(Protocol):
    """Interface of an array backend; `p` is the prime."""

    name: str
    tile: int  # entries per tile of the evaluation, chosen for the CPU cache or the GPU

    def from_numpy(self, array: FloatArray) -> Any:
        """Convert a numpy array to an array of this backend."""

    def to_numpy(self, array: Any) -> FloatArray:
        """Convert an array of this backend to numpy."""

    def empty(self, *shape: int) -> Any: ...

    def reduce_(self, array: Any, p: int) -> Any:
        """Reduce to centred residues, in place: x ← x − p·round(x/p)."""

    def matmul(self, a: Any, b: Any, out: Any | None = None) -> Any:
        """Return the batched matrix product, without reduction."""

    def subtract_product_(self, x: Any, a: Any, b: Any, p: int) -> None:
        """Update x ← x − a b mod p, in place; the inner dimension is at most `exact_depth(p)`."""

    def replace_by_product_(self, x: Any, a: Any, p: int) -> None:
        """Update x ← a x mod p, in place."""

    def first_nonzero(self, row: Any) -> int:
        """Return the index of the first nonzero entry, or −1."""


class NumpyArrays:
    """Backend for numpy arrays in main memory; matrix products use the threads of its BLAS."""

    name = "cpu"
    tile = 128 * 128
    _scratch = 1 << 15  # elements reduced at a time, so that they stay in the L2 cache
    _columns = 512

    def from_numpy(self, array: FloatArray) -> FloatArray:
        return np.ascontiguousarray(array)

    def to_numpy(self, array: FloatArray) -> FloatArray:
        return np.ascontiguousarray(array)

    def empty(self, *shape: int) -> FloatArray:
        return np.empty(shape)

    def reduce_(self, array: FloatArray, p: int) -> FloatArray:
        if not array.flags.c_contiguous:
            raise AssertionError("reduce_ works in place and needs a contiguous array")
        flat = array.reshape(-1)
        scratch = np.empty(min(self._scratch, flat.size))
        inverse = 1.0 / p
        for i in range(0, flat.size, self._scratch):
            part = flat[i : i + self._scratch]
            quotient = scratch[: part.size]
            np.multiply(part, inverse, out=quotient)
            np.rint(quotient, out=quotient)
            np.multiply(quotient, p, out=quotient)
            np.subtract(part, quotient, out=part)
        return array

    def matmul(self, a: FloatArray, b: FloatArray, out: FloatArray | None = None) -> FloatArray:
        product: FloatArray = np.matmul(a, b, out=out)
        return product

    def subtract_product_(self, x: FloatArray, a: FloatArray, b: FloatArray, p: int) -> None:
        for i in range(0, x.shape[1], self._columns):
            part = x[:, i : i + self._columns]
            product = a @ b[:, i : i + self._columns]
            np.subtract(part, product, out=product)
            part[...] = self.reduce_(product, p)

    def replace_by_product_(self, x: FloatArray, a: FloatArray, p: int) -> None:
        for i in range(0, x.shape[1], self._columns):
            part = x[:, i : i + self._columns]
            part[...] = self.reduce_(a @ part, p)

    def first_nonzero(self, row: FloatArray) -> int:
        indices = np.flatnonzero(row)
        return int(indices[0]) if indices.size else -1


class TorchArrays:
    """Backend for float64 torch tensors on a GPU (the CPU in tests); only pivot blocks go to the host."""

    _columns = 1 << 15

    def __init__(self, device: str) -> None:
        self._torch = require("torch", "torch")
        try:
            self._device = self._torch.device(device)
            self._torch.zeros(1, device=self._device).cpu()  # fails on the meta device, which has no data
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise BackendError(f"device {device!r} cannot be used here: {reason}") from error
        self.name = f"torch {self._device}"
        self.tile = 1 << 22 if self._device.type == "cuda" else 1 << 14

    def from_numpy(self, array: FloatArray) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def to_numpy(self, array: Any) -> FloatArray:
        host: FloatArray = array.contiguous().cpu().numpy()
        return host

    def empty(self, *shape: int) -> Any:
        return self._torch.empty(shape, dtype=self._torch.float64, device=self._device)

    def reduce_(self, array: Any, p: int) -> Any:
        return array.sub_((array * (1.0 / p)).round_(), alpha=p)

    def matmul(self, a: Any, b: Any, out: Any | None = None) -> Any:
        product = self._torch.matmul(a, b)
        return product if out is None else out.copy_(product)

    def subtract_product_(self, x: Any, a: Any, b: Any, p: int) -> None:
        for i in range(0, x.shape[1], self._columns):
            part = x[:, i : i + self._columns]
            part.addmm_(a, b[:, i : i + self._columns], alpha=-1)
            self.reduce_(part, p)

    def replace_by_product_(self, x: Any, a: Any, p: int) -> None:
        for i in range(0, x.shape[1], self._columns):
            part = x[:, i : i + self._columns]
            part.copy_(self.reduce_(a @ part, p))

    def first_nonzero(self, row: Any) -> int:
        indices = row.nonzero()
        return int(indices[0, 0]) if len(indices) else -1


def arrays_on(device: str | None) -> Arrays:
    """Return numpy for None or "cpu"; torch for "cuda", "cuda:1" … and, for tests, "torch:cpu"."""
    if device in (None, "cpu"):
        return NumpyArrays()
    assert device is not None
    return TorchArrays(device.removeprefix("torch:"))


def usable_cores() -> int:
    """Return the number of threads for a loop over tiles: OMP_NUM_THREADS, or the cores of this process."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
