"""What a bounded memory keeps: the plan, and what the recorded runs show of the published rule."""

from pathlib import Path

from plait.lab.experiments.catalogue import experiment_named
from plait.lab.report.gather import gather

RESULTS = Path(__file__).parents[3] / "results/memory"


def best_scores(archive, column):
    """The best evaluation of every run of copy after a lead-in of 60."""
    cells = [cell for group in gather([RESULTS / archive]) for cell in group.cells]
    runs = [run for cell in cells if (cell.row, cell.column) == ("lead-in 60", column) for run in cell.runs]
    return [max(mark.score for mark in run.marks) for run in runs]


def test_what_is_kept_decides_what_is_learned():
    """After a lead-in no run learns by the published rule, most by a learned score."""
    earned, learned = (best_scores("keeping.tar.gz", f"RelRNN {rule}") for rule in ("earned", "learned"))
    assert len(earned) == len(learned) >= 5
    assert max(earned) < 0.9
    assert sum(score >= 0.99 for score in learned) > len(learned) / 2


def test_the_plan_asks_for_every_lead_in_and_for_what_comes_late():
    rows = {run.row for run in experiment_named("keeping").runs}
    assert {f"lead-in {n}" for n in (0, 5, 20, 60, 200)} <= rows
    assert {"recall at step 60", "recall at any step", "denoise 1000", "mqar 64, 4 pairs"} <= rows
    assert {"denoise 100, tested at delay 1000", "mqar 64, 4 pairs, two steps later"} <= rows
    assert {"lead-in 60, tested at delay 1000", "lead-in 60, tested at delay 5000"} <= rows
