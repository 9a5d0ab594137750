"""Where residues live: numpy arrays, or torch tensors on a GPU. One small vocabulary for both.

All arrays hold centred residues in float64 (see `field`); the four operations below are everything the
elimination and the evaluation of networks need, so both are written once.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from plait.depthwidth.rank.field import FloatArray
from plait.errors import BackendError, require

__all__ = ["Arrays", "NumpyArrays", "TorchArrays", "arrays_on", "usable_cores"]


class Arrays(Protocol):
    """The operations of one home of residues; `p` is the prime."""

    name: str
    tile: int  # entries of a tile of the evaluation, chosen for the cache or the card

    def hold(self, array: FloatArray) -> Any:
        """A numpy array, brought here."""

    def fetch(self, array: Any) -> FloatArray:
        """An array from here, as numpy."""

    def empty(self, *shape: int) -> Any: ...

    def reduce_(self, array: Any, p: int) -> Any:
        """Centred residues, in place: x ← x − p·round(x/p)."""

    def matmul(self, a: Any, b: Any, out: Any | None = None) -> Any:
        """Batched matrix product, without reduction."""

    def subtract_product_(self, x: Any, a: Any, b: Any, p: int) -> None:
        """x ← x − a b mod p, in place; the inner dimension is at most `exact_depth(p)`."""

    def replace_by_product_(self, x: Any, a: Any, p: int) -> None:
        """x ← a x mod p, in place."""

    def first_nonzero(self, row: Any) -> int:
        """Index of the first entry that is not 0, or −1."""


class NumpyArrays:
    """numpy in main memory; matrix products use the threads of its BLAS."""

    name = "cpu"
    tile = 128 * 128
    _scratch = 1 << 15  # elements reduced at a time: stays in the second-level cache
    _columns = 512

    def hold(self, array: FloatArray) -> FloatArray:
        return np.ascontiguousarray(array)

    def fetch(self, array: FloatArray) -> FloatArray:
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
        found = np.flatnonzero(row)
        return int(found[0]) if found.size else -1


class TorchArrays:
    """torch float64, on the CPU (for tests) or on a GPU; nothing is copied to the host but pivot blocks."""

    _columns = 1 << 15

    def __init__(self, device: str) -> None:
        self._torch = require("torch", "torch")
        try:
            self._device = self._torch.device(device)
            self._torch.zeros(1, device=self._device).cpu()  # a device of no memory has nothing to give back
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise BackendError(f"device {device!r} cannot be used here: {reason}") from error
        self.name = f"torch {self._device}"
        self.tile = 1 << 22 if self._device.type == "cuda" else 1 << 14

    def hold(self, array: FloatArray) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def fetch(self, array: Any) -> FloatArray:
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
        found = row.nonzero()
        return int(found[0, 0]) if len(found) else -1


def arrays_on(device: str | None) -> Arrays:
    """numpy for None or "cpu"; torch for "cuda", "cuda:1" … and, to test that path, "torch:cpu"."""
    if device in (None, "cpu"):
        return NumpyArrays()
    assert device is not None
    return TorchArrays(device.removeprefix("torch:"))


def usable_cores() -> int:
    """Threads to share a tile loop among: OMP_NUM_THREADS where set, else the cores we may run on."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
