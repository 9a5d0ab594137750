"""The catalogue of experiments: every table and figure by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from plait.errors import ConfigError, check_choice, require
from plait.lab.experiments.bounded_text import bounded_text
from plait.lab.experiments.bounded_transformer import (
    bounded_delays,
    bounded_denoise,
    bounded_mqar,
    bounded_settings,
    bounded_transformer,
)
from plait.lab.experiments.depthwidth import depthwidth_figure1, depthwidth_tuned
from plait.lab.experiments.description import Experiment
from plait.lab.experiments.late_information import keeping
from plait.lab.experiments.late_information_search import keeping_settings
from plait.lab.experiments.like_for_like import like_for_like, like_for_like_search
from plait.lab.experiments.popgym import popgym, popgym_easy
from plait.lab.experiments.untangling import BY_RECIPE, FULL, ITEMS, SMOKE, Size
from plait.lab.own_code import by_name as own, is_own_name, name_of

__all__ = ["DATA_SETS", "by_name", "experiment_named", "experiments", "require_data"]


DATA_SETS = ("mnist", "ptb")  # can be downloaded
ENVIRONMENTS = ("minigrid", "popgym")  # requirements that an extra installs


_ITEMS: tuple[Callable[[Size], Experiment], ...] = (
    *ITEMS,
    keeping,
    keeping_settings,
    like_for_like,
    like_for_like_search,
    bounded_transformer,
    bounded_settings,
    bounded_delays,
    bounded_mqar,
    bounded_denoise,
    bounded_text,
    popgym,
    popgym_easy,
    depthwidth_figure1,
    depthwidth_tuned,
)
NAMES = tuple(function.__name__.replace("_", "-") for function in (*BY_RECIPE, *_ITEMS))
"""Names of all experiments; each is made by the function of its name."""


def experiments(smoke: bool = False, recipe: str = "published") -> dict[str, Experiment]:
    """Return every experiment by name."""
    return by_name(_build(name, smoke, recipe) for name in NAMES)


def _build(name: str, smoke: bool, recipe: str) -> Experiment:
    """Make one experiment, at its full size or as a smoke test."""
    size, index = SMOKE if smoke else FULL, NAMES.index(name)
    if index < len(BY_RECIPE):
        experiment = BY_RECIPE[index](size, recipe)
    else:
        experiment = _ITEMS[index - len(BY_RECIPE)](size)
    return dataclasses.replace(experiment, smoke=smoke)


def experiment_named(name: str, smoke: bool = False, recipe: str = "published") -> Experiment:
    """Return the experiment of this name; `require_data` checks that it can be run here.

    `module:name` is an experiment of the user's own.

    >>> experiment_named("table5").count
    216
    >>> experiment_named("table6")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown experiment 'table6': did you mean 'table9' or 'table8'? ...
    """
    if is_own_name(name):
        return _own_experiment(name, smoke, recipe)
    experiment = _build(check_choice(name, NAMES, "experiment"), smoke, recipe)
    if recipe != "published" and experiment == _build(name, smoke, "published"):
        raise ConfigError(f"--recipe {recipe} does not apply: {name} has one recipe")
    return experiment


def _own_experiment(name: str, smoke: bool, recipe: str) -> Experiment:
    """Return an experiment of the user's own; the models and tasks that it names are trusted with it."""
    experiment = own(name_of(name), "experiment")
    if not isinstance(experiment, Experiment):
        raise ConfigError(
            f"{name}: expected a plait.lab.experiments.Experiment, got {type(experiment).__name__}"
        )
    for option, is_set in (("--smoke", smoke), (f"--recipe {recipe}", recipe != "published")):
        if is_set:
            raise ConfigError(f"{option} does not apply: {name} has one size and one recipe")
    for run in experiment.runs:
        for part in (run.task, run.model):
            name_of(part["name"])
    return experiment


def require_data(experiment: Experiment) -> None:
    """Download the data set, or raise if it or an environment is unavailable, before anything is trained."""
    needs = experiment.needs
    if not needs:
        return
    if needs in ENVIRONMENTS:
        require(needs, "rl")
        return
    from plait.lab.tasks import sources

    for file in sources.MNIST if needs == "mnist" else sources.TREEBANK:
        sources.locate(file)


def by_name(several: Iterable[Experiment]) -> dict[str, Experiment]:
    """Return experiments by name; raise if two share one."""
    experiments: dict[str, Experiment] = {}
    for experiment in several:
        if experiment.name in experiments:
            raise ConfigError(f"two experiments are called {experiment.name!r}; rename one of them")
        experiments[experiment.name] = experiment
    return experiments
