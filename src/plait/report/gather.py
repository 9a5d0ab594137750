"""From folders to what a report is about: runs in cells, cells in groups, one group an experiment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, DataError, PlaitError
from plait.experiments.description import MEANS_NOTHING, Experiment, PlannedRun
from plait.runs.archive import SUFFIX, opened
from plait.runs.difference import SHAPES, class_of, options_of
from plait.runs.folder import read_json
from plait.runs.kinds import is_identified, kind_of
from plait.runs.reading import RunFolder, folder_of_runs, is_run, read_folder
from plait.strict import checked

__all__ = ["Cell", "Group", "gather", "labelled", "score_of"]

DEPTH = 3  # results/table5/<run>: no run lies deeper than this below what was named
# The score whose reaching is told where no experiment says another.
TARGETS = {"accuracy": 0.99, "return": 0.9, "R²": 0.9, "score": 0.9}


@dataclass(frozen=True)
class Cell:
    """Runs that differ in nothing but their seed, where they stand, and what was published for them."""

    row: str
    column: str
    runs: Sequence[RunFolder]
    published: float | None = None
    published_note: str = ""
    seeds: int = 0

    @property
    def sound(self) -> list[RunFolder]:
        """The runs that can be counted."""
        return [run for run in self.runs if run.status != "damaged"]


@dataclass(frozen=True)
class Group:
    """A folder's runs: an experiment's, or loose ones in the order of their descriptions."""

    folder: Path
    name: str
    title: str
    cells: Sequence[Cell]
    kind: str = "table"
    source: str = ""
    claim: str = ""
    metric: str = "accuracy"
    target: float = TARGETS["accuracy"]
    notes: Sequence[str] = ()
    smoke: bool = False
    measure: str = ""  # what stands in the cells, where it is not the last held-out score

    @cached_property
    def score(self) -> str:
        """What the runs are scored by; `metric` may be about gradients or attention instead."""
        return score_of(self.runs) if self.runs else "return" if "reward" in self.metric else "accuracy"

    @property
    def elsewhere(self) -> str:
        """Headline of scores on further held-out sets."""
        return "Scored in other worlds" if self.score == "return" else "Scored at other lengths"

    @cached_property
    def runs(self) -> list[RunFolder]:
        """Each once; one that is scored in two worlds stands in two cells."""
        return list({run.folder: run for cell in self.cells for run in cell.runs}.values())

    def rows(self) -> list[str]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))


def score_of(runs: Iterable[RunFolder]) -> str:
    """What the score of these runs is: a share of answers, an episode's return, or now this, now that."""
    found = {kind_of(run.description).score for run in runs if run.description}
    return "accuracy" if not found else found.pop() if len(found) == 1 else "score"


def gather(folders: Iterable[Path | str]) -> list[Group]:
    """Every group in some folders, each a folder of runs, an experiment's, or a folder of such folders.

    Raises:
        ConfigError: if a folder is not there, or holds no run.
        DataError: if no run in all of them can be read.
    """
    groups: dict[Path, Group] = {}
    held: dict[Path, dict[Path, None]] = {}  # two runs that were named may lie in one folder
    for folder in map(Path, folders):
        if not _is_archive(folder):
            folder_of_runs(folder)
        found = {}
        for parent, inside in _parents(folder):
            here = held.setdefault(parent.resolve(), {})
            here.update(dict.fromkeys(inside))
            found[parent.resolve()] = _group(parent, list(here))
        found = {parent: group for parent, group in found.items() if group.cells}  # not a plan of ours
        if not any(group.runs for group in found.values()):
            raise ConfigError(f"no runs in {folder}; plait train and plait reproduce make some")
        groups |= found
    runs = [run for group in groups.values() for run in group.runs]
    if runs and all(run.status == "damaged" for run in runs):
        raise DataError(
            f"none of {len(runs)} runs can be read; the first, {runs[0].folder}: {runs[0].reason}"
        )
    return sorted(groups.values(), key=lambda group: group.kind == "loose")


def _is_archive(path: Path) -> bool:
    return path.name.endswith(SUFFIX) and path.is_file()


def _parents(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Folders and archives that hold runs, with those runs."""
    if _is_archive(folder):
        yield folder, []
        return
    if is_run(folder):
        yield folder.parent, [folder]
        return
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop(0)
        if _is_archive(here):
            yield here, []
            continue
        inside = sorted(p for p in here.iterdir() if p.is_dir() or _is_archive(p))
        inside = [path for path in inside if not path.name.startswith(".")]
        runs = [path for path in inside if is_run(path)]
        if runs or _experiment_file(here):
            yield here, runs
        held = set(runs)
        if depth < DEPTH:
            waiting += [(path, depth + 1) for path in inside if path not in held]


def _experiment_file(folder: Path) -> bool:
    return (folder / "experiment.json").is_file()


def _planned(folder: Path) -> Experiment | None:
    """The experiment of a folder; None where the file is of another form of experiment."""
    values = read_json(folder / "experiment.json")
    if not isinstance(values, dict) or "kind" not in values:
        return None
    return checked(Experiment, values)


def _group(folder: Path, paths: Sequence[Path]) -> Group:
    if _is_archive(folder):
        shown = folder.with_name(folder.name.removesuffix(SUFFIX))
        with opened(folder) as room:
            inside = sorted(path for path in room.iterdir() if path.is_dir())
            runs = [dataclasses.replace(read_folder(path), folder=shown / path.name) for path in inside]
            return dataclasses.replace(_grouped(room, runs), folder=shown)
    return _grouped(folder, [read_folder(path) for path in paths])


def _grouped(folder: Path, runs: Sequence[RunFolder]) -> Group:
    try:
        experiment = _planned(folder) if _experiment_file(folder) else None
    except PlaitError as error:
        trouble = f"experiment.json cannot be read ({error}); its runs are shown without it"
        return _loose(folder, runs, (trouble,))
    return _loose(folder, runs) if experiment is None else _of_experiment(folder, experiment, runs)


def _of_experiment(folder: Path, experiment: Experiment, runs: Sequence[RunFolder]) -> Group:
    homes: dict[tuple[str, str], list[RunFolder]] = {planned.cell: [] for planned in experiment.runs}
    strays: list[RunFolder] = []
    for run in runs:
        planned = _home(run, experiment.runs)
        if planned is None:
            strays.append(run)
        for one in experiment.runs if planned is not None else ():
            if all(getattr(one, part) == getattr(planned, part) for part in PARTS):
                homes[one.cell].append(_scored_by(_scored_on(run, one.scored_on), one.scored_by))
    cells = [
        Cell(planned.row, planned.column, _by_seed(homes[planned.cell]), *beside, len(experiment.seeds))
        for planned, beside in ((one, _beside(one, experiment.smoke)) for one in experiment.runs)
    ]
    notes = [*([f"These are {MEANS_NOTHING}."] if experiment.smoke else []), *experiment.notes]
    lengths = experiment.lengths
    if lengths and lengths not in notes:  # plans of before had it among their notes
        notes.append(lengths)
    if strays:
        notes.append(f"{len(strays)} runs here are not of the plan; they stand at the end of the tables.")
    title = f"{experiment.title} (smoke)" if experiment.smoke else experiment.title
    name = f"{experiment.name}-smoke" if experiment.smoke else experiment.name
    return Group(
        folder, name, title, [*cells, *labelled(strays)], experiment.kind,
        experiment.source, "" if experiment.smoke else experiment.claim, experiment.metric,
        experiment.updates_to, notes, experiment.smoke,
        "" if all(run.scored_by == "score" for run in experiment.runs) else experiment.metric,
    )  # fmt: skip


def _beside(planned: PlannedRun, smoke: bool) -> tuple[float | None, str]:
    """What was published for a run, and what was said instead; nothing stands beside a smoke run."""
    return (None, "") if smoke else (planned.published, planned.published_note)


def _loose(folder: Path, runs: Sequence[RunFolder], notes: Sequence[str] = ()) -> Group:
    name = folder.resolve().name
    score = score_of(runs)
    return Group(
        folder, name, f"Runs in {name}", labelled(runs), kind="loose", metric=score,
        target=TARGETS.get(score, TARGETS["score"]), notes=notes,
    )  # fmt: skip


def _home(run: RunFolder, planned: Iterable[PlannedRun]) -> PlannedRun | None:
    """The planned run all of whose values the run has. A plan may leave defaults out, so of several the one
    that says most is meant."""
    fits = [one for one in planned if all(_within(getattr(one, p), run.description.get(p)) for p in PARTS)]
    return max(fits, key=lambda one: sum(len(getattr(one, part)) for part in PARTS), default=None)


PARTS = ("task", "model", "recipe")


def _scored_on(run: RunFolder, name: str) -> RunFolder:
    """The run with its score on one held-out set alone, where a cell is about that one."""
    if not name:
        return run
    marks = [
        dataclasses.replace(mark, results={name: mark.results[name]})
        for mark in run.marks
        if name in mark.results
    ]
    return dataclasses.replace(run, marks=marks)


def _scored_by(run: RunFolder, name: str) -> RunFolder:
    """The run with another of an evaluation's figures as its score, where a cell is about that one."""
    if name == "score":
        return run
    marks = [
        dataclasses.replace(
            mark, results={where: {**found, "score": found[name]} for where, found in mark.results.items()}
        )
        for mark in run.marks
        if all(name in found for found in mark.results.values())
    ]
    return dataclasses.replace(run, marks=marks)


def _within(few: dict[str, Any], many: Any) -> bool:
    """What is None in a plan may be left out of a run's description.

    >>> _within({"lr": 1, "orthogonal_lr": None}, {"lr": 1.0, "seed": 0})
    True
    """
    return isinstance(many, dict) and all(many.get(key) == few[key] for key in few)


def _by_seed(runs: Iterable[RunFolder]) -> list[RunFolder]:
    return sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, run.name))


def labelled(runs: Sequence[RunFolder]) -> list[Cell]:
    """Cells of runs that no plan names: rows are tasks, columns models, with the options that tell them
    apart. A run without a description is a cell of its own."""
    cells: dict[tuple[str, str], list[RunFolder]] = {}
    described = [run for run in runs if run.description]
    for like in _alike(described, lambda run: _name(run, "task")):
        tasks = _variants(like, "task")
        for same in _alike(like, _task_and_model):
            models, recipes = _variants(same, "model"), _variants(same, "recipe")
            for run in same:
                row = [_name(run, "task"), *_telling(run, tasks, "task", always=("delay", "env"))]
                options = [
                    *_telling(run, models, "model"),
                    *_telling(run, recipes, "recipe", never=("seed",)),
                ]
                if not all(is_identified(run.description[part]) for part in ("task", "model")):
                    options.append(run.name)  # nothing says that it is a seed of another
                cells.setdefault((", ".join(row), ", ".join([_name(run, "model"), *options])), []).append(run)
    for run in runs:
        if not run.description:
            cells[("?", run.name)] = [run]
    ordered = sorted(cells.items(), key=lambda item: [*map(_by_number, item[0])])
    return [Cell(row, column, _by_seed(found)) for (row, column), found in ordered]


def _by_number(label: str) -> list[tuple[float, str]]:
    """Sorts delay 20 before delay 100.

    >>> sorted(["delay 100", "delay 20"], key=_by_number)
    ['delay 20', 'delay 100']
    """
    return [(float(w), "") if w.replace(".", "", 1).isdigit() else (-1.0, w) for w in label.split()]


def _name(run: RunFolder, part: str) -> str:
    values = run.description[part]
    return str(values["name"] if "name" in values else class_of(values).rpartition(".")[2])


def _task_and_model(run: RunFolder) -> tuple[str, str]:
    return json.dumps(run.description["task"], sort_keys=True), _name(run, "model")


def _alike(runs: Iterable[RunFolder], key: Callable[[RunFolder], Hashable]) -> Iterable[list[RunFolder]]:
    found: dict[Hashable, list[RunFolder]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found.values()


def _variants(runs: Iterable[RunFolder], part: str) -> dict[str, list[Any]]:
    """What values each option has among some runs, None where a run does not say it; two are enough to tell
    any run from another."""
    said = [options_of(run.description[part]) for run in runs]
    found: dict[str, list[Any]] = {key: [] for values in said for key in values}
    for key, values in found.items():
        for value in (one.get(key) for one in said):
            if len(values) < 2 and value not in values:
                values.append(value)
    return found


def _telling(
    run: RunFolder,
    variants: dict[str, list[Any]],
    part: str,
    always: Sequence[str] = (),
    never: Sequence[str] = (),
) -> list[str]:
    """The options in which a run differs from some of the others."""
    mine = options_of(run.description[part])
    shown = [key for key in mine if key in always or (key not in never and variants[key] != [mine[key]])]
    shown = [key for key in shown if key != "name"]
    shown = [key for key in shown if key != SHAPES] or shown  # they follow from options, where those differ
    return [f"{key.replace('_', ' ')} {mine[key]}" for key in shown]
