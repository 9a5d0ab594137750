"""Training: the supervised loop, checkpoints that survive anything, run folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lazy import lazily

if TYPE_CHECKING:
    from plait.lab.runs.archive import pack, unpack
    from plait.lab.runs.folder import run_id
    from plait.lab.runs.reading import RunRecord, all_runs, find_run, read_run
    from plait.lab.training.callbacks import Watcher
    from plait.lab.training.description import Network, build, describe
    from plait.lab.training.gradient_record import gradient_norms
    from plait.lab.training.recipe import Recipe
    from plait.lab.training.session import Fitted, load
    from plait.lab.training.supervised import evaluate, fit

# Resolved when first used: the command line shows its help without loading torch.
_HOMES = {
    "Fitted": "session",
    "Network": "description",
    "Recipe": "recipe",
    "RunRecord": "plait.lab.runs.reading",
    "Watcher": "callbacks",
    "all_runs": "plait.lab.runs.reading",
    "build": "description",
    "describe": "description",
    "evaluate": "supervised",
    "find_run": "plait.lab.runs.reading",
    "fit": "supervised",
    "gradient_norms": "gradient_record",
    "load": "session",
    "pack": "plait.lab.runs.archive",
    "read_run": "plait.lab.runs.reading",
    "run_id": "plait.lab.runs.folder",
    "unpack": "plait.lab.runs.archive",
}

__all__ = [
    "Fitted", "Network", "Recipe", "RunRecord", "Watcher", "all_runs", "build", "describe", "evaluate",
    "find_run", "fit", "gradient_norms", "load", "pack", "read_run", "run_id", "unpack",
]  # fmt: skip


__getattr__, __dir__ = lazily(__name__, _HOMES)
