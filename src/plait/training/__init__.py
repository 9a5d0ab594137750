"""Training: the supervised loop, checkpoints that survive anything, run folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lazy import lazily

if TYPE_CHECKING:
    from plait.runs.archive import pack, unpack
    from plait.runs.folder import run_id
    from plait.runs.reading import RunRecord, all_runs, find_run, read_run
    from plait.training.callbacks import Watcher
    from plait.training.description import Network, build, describe
    from plait.training.gradient_record import gradient_norms
    from plait.training.recipe import Recipe
    from plait.training.session import Fitted, load
    from plait.training.supervised import evaluate, fit

# Resolved when first used: the command line shows its help without loading torch.
_HOMES = {
    "Fitted": "session",
    "Network": "description",
    "Recipe": "recipe",
    "RunRecord": "plait.runs.reading",
    "Watcher": "callbacks",
    "all_runs": "plait.runs.reading",
    "build": "description",
    "describe": "description",
    "evaluate": "supervised",
    "find_run": "plait.runs.reading",
    "fit": "supervised",
    "gradient_norms": "gradient_record",
    "load": "session",
    "pack": "plait.runs.archive",
    "read_run": "plait.runs.reading",
    "run_id": "plait.runs.folder",
    "unpack": "plait.runs.archive",
}

__all__ = [
    "Fitted", "Network", "Recipe", "RunRecord", "Watcher", "all_runs", "build", "describe", "evaluate",
    "find_run", "fit", "gradient_norms", "load", "pack", "read_run", "run_id", "unpack",
]  # fmt: skip


__getattr__, __dir__ = lazily(__name__, _HOMES)
