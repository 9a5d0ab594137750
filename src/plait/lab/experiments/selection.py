"""Selection of a part of an experiment: some models, delays or rows; other seeds, fewer updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, check_choice, check_int
from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.own_code import is_own_name, name_of

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """Filters and replacements for an experiment's runs; empty fields keep everything as it is.

    `rows` and `columns` keep those whose name contains one of these words. `seeds` replaces the seeds,
    `updates` the number of updates, `steps` that of environment steps, `backend` the environments' backend,
    `text` the text that character networks are trained on.
    A model of the user's own, `module:name`, is trained on every row with the recipe of the row's first run.
    """

    models: tuple[str, ...] = ()
    delays: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    updates: int | None = None
    steps: float | None = None
    backend: str = ""
    text: tuple[str, ...] = ()

    @staticmethod
    def read(
        models: str = "", delays: str = "", rows: str = "", columns: str = "", seeds: str = "", **other: Any
    ) -> Selection:
        """Parse a selection from command-line options.

        >>> Selection.read("relrnn,lstm", "100, 200").delays
        (100, 200)
        """
        return Selection(
            _words(models),
            _numbers(delays, "delays"),
            _words(rows),
            _words(columns),
            _numbers(seeds, "seeds"),
            **other,
        )

    def of(self, experiment: Experiment) -> Experiment:
        """Return the experiment with the selected runs; raise for a name, delay or row it does not have."""
        if self.updates is not None:
            check_int(1, updates=self.updates)
        present = {run.model["name"] for run in experiment.runs}
        others = [name for name in self.models if name not in present]
        added = [run for name in others if is_own_name(name) for run in _runs_of(name, experiment)]
        for name in self.models:
            if not is_own_name(name):
                check_choice(name, present, f"model of {experiment.name}")
        for delay in self.delays:
            check_choice(
                str(delay),
                {str(run.task.get("delay")) for run in experiment.runs},
                f"delay of {experiment.name}",
            )
        _check_words(self.rows, [run.row for run in experiment.runs], f"row of {experiment.name}")
        _check_words(self.columns, [run.column for run in experiment.runs], f"column of {experiment.name}")
        runs = tuple(self._replaced(run) for run in (*experiment.runs, *added) if self._keeps(run))
        if not runs:
            raise ConfigError(
                f"{experiment.name} has no run with all of what was asked for; ask for less at once"
            )
        needs = "" if self.text else experiment.needs
        return dataclasses.replace(experiment, runs=runs, seeds=self.seeds or experiment.seeds, needs=needs)

    def _keeps(self, run: PlannedRun) -> bool:
        return (
            (not self.models or run.model["name"] in self.models)
            and (not self.delays or run.task.get("delay") in self.delays)
            and (not self.rows or any(word in run.row.lower() for word in self.rows))
            and (not self.columns or any(word in run.column.lower() for word in self.columns))
        )

    def _replaced(self, run: PlannedRun) -> PlannedRun:
        wanted = {"updates": self.updates, "total_timesteps": self.steps}
        recipe = {**run.recipe, **{name: value for name, value in wanted.items() if value is not None}}
        for name in recipe.keys() - run.recipe.keys():
            option = "steps" if name == "total_timesteps" else name
            raise ConfigError(
                f"--{option} does not apply: runs of this experiment are counted in {run.counted_in}"
            )
        task = run.task
        if self.backend:
            if "backend" not in task:
                raise ConfigError("--backend does not apply: this experiment has no environments")
            task = {**task, "backend": self.backend}
        if self.text:
            if task["name"] != "characters":
                raise ConfigError("--text does not apply: only the networks of depthwidth-… read any text")
            task = {**task, "text": [str(Path(path).resolve()) for path in self.text]}
        return dataclasses.replace(run, task=task, recipe=recipe)


def _runs_of(model: str, experiment: Experiment) -> Iterator[PlannedRun]:
    """Yield the runs of a model of the user's own: one for each row, with the recipe of its first run."""
    name_of(model)  # trusted, because the user typed it
    if any("hidden_size" not in run.model for run in experiment.runs):
        raise ConfigError(f"--models {model} does not apply: {experiment.name} compares shapes of networks")
    for run in {run.row: run for run in reversed(experiment.runs)}.values():
        size = {"hidden_size": run.model["hidden_size"]}
        yield dataclasses.replace(
            run,
            column=model.rpartition(":")[2],
            model={"name": model, **size},
            published=None,
            published_note="",
            trace=False,
        )


def _check_words(words: tuple[str, ...], names: list[str], what: str) -> None:
    """Refuse a word that no name contains."""
    for word in words:
        if not any(word in name.lower() for name in names):
            check_choice(word, dict.fromkeys(names), what)


def _words(text: str) -> tuple[str, ...]:
    words = (word.strip() for word in text.split(","))
    return tuple(word if is_own_name(word) else word.lower() for word in words if word)


def _numbers(text: str, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"{what}: expected whole numbers with commas between them, got {text!r}") from None
