"""What an experiment is: a paper's table or figure as plain, frozen data. No torch, no clock, no path.

Plain dataclasses, so that a machine with torch alone can run them; `plait.strict.checked` reads them back
from JSON and refuses unknown and missing keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from plait.errors import ConfigError, known, seeded

__all__ = ["MEANS_NOTHING", "Experiment", "Kind", "PlannedRun"]

MEANS_NOTHING = "smoke runs: they show that everything works; their numbers are no results"
Kind = Literal["table", "curves", "gradients", "attention", "transfer"]


@dataclass(frozen=True)
class PlannedRun:
    """One cell of a table or one curve of a figure, for any seed.

    `task` and `model` are a name and options, `recipe` everything but the seed, all as `config.json` has
    them. `published` is the paper's score from 0 to 1, `published_note` what it says where it has none.
    `trace` asks for the attention over one held-out sequence. `scored_on` names the held-out set whose score
    stands here, where a run has several: two cells may be of one run, scored on different sets. `scored_by`
    is what of an evaluation is the score.
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
        """Where it stands: row and column."""
        return self.row, self.column

    @property
    def counted_in(self) -> str:
        """What its length is counted in: steps where worlds are played, else updates."""
        return "steps" if "steps" in self.recipe else "updates"


@dataclass(frozen=True)
class Experiment:
    """A table or figure: where it is from, what it claims, and the runs that test it.

    `metric` says what a score is; `updates_to` is the score whose first reaching is reported; `needs` is
    empty, or what must exist before it can be run; `notes` say which choices are ours; of `smoke` runs
    the numbers mean nothing.

    >>> planned = PlannedRun("T = 5", "LSTM", {"name": "copy", "delay": 5}, {"name": "lstm"}, {})
    >>> Experiment("one", "", "", "", "table", "accuracy", 0.99, "", (0, 1), (planned,), ()).count
    2
    """

    name: str
    title: str
    source: str
    claim: str
    kind: Kind
    metric: str
    updates_to: float
    needs: str
    seeds: tuple[int, ...]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...]
    smoke: bool = False

    def __post_init__(self) -> None:
        known(self.kind, get_args(Kind), "kind of experiment")
        if not self.name or not self.name.replace("-", "").isalnum():
            raise ConfigError(f"name: expected letters, digits and '-', got {self.name!r}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds: expected one or more different ones, got {self.seeds}")
        for seed in self.seeds:
            seeded(seeds=seed)
        taken: dict[tuple[str, str], PlannedRun] = {}
        for run in self.runs:
            if run.cell in taken:
                raise ConfigError(f"runs: expected one for each row and column, got two for {run.cell}")
            taken[run.cell] = run

    @property
    def count(self) -> int:
        """Planned runs times seeds."""
        return len(self.runs) * len(self.seeds)

    @property
    def lengths(self) -> str:
        """How long runs are at most, in words, and where lengths differ which cells have which.

        >>> runs = [
        ...     PlannedRun("T = 5", name, {"name": "copy"}, {"name": name}, {"updates": n})
        ...     for name, n in (("lstm", 100), ("gru", 100), ("relrnn", 2000))
        ... ]
        >>> Experiment("one", "", "", "", "table", "accuracy", 0.99, "", (0,), (*runs,), ()).lengths
        'Here: 100 updates at most (lstm; gru); 2,000 updates at most (relrnn).'
        """
        found: dict[str, list[PlannedRun]] = {}
        for run in self.runs:
            if (most := run.recipe.get(run.counted_in)) is not None:
                found.setdefault(f"{most:,.0f} {run.counted_in} at most", []).append(run)
        if len(found) < 2:
            return f"Here: {next(iter(found))}." if found else ""
        return f"Here: {'; '.join(f'{length} ({self._where(runs)})' for length, runs in found.items())}."

    def _where(self, runs: list[PlannedRun]) -> str:
        """These runs by their rows or their columns, where that says it all, else cell by cell."""
        others = [run for run in self.runs if run not in runs]
        for part in ("row", "column"):
            names = dict.fromkeys(getattr(run, part) for run in runs)
            if not any(getattr(run, part) in names for run in others):
                return "; ".join(names)
        return "; ".join(f"{run.column} at {run.row}" for run in runs)
