"""Training: the supervised loop, checkpoints that survive anything, run folders."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.training.archive import pack, unpack
    from plait.training.callbacks import Watcher
    from plait.training.catalogue import RunRecord, all_runs, find_run, load, read_run
    from plait.training.description import build, describe, run_id
    from plait.training.gradient_record import gradient_norms
    from plait.training.network import Network
    from plait.training.recipe import Recipe
    from plait.training.session import Fitted
    from plait.training.supervised import evaluate, fit

# Resolved when first used: the command line shows its help without loading torch.
_HOMES = {
    "Fitted": "session",
    "Network": "network",
    "Recipe": "recipe",
    "RunRecord": "catalogue",
    "Watcher": "callbacks",
    "all_runs": "catalogue",
    "build": "description",
    "describe": "description",
    "evaluate": "supervised",
    "find_run": "catalogue",
    "fit": "supervised",
    "gradient_norms": "gradient_record",
    "load": "catalogue",
    "pack": "archive",
    "read_run": "catalogue",
    "run_id": "description",
    "unpack": "archive",
}

__all__ = [
    "Fitted", "Network", "Recipe", "RunRecord", "Watcher", "all_runs", "build", "describe", "evaluate",
    "find_run", "fit", "gradient_norms", "load", "pack", "read_run", "run_id", "unpack",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plait.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"plait.training.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
