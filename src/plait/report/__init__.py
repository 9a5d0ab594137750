"""Pages a person can open: what runs on the disk show, as self-contained HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lazy import lazily

if TYPE_CHECKING:
    from plait.report.demo import Plan, Result, results, run_demo
    from plait.report.page import render
    from plait.report.write import Written, write_report

# Resolved when first used: the command line shows its help without loading torch.
_HOMES = {
    "Plan": "demo",
    "Result": "demo",
    "Written": "write",
    "render": "page",
    "results": "demo",
    "run_demo": "demo",
    "write_report": "write",
}

__all__ = ["Plan", "Result", "Written", "render", "results", "run_demo", "write_report"]


__getattr__, __dir__ = lazily(__name__, _HOMES)
