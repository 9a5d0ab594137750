"""Archived results are of the experiments as they are planned now: a changed setting is another run."""

import tarfile
from functools import cache
from pathlib import Path

import pytest

from plait.lab.experiments.catalogue import experiments
from plait.lab.experiments.plan import jobs_of

RESULTS = Path(__file__).parents[3] / "results"
# Archives and how many of their runs are planned: the others had other seeds or options, given by hand.
PLANNED = [
    ("depthwidth/depthwidth-figure1", "depthwidth-figure1", "published", 144),
    ("depthwidth-tuned/depthwidth-tuned", "depthwidth-tuned", "published", 118),
    ("memory/held-and-late", "keeping", "published", 217),
    ("memory/mqar", "keeping", "published", 24),
    ("memory/settings", "keeping-settings", "published", 80),
    ("popgym/popgym-1m", "popgym-easy", "published", 6),
    ("untangling/figure8", "figure8", "published", 3),
    ("untangling/figure8", "figure8", "plait", 5),
    ("untangling/figure3", "figure3", "published", 8),
    ("untangling/recipes", "recipes", "published", 28),
    ("untangling/table5", "table5", "published", 44),
    ("untangling/table5", "table5", "plait", 81),
    ("untangling/table8", "table8", "plait", 7),
    ("untangling/table9", "table9", "plait", 2),
    ("untangling/transfer", "transfer", "published", 11),
]


@cache
def planned(name, recipe):
    return {job.id for job in jobs_of(experiments(recipe=recipe)[name], Path("runs"))}


@pytest.mark.parametrize(("archive", "name", "recipe", "expected"), PLANNED)
def test_archived_runs_are_still_planned(archive, name, recipe, expected):
    with tarfile.open(RESULTS / f"{archive}.tar.gz") as runs:
        archived = {Path(file).parent.name for file in runs.getnames() if file.endswith("/config.json")}
    assert len(archived & planned(name, recipe)) == expected


@pytest.mark.parametrize("recipe", ["published", "plait"])
def test_an_experiment_counts_updates_to_a_score_that_can_be_reached(recipe):
    """Scores are shares; of depth against width they are log-likelihoods."""
    for one in experiments(recipe=recipe).values():
        assert one.updates_to < 0 if one.kind in ("shapes", "rates") else 0 < one.updates_to <= 1
