"""A part of an experiment: some models, some delays, other seeds, fewer updates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from plait.errors import ConfigError, known, whole
from plait.experiments.description import Experiment

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """What to keep; an empty part keeps everything. `seeds` replaces the seeds, `updates` their number."""

    models: tuple[str, ...] = ()
    delays: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    updates: int | None = None

    @staticmethod
    def read(models: str = "", delays: str = "", seeds: str = "", updates: int | None = None) -> Selection:
        """From words on a command line.

        >>> Selection.read("relrnn,lstm", "100, 200").delays
        (100, 200)
        """
        names = tuple(name.strip().lower() for name in models.split(",") if name.strip())
        return Selection(names, _numbers(delays, "delays"), _numbers(seeds, "seeds"), updates)

    def of(self, experiment: Experiment) -> Experiment:
        """The experiment with what was selected; a name or delay it does not have is an error."""
        for name in self.models:
            known(name, {run.model["name"] for run in experiment.runs}, f"model of {experiment.name}")
        for delay in self.delays:
            known(
                str(delay),
                {str(run.task.get("delay")) for run in experiment.runs},
                f"delay of {experiment.name}",
            )
        runs = tuple(
            run
            for run in experiment.runs
            if (not self.models or run.model["name"] in self.models)
            and (not self.delays or run.task.get("delay") in self.delays)
        )
        if self.updates is not None:
            whole(1, updates=self.updates)
            runs = tuple(
                dataclasses.replace(run, recipe={**run.recipe, "updates": self.updates}) for run in runs
            )
        return dataclasses.replace(experiment, runs=runs, seeds=self.seeds or experiment.seeds)


def _numbers(text: str, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"{what}: expected whole numbers with commas between them, got {text!r}") from None
