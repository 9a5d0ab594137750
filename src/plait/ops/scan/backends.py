"""The choice of a scan's backend: what each requires, what `auto` prefers, and a record of what ran."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from plait.errors import BackendError, check_choice
from plait.ops.scan.kinds import CellScan

__all__ = [
    "BACKENDS",
    "MODULES",
    "PREFERRED",
    "choose_backend",
    "missing",
    "module_of",
    "record_backends",
    "recorded",
    "resolve",
    "resolve_for",
    "rule_out",
]

_recordings: list[list[str]] = []
# a fused backend's name → its module in a scan's folder, imported on first use
MODULES = {"cpu": "cpu", "torch": "torch_scan", "triton": "triton_scan", "cluster": "cluster_scan"}
BACKENDS = ("auto", "reference", *MODULES)
# the order in which "auto" tries backends on a type of device, before plain torch, which runs anywhere
PREFERRED = {"cpu": ("cpu",), "cuda": ("cluster", "triton")}


def choose_backend(tensor: Tensor, scan: CellScan) -> str:
    """Return the backend that "auto" chooses for a projected input like `tensor` (T, B, G·H).

    >>> from plait.ops.attentive_scan import Scan
    >>> choose_backend(torch.zeros(3, 2, 8), Scan("elman", window=2)) in ("cpu", "torch")
    True
    """
    return resolve("auto", tensor, scan)


def resolve(backend: str, tensor: Tensor, scan: CellScan) -> str:
    """Return the name of the backend that runs a scan; `BackendError` if the requested one cannot."""
    return resolve_for(backend, str(tensor.device), str(tensor.dtype), tensor.shape[-1] // scan.gates, scan)


def resolve_for(backend: str, device: str, dtype: str, size: int, scan: CellScan) -> str:
    """Return the same as `resolve`, for hidden states of `size` features; `device` as "cpu" or "cuda:1"."""
    name: str = _resolve(backend, device, dtype, scan.cell, scan.width, size, scan.name)
    return name


def rule_out(backend: str, device: str, dtype: str, size: int, scan: CellScan, reason: Exception) -> None:
    """Exclude a backend that failed from `backend="auto"` for such a scan; warn once, with the reason."""
    key = (device, dtype, scan.cell, scan.width, size, scan.name)
    _ruled_out.setdefault(key, set()).add(backend)
    _resolved.cache_clear()
    instead = resolve_for("auto", device, dtype, size, scan)
    _warn_once(backend, str(reason), scan.name, instead)


# by device, type, cell, width, size and scan: the backends that failed there
_ruled_out: dict[tuple[object, ...], set[str]] = {}


@lru_cache
def module_of(backend: str, of: str) -> Any:
    """Return the module with a backend of the scan of this name."""
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
    """Return why a fused backend cannot run such a scan, None if it can.

    A backend's module has its own `missing` with the arguments from `device` to `size`.
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
    check_choice(backend, BACKENDS, "backend")
    if backend == "reference":
        return backend
    kind = getattr(torch, dtype.removeprefix("torch."))
    failed = _ruled_out.get((device, dtype, cell, width, size, of), set()) if backend == "auto" else set()
    for candidate in PREFERRED.get(device.partition(":")[0], ("torch",)) if backend == "auto" else (backend,):
        if candidate in failed:
            continue
        reason = missing(candidate, device, kind, cell, width, size, of)
        if reason is None:
            return candidate
    if backend != "auto":
        raise BackendError(f"backend {candidate!r} cannot run here: {reason}; use backend='auto'")
    if not failed:  # after a failure the warning has already given the reason that matters
        _warn_once(candidate, str(reason), of, "torch")
    return "torch"


@lru_cache
def _warn_once(backend: str, reason: str, of: str, instead: str) -> None:
    slower = "plain torch runs instead, slower" if instead == "torch" else f"{instead!r} runs instead"
    warnings.warn(f"{of}: backend {backend!r} cannot run here: {reason}; {slower}", stacklevel=2)


@contextlib.contextmanager
def record_backends() -> Iterator[list[str]]:
    """Collect the names of the backends that really run, in order, forward passes only.

    >>> with record_backends() as ran:
    ...     pass
    >>> ran
    []
    """
    ran: list[str] = []
    _recordings.append(ran)
    try:
        yield ran
    finally:
        _recordings.remove(ran)


def recorded(name: str) -> str:
    """Record in every active context that a forward pass runs on this backend."""
    for ran in _recordings:
        ran.append(name)
    return name
