"""Reports on the runs in folders: self-contained HTML pages, tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lazy import lazily

if TYPE_CHECKING:
    from plait.lab.report.demo import Plan, Result, results, run_demo
    from plait.lab.report.page import render
    from plait.lab.report.write import Written, write_report

# Imported on first use, so that the command line can print its help without loading torch.
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
