"""What either rule keeps where what matters comes late: recorded of a trained pair, drawn for pages.

The numbers are of two runs of `plait reproduce keeping --rows "lead-in 60"`, each trained as its rule learns
best; `docs/figures/make_keeping.py` records them anew from their folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from plait.figures import Curve, draw_curves
from plait.result import percent
from plait.tasks import task_named
from plait.tasks.ten_symbols import SYMBOLS
from plait.training import load, read_run

__all__ = ["RECORD", "draw_kept", "kept_caption", "record_kept", "recorded"]

RECORD = Path(__file__).with_name("kept.json")
RULES = ("earned", "learned")
_SEQUENCES = 256
_QUESTION = "at the question"


def recorded() -> dict[str, Any]:
    """What was recorded: the task, and of each rule the shares of its steps, the score, the updates."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def record_kept(runs: Mapping[str, Path]) -> dict[str, Any]:
    """For each rule and every step before the question, the share of held-out sequences whose memory holds
    it beyond the window; and how many symbols were named rightly."""
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


def draw_kept(found: dict[str, Any], size: tuple[float, float]) -> Any:
    """Shares against the step, and where the symbols were."""
    curves = []
    for place, rule in enumerate(RULES):
        one = found["rules"][rule]
        steps = range(1, len(one["shares"]) + 1)
        label = f"{rule}: {percent(one['score'])} of symbols right"
        curves.append(Curve(steps, [100 * share for share in one["shares"]], label, "solid", place))
    first = found["task"]["lead_in"] + 1
    curves.append(Curve([first, first + SYMBOLS - 1], [106, 106], "the symbols", "dotted", 7))
    return draw_curves(
        curves, x_label="step", y_label=f"held {_QUESTION} (% of sequences)", y_range=(0, 112), size=size
    )


def kept_caption(found: dict[str, Any]) -> str:
    """What is seen, in words that are true of these numbers."""
    lead, slots = found["task"]["lead_in"], found["slots"]
    earned, learned = (found["rules"][rule] for rule in RULES)
    before, after = (sum(one["shares"][:lead]) for one in (earned, learned))
    return (
        f"Which steps hold the {slots} slots beyond the window {_QUESTION}, in two RelRNNs trained on copy "
        f"after a lead-in of {lead} blanks (recorded, {found['sequences']} sequences). The published rule, "
        f"earned, spends {before:.1f} of the slots on the lead-in, because early states share the attention "
        f"with few others and earn more: {percent(earned['score'])} of the symbols right after "
        f'{earned["updates"]:,} updates. With relevance="learned" a score decides that reading trains: '
        f"{after:.1f} slots hold the lead-in, {percent(learned['score'])} right after {learned['updates']:,}."
    )
