"""Experiments: papers as data, and what runs them. Importing a description loads no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from plait.errors import ConfigError, known, require
from plait.experiments.depthwidth import DEPTHWIDTH
from plait.experiments.description import Experiment, PlannedRun
from plait.experiments.keeping import keeping
from plait.experiments.keeping_settings import keeping_settings
from plait.experiments.popgym import popgym, popgym_easy
from plait.experiments.untangling import BY_RECIPE, FULL, ITEMS, SMOKE

__all__ = ["DATA_SETS", "Experiment", "PlannedRun", "by_name", "experiment_named", "experiments"]


DATA_SETS = ("mnist", "ptb")  # what can be fetched
WORLDS = ("minigrid", "popgym")  # what can be installed


def experiments(smoke: bool = False, recipe: str = "published") -> dict[str, Experiment]:
    """Every experiment by its name, but for those with a runner of their own (`depthwidth-figure1`)."""
    size = SMOKE if smoke else FULL
    items = (*ITEMS, keeping, keeping_settings, popgym, popgym_easy)
    described = (*(item(size, recipe) for item in BY_RECIPE), *(item(size) for item in items))
    return by_name(dataclasses.replace(one, smoke=smoke) for one in described)


def experiment_named(name: str, smoke: bool = False, recipe: str = "published") -> Experiment:
    """One experiment that can be run.

    >>> experiment_named("table5").count
    216
    >>> experiment_named("table6")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown experiment 'table6': did you mean 'table9' or 'table8'? ...
    """
    found = experiments(smoke, recipe)
    experiment = found[known(name, (*found, *DEPTHWIDTH), "experiment")]
    if recipe != "published" and experiment == experiments(smoke)[name]:
        raise ConfigError(f"--recipe {recipe} does not apply: {name} has one recipe")
    _require(experiment.needs)
    return experiment


def _require(needs: str) -> None:
    """Fetch what an experiment needs, or say that it cannot be had, before anything is begun."""
    if not needs:
        return
    if needs in WORLDS:
        require(needs, "rl")
        return
    from plait.tasks import sources

    for file in sources.MNIST if needs == "mnist" else sources.TREEBANK:
        sources.locate(file)


def by_name(several: Iterable[Experiment]) -> dict[str, Experiment]:
    """Experiments under their names; two with one name are an error."""
    found: dict[str, Experiment] = {}
    for experiment in several:
        if experiment.name in found:
            raise ConfigError(f"two experiments are called {experiment.name!r}; rename one of them")
        found[experiment.name] = experiment
    return found
