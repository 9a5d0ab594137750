"""Which backend runs a scan: what each needs, and what `auto` prefers."""

from __future__ import annotations

import importlib
import warnings
from functools import lru_cache

import torch
from torch import Tensor

from plait.errors import BackendError, known
from plait.ops.attentive_scan.contract import CellScan
from plait.ops.attentive_scan.fused import MODULES
from plait.ops.operator import SCANS

__all__ = ["BACKENDS", "choose_backend", "missing", "resolve"]

BACKENDS = ("auto", "reference", *MODULES)
# what "auto" tries on a kind of device before plain torch, which runs anywhere
_PREFERRED = {"cpu": "cpu", "cuda": "triton"}


def choose_backend(tensor: Tensor, scan: CellScan, of: str = "attentive_scan") -> str:
    """What `backend="auto"` runs for a projected input like `tensor` (T, B, G·H) and the scan `of` that name.

    >>> from plait.ops.attentive_scan import Scan
    >>> choose_backend(torch.zeros(3, 2, 8), Scan("elman", window=2)) in ("cpu", "torch")
    True
    """
    return resolve("auto", tensor, scan, of)


def resolve(backend: str, tensor: Tensor, scan: CellScan, of: str = "attentive_scan") -> str:
    """The name of the backend that runs the scan `of`; `BackendError` if the one asked for cannot."""
    size = tensor.shape[-1] // scan.gates
    name: str = _resolve(backend, tensor.device.type, str(tensor.dtype), scan.cell, scan.width, size, of)
    return name


def missing(
    backend: str,
    device: str,
    dtype: torch.dtype,
    cell: str,
    width: int | None,
    size: int,
    of: str = "attentive_scan",
) -> str | None:
    """Why a fused backend cannot run such a scan, or None if it can.

    A backend's module answers by its own `missing` of the arguments from `device` to `size`.
    """
    try:
        module = importlib.import_module(SCANS[of].modules[backend])
    except ImportError as error:
        return f"it cannot be imported ({error})"
    reason: str | None = module.missing(device, dtype, cell, width, size)
    return reason


# A constant to torch.compile: it depends on nothing a graph changes, and may import, build and warn.
@torch.compiler.assume_constant_result
def _resolve(backend: str, device: str, dtype: str, cell: str, width: int | None, size: int, of: str) -> str:
    return _resolved(backend, device, dtype, cell, width, size, of)


@lru_cache
def _resolved(backend: str, device: str, dtype: str, cell: str, width: int | None, size: int, of: str) -> str:
    known(backend, BACKENDS, "backend")
    if backend == "reference":
        return backend
    asked = _PREFERRED.get(device, "torch") if backend == "auto" else backend
    reason = missing(asked, device, getattr(torch, dtype.removeprefix("torch.")), cell, width, size, of)
    if reason is None:
        return asked
    if backend != "auto":
        raise BackendError(f"backend {asked!r} cannot run here: {reason}; use backend='auto'")
    _warn_once(asked, reason, of)
    return "torch"


@lru_cache
def _warn_once(backend: str, reason: str, of: str) -> None:
    warnings.warn(
        f"{of}: backend {backend!r} cannot run here: {reason}; plain torch runs instead, slower",
        stacklevel=2,
    )
