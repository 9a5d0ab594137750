"""States kept by the two relevance rules when relevant inputs come late: recorded numbers, drawn for pages.

The numbers are from two runs of `plait reproduce keeping --rows "lead-in 60"`, each with the best settings
for its rule; `docs/figures/make_keeping.py` records them again from the run folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from plait.lab.figures import Curve, draw_curves
from plait.lab.runs.reading import read_run
from plait.lab.tasks import task_named
from plait.lab.tasks.ten_symbols import SYMBOLS
from plait.lab.training.session import load
from plait.table import percent

__all__ = ["RECORD", "draw_kept", "kept_caption", "record_kept", "recorded"]

RECORD = Path(__file__).with_name("slot_example.json")
RULES = ("earned", "learned")
_SEQUENCES = 256
_QUESTION = "at the question"


def recorded() -> dict[str, Any]:
    """Load the record: the task, and for each rule the shares by step, the score and the updates."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def record_kept(runs: Mapping[str, Path]) -> dict[str, Any]:
    """Compute, for each rule, which steps' states are kept until the question, and the accuracy.

    The share of a step is the share of held-out sequences whose memory holds its state beyond the window.
    """
    rules = {}
    for rule in RULES:
        run = read_run(runs[rule])
        network, task = load(runs[rule]), task_named(**run.description["task"])
        batch = task.batch(_SEQUENCES, torch.Generator().manual_seed(1))
        with torch.no_grad():
            logits, _, (trace,) = network.eval()(batch.inputs, need_trace=True)
        question = len(batch.inputs) - SYMBOLS
        born = trace.born[question - 1][:, run.description["model"]["window"] :]
        shares = [(born == step).any(dim=1).float().mean().item() for step in range(question)]
        rules[rule] = {
            "shares": [round(share, 4) for share in shares],
            "score": round(task.score(logits, batch.targets).item(), 4),
            "updates": run.updates,
        }
    return {"task": task.options(), "slots": born.shape[1], "sequences": _SEQUENCES, "rules": rules}


def draw_kept(record: dict[str, Any], size: tuple[float, float]) -> Any:
    """Draw the shares against the step, and mark the steps of the symbols."""
    curves = []
    for color, rule in enumerate(RULES):
        values = record["rules"][rule]
        steps = range(1, len(values["shares"]) + 1)
        label = f"{rule}: {percent(values['score'])} of symbols correct"
        curves.append(Curve(steps, [100 * share for share in values["shares"]], label, "solid", color))
    first = record["task"]["lead_in"] + 1
    curves.append(Curve([first, first + SYMBOLS - 1], [106, 106], "the symbols", "dotted", 7))
    return draw_curves(
        curves, x_label="step", y_label=f"kept {_QUESTION} (% of sequences)", y_range=(0, 112), size=size
    )


def kept_caption(record: dict[str, Any]) -> str:
    """Describe the figure in sentences computed from the record."""
    lead, slots = record["task"]["lead_in"], record["slots"]
    earned, learned = (record["rules"][rule] for rule in RULES)
    before, after = (sum(rule["shares"][:lead]) for rule in (earned, learned))
    return (
        f"Steps whose states are in the {slots} slots beyond the window {_QUESTION}, in two RelRNNs trained "
        f"on copy after a lead-in of {lead} blanks (recorded, {record['sequences']} sequences). The "
        f"published rule, earned, spends {before:.1f} of the slots on the lead-in, because early states "
        f"share the attention with few others and earn more: {percent(earned['score'])} of the symbols are "
        f'correct after {earned["updates"]:,} updates. With relevance="learned" a score decides, which is '
        f"trained by attention: {after:.1f} slots hold the lead-in, {percent(learned['score'])} are correct "
        f"after {learned['updates']:,}."
    )
