"""Which backend runs a scan: what each needs, and what `auto` prefers."""

from __future__ import annotations

import importlib
import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from plait.errors import BackendError, known
from plait.ops.scan.kinds import CellScan

__all__ = [
    "BACKENDS", "MODULES", "PREFERRED", "choose_backend", "missing", "module_of", "resolve", "resolve_for",
]  # fmt: skip

# a fused backend's name and the file of a scan's room that is it, imported on first use
MODULES = {"cpu": "cpu", "torch": "torch_scan", "triton": "triton_scan", "cluster": "cluster_scan"}
BACKENDS = ("auto", "reference", *MODULES)
# what "auto" tries on a kind of device, in this order, before plain torch, which runs anywhere
PREFERRED = {"cpu": ("cpu",), "cuda": ("cluster", "triton")}


def choose_backend(tensor: Tensor, scan: CellScan) -> str:
    """What `backend="auto"` runs for a projected input like `tensor` (T, B, G·H).

    >>> from plait.ops.attentive_scan import Scan
    >>> choose_backend(torch.zeros(3, 2, 8), Scan("elman", window=2)) in ("cpu", "torch")
    True
    """
    return resolve("auto", tensor, scan)


def resolve(backend: str, tensor: Tensor, scan: CellScan) -> str:
    """The name of the backend that runs a scan; `BackendError` if the one asked for cannot."""
    return resolve_for(backend, tensor.device.type, str(tensor.dtype), tensor.shape[-1] // scan.gates, scan)


def resolve_for(backend: str, device: str, dtype: str, size: int, scan: CellScan) -> str:
    """The same by what it depends on, for hidden states of `size` features."""
    name: str = _resolve(backend, device, dtype, scan.cell, scan.width, size, scan.name)
    return name


@lru_cache
def module_of(backend: str, of: str) -> Any:
    """The module that runs the scan of this name."""
    return importlib.import_module(f"plait.ops.{of}.{MODULES[backend]}")


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
        module = module_of(backend, of)
    except ModuleNotFoundError as error:
        if error.name == f"plait.ops.{of}.{MODULES[backend]}":
            return f"{of} has no kernels of this kind"
        return f"it cannot be imported ({error})"
    except ImportError as error:
        return f"it cannot be imported ({error})"
    reason: str | None = module.missing(device, dtype, cell, width, size)
    return reason


def _resolve(backend: str, device: str, dtype: str, cell: str, width: int | None, size: int, of: str) -> str:
    return _resolved(backend, device, dtype, cell, width, size, of)


# A constant to torch.compile: it depends on nothing a graph changes, and may import, build and warn. The mark
# is what torch.compiler.assume_constant_result sets; the decorator itself would import the whole compiler.
_resolve._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache
def _resolved(backend: str, device: str, dtype: str, cell: str, width: int | None, size: int, of: str) -> str:
    known(backend, BACKENDS, "backend")
    if backend == "reference":
        return backend
    kind = getattr(torch, dtype.removeprefix("torch."))
    for asked in PREFERRED.get(device, ("torch",)) if backend == "auto" else (backend,):
        reason = missing(asked, device, kind, cell, width, size, of)
        if reason is None:
            return asked
    if backend != "auto":
        raise BackendError(f"backend {asked!r} cannot run here: {reason}; use backend='auto'")
    _warn_once(asked, str(reason), of)
    return "torch"


@lru_cache
def _warn_once(backend: str, reason: str, of: str) -> None:
    warnings.warn(
        f"{of}: backend {backend!r} cannot run here: {reason}; plain torch runs instead, slower",
        stacklevel=2,
    )
