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


def test_learned_and_earned_relevance_differ_in_nothing_else():
    """Only the searched rate and what a learned relevance alone has may differ between a cell's rules."""
    of_the_rule = {"relevance", "noise", "usage"}
    cells = {}
    for run in experiment_named("like-for-like").runs:
        model = {name: value for name, value in run.model.items() if name not in of_the_rule}
        recipe = {name: value for name, value in run.recipe.items() if name != "lr"}
        cells.setdefault((run.row, run.column.split()[0]), []).append((run.task, model, recipe))
    assert len(cells) == 10
    assert all(earned == learned for earned, learned in cells.values())


def test_the_search_has_other_seeds_and_another_lead_in_and_the_settings_of_the_comparison():
    search, compared = experiment_named("like-for-like-search"), experiment_named("like-for-like")
    assert not set(search.seeds) & set(compared.seeds)
    lead_ins = [{run.task.get("lead_in", 0) for run in one.runs} for one in (search, compared)]
    assert not lead_ins[0] & lead_ins[1]
    searched = [(run.model, run.recipe["lr"]) for run in search.runs]
    assert all((run.model, run.recipe["lr"]) in searched for run in compared.runs)
