"""Schema of an experiment: a paper's table or figure as plain, frozen data. No torch, no clock, no path.

Plain dataclasses; `plait.lab.strict.parse` parses them from JSON and refuses unknown and missing keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from plait.errors import ConfigError, check_choice, check_seed

__all__ = ["MEANS_NOTHING", "Experiment", "Kind", "PlannedRun"]

MEANS_NOTHING = "smoke runs: they test that everything works; ignore their numbers"
_MOST_LISTED = 16  # names in a sentence
Kind = Literal["table", "curves", "gradients", "attention", "transfer", "shapes", "rates"]


@dataclass(frozen=True)
class PlannedRun:
    """One cell of a table or one curve of a figure, for any seed.

    `task` and `model` are a name and options, `recipe` everything but the seed, all as in `config.json`.
    `published` is the paper's score from 0 to 1, `published_note` its remark if it gives no score. With
    `trace` the attention over one held-out sequence is recorded. `scored_on` names the held-out set of this
    cell's score, if a run has several: two cells may share a run, scored on different sets. `scored_by` is
    the key of the score in an evaluation.
    """

    row: str
    column: str
    task: dict[str, Any]
    model: dict[str, Any]
    recipe: dict[str, Any]
    published: float | None = None
    published_note: str = ""
    trace: bool = False
    scored_on: str = ""
    scored_by: str = "score"

    def __post_init__(self) -> None:
        for part in ("task", "model"):
            if not isinstance(getattr(self, part).get("name"), str):
                raise ConfigError(f"{part}: expected a name among its values, got {getattr(self, part)}")
        if "seed" in self.recipe:
            raise ConfigError("recipe: expected everything but the seed, which is the experiment's, got one")
        if self.published is not None and not 0 <= self.published <= 1:
            raise ConfigError(f"published: expected a share from 0 to 1, got {self.published}")

    @property
    def cell(self) -> tuple[str, str]:
        """Return the row and column."""
        return self.row, self.column

    @property
    def counted_in(self) -> str:
        """Return the unit of the run's length: steps of reinforcement learning, else updates."""
        return "steps" if "total_timesteps" in self.recipe else "updates"


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its source, its claim, and the runs that test it.

    `name` is that of its folder, `title` the heading of its page. `kind` is a table of scores, or the figure
    that is drawn: curves, gradients, attention, transfer, shapes (depth against width), rates (the learning
    rate for each of them). `seeds` are those of every run.
    `metric` describes the score; `updates_to` is the score for which the updates to reach it are reported;
    `needs` is the data set or package that must be available, or empty; `notes` list our own choices;
    `smoke` marks tiny runs whose numbers mean nothing.

    >>> planned = PlannedRun("T = 5", "LSTM", {"name": "copy", "delay": 5}, {"name": "lstm"}, {})
    >>> Experiment("one", seeds=(0, 1), runs=(planned,)).count
    2
    """

    name: str
    title: str = ""
    source: str = ""
    claim: str = ""
    kind: Kind = "table"
    metric: str = "accuracy"
    updates_to: float = 0.99
    needs: str = ""
    seeds: tuple[int, ...] = (0,)
    runs: tuple[PlannedRun, ...] = ()
    notes: tuple[str, ...] = ()
    smoke: bool = False

    def __post_init__(self) -> None:
        check_choice(self.kind, get_args(Kind), "kind of experiment")
        if not self.name or not self.name.replace("-", "").isalnum():
            raise ConfigError(f"name: expected letters, digits and '-', got {self.name!r}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds: expected one or more different ones, got {self.seeds}")
        for seed in self.seeds:
            check_seed(seeds=seed)
        taken: dict[tuple[str, str], PlannedRun] = {}
        for run in self.runs:
            if run.cell in taken:
                raise ConfigError(f"runs: expected one for each row and column, got two for {run.cell}")
            taken[run.cell] = run

    @property
    def count(self) -> int:
        """Return the number of planned runs times seeds."""
        return len(self.runs) * len(self.seeds)

    @property
    def lengths(self) -> str:
        """Return the maximum length of the runs as a sentence, listed by cells if lengths differ.

        >>> runs = [
        ...     PlannedRun("T = 5", name, {"name": "copy"}, {"name": name}, {"updates": n})
        ...     for name, n in (("lstm", 100), ("gru", 100), ("relrnn", 2000))
        ... ]
        >>> Experiment("one", runs=(*runs,)).lengths
        'Here: 100 updates at most (lstm; gru); 2,000 updates at most (relrnn).'
        """
        by_length: dict[str, list[PlannedRun]] = {}
        for run in self.runs:
            key = "total_timesteps" if run.counted_in == "steps" else "updates"
            if (most := run.recipe.get(key)) is not None:
                by_length.setdefault(f"{most:,.0f} {run.counted_in} at most", []).append(run)
        if len(by_length) < 2:
            return f"Here: {next(iter(by_length))}." if by_length else ""
        return f"Here: {'; '.join(f'{n}{self._where(runs)}' for n, runs in by_length.items())}."

    def _where(self, runs: list[PlannedRun]) -> str:
        """Return the names of these runs' rows or columns if that identifies them, else of every cell.

        Empty if they are too many to be listed; the names of the rows then tell the lengths.
        """
        others = [run for run in self.runs if run not in runs]
        for part in ("row", "column"):
            names = dict.fromkeys(getattr(run, part) for run in runs)
            if not any(getattr(run, part) in names for run in others):
                return _listed(list(names))
        return _listed([f"{run.column} at {run.row}" for run in runs])


def _listed(names: list[str]) -> str:
    """Return names in brackets; empty if they are too many for a sentence."""
    return f" ({'; '.join(names)})" if len(names) <= _MOST_LISTED else ""
