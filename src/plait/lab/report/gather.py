"""Collection of a report's contents from folders: runs in cells, cells in groups, a group per experiment."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, DataError, PlaitError
from plait.lab.experiments.description import MEANS_NOTHING, Experiment, PlannedRun
from plait.lab.runs.archive import SUFFIX, opened
from plait.lab.runs.difference import SHAPES, class_of, options_of, task_label
from plait.lab.runs.folder import read_json
from plait.lab.runs.kinds import is_identified, kind_of
from plait.lab.runs.reading import RunFolder, folder_of_runs, is_run, read_folder
from plait.lab.strict import parse

__all__ = ["Group", "TableCell", "gather", "labelled", "score_of"]

DEPTH = 3  # results/table5/<run>: runs are searched at most this deep below a given folder
# Target score by kind of score, where no experiment defines another.
TARGETS = {"accuracy": 0.99, "return": 0.9, "R²": 0.9, "score": 0.9}


@dataclass(frozen=True)
class TableCell:
    """A cell of a report's table: runs that differ only in their seed, and the score published for them."""

    row: str
    column: str
    runs: Sequence[RunFolder]
    published: float | None = None
    published_note: str = ""
    seeds: int = 0

    @property
    def sound(self) -> list[RunFolder]:
        """Return the runs that are not damaged."""
        return [run for run in self.runs if run.status != "damaged"]


@dataclass(frozen=True)
class Group:
    """A folder's runs: those of an experiment, or loose ones in the order of their descriptions."""

    folder: Path
    name: str
    title: str
    cells: Sequence[TableCell]
    kind: str = "table"
    source: str = ""
    claim: str = ""
    metric: str = "accuracy"
    target: float = TARGETS["accuracy"]
    notes: Sequence[str] = ()
    smoke: bool = False
    measure: str = ""  # the metric in the cells, if it is not the last held-out score

    @cached_property
    def score(self) -> str:
        """Return the score of the runs; `metric` may be about gradients or attention instead."""
        return score_of(self.runs) if self.runs else "return" if "reward" in self.metric else "accuracy"

    @cached_property
    def of_a_paper(self) -> bool:
        """Return whether scores are compared with a paper: a source is named, or a value was published."""
        return bool(self.source) or any(
            cell.published is not None or cell.published_note for cell in self.cells
        )

    @property
    def elsewhere(self) -> str:
        """Return the heading of scores on further held-out sets."""
        if self.kind in ("shapes", "rates"):
            return "Scored on parts of the text"
        return "Scored in other environments" if self.score == "return" else "Scored at other lengths"

    @cached_property
    def runs(self) -> list[RunFolder]:
        """Return each run once; a run that is scored in two environments is in two cells."""
        return list({run.folder: run for cell in self.cells for run in cell.runs}.values())

    def rows(self) -> list[str]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))


def score_of(runs: Iterable[RunFolder]) -> str:
    """Return the kind of score of these runs, such as accuracy or return; "score" if they differ in it."""
    kinds = {kind_of(run.description).score for run in runs if run.description}
    return "accuracy" if not kinds else kinds.pop() if len(kinds) == 1 else "score"


def gather(folders: Iterable[Path | str]) -> list[Group]:
    """Collect the groups of some folders: folders of runs, of experiments, or folders of such folders.

    Raises:
        ConfigError: if a folder does not exist, or holds no run.
        DataError: if none of the runs can be read.
    """
    groups: dict[Path, Group] = {}
    paths: dict[Path, dict[Path, None]] = {}  # two of the given runs may be in one folder
    for folder in map(Path, folders):
        if not _is_archive(folder):
            folder_of_runs(folder)
        in_folder = {}
        for parent, inside in _parents(folder):
            siblings = paths.setdefault(parent.resolve(), {})
            siblings.update(dict.fromkeys(inside))
            in_folder[parent.resolve()] = _group(parent, list(siblings))
        # A damaged experiment.json without runs gives a group without cells.
        in_folder = {parent: group for parent, group in in_folder.items() if group.cells}
        if not any(group.runs for group in in_folder.values()):
            raise ConfigError(f"no runs in {folder}; plait train and plait reproduce make some")
        groups |= in_folder
    runs = [run for group in groups.values() for run in group.runs]
    if runs and all(run.status == "damaged" for run in runs):
        raise DataError(
            f"none of {len(runs)} runs can be read; the first, {runs[0].folder}: {runs[0].reason}"
        )
    return sorted(groups.values(), key=lambda group: group.kind == "loose")


def _is_archive(path: Path) -> bool:
    return path.name.endswith(SUFFIX) and path.is_file()


def _parents(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folders and archives that hold runs, with the paths of those runs."""
    if _is_archive(folder):
        yield folder, []
        return
    if is_run(folder):
        yield folder.parent, [folder]
        return
    waiting = [(folder, 0)]
    while waiting:
        current, depth = waiting.pop(0)
        if _is_archive(current):
            yield current, []
            continue
        inside = sorted(p for p in current.iterdir() if p.is_dir() or _is_archive(p))
        inside = [path for path in inside if not path.name.startswith(".")]
        runs = [path for path in inside if is_run(path)]
        if runs or (current / "experiment.json").is_file():
            yield current, runs
        run_paths = set(runs)
        if depth < DEPTH:
            waiting += [(path, depth + 1) for path in inside if path not in run_paths]


def _group(folder: Path, paths: Sequence[Path]) -> Group:
    if _is_archive(folder):
        named = folder.with_name(folder.name.removesuffix(SUFFIX))
        with opened(folder) as unpacked:
            inside = sorted(path for path in unpacked.iterdir() if path.is_dir())
            runs = [dataclasses.replace(read_folder(path), folder=named / path.name) for path in inside]
            return dataclasses.replace(_grouped(unpacked, runs), folder=named)
    return _grouped(folder, [read_folder(path) for path in paths])


def _grouped(folder: Path, runs: Sequence[RunFolder]) -> Group:
    try:
        path = folder / "experiment.json"
        experiment = parse(Experiment, read_json(path)) if path.is_file() else None
    except PlaitError as error:
        note = f"experiment.json cannot be read ({error}); its runs are shown without it"
        return _loose(folder, runs, (note,))
    return _loose(folder, runs) if experiment is None else _of_experiment(folder, experiment, runs)


def _of_experiment(folder: Path, experiment: Experiment, runs: Sequence[RunFolder]) -> Group:
    by_cell: dict[tuple[str, str], list[RunFolder]] = {planned.cell: [] for planned in experiment.runs}
    unplanned: list[RunFolder] = []
    for run in runs:
        match = _matching_plan(run, experiment.runs)
        if match is None:
            unplanned.append(run)
        for planned in experiment.runs if match is not None else ():
            if all(getattr(planned, part) == getattr(match, part) for part in PARTS):
                scored = _scored_by(_scored_on(run, planned.scored_on), planned.scored_by)
                by_cell[planned.cell].append(scored)
    cells = [
        TableCell(
            planned.row,
            planned.column,
            _by_seed(by_cell[planned.cell]),
            *_published(planned, experiment.smoke),
            len(experiment.seeds),
        )
        for planned in experiment.runs
    ]
    notes = [*([f"These are {MEANS_NOTHING}."] if experiment.smoke else []), *experiment.notes]
    notes += [experiment.lengths] if experiment.lengths else []
    if unplanned:
        notes.append(f"{len(unplanned)} runs here are not part of the plan; they are last in the tables.")
    title = f"{experiment.title} (smoke)" if experiment.smoke else experiment.title
    name = f"{experiment.name}-smoke" if experiment.smoke else experiment.name
    return Group(
        folder,
        name,
        title,
        [*cells, *labelled(unplanned)],
        experiment.kind,
        experiment.source,
        "" if experiment.smoke else experiment.claim,
        experiment.metric,
        experiment.updates_to,
        notes,
        experiment.smoke,
        "" if all(run.scored_by == "score" for run in experiment.runs) else experiment.metric,
    )


def _published(planned: PlannedRun, smoke: bool) -> tuple[float | None, str]:
    """Return the score published for a run, and the note if there is none; smoke runs have neither."""
    return (None, "") if smoke else (planned.published, planned.published_note)


def _loose(folder: Path, runs: Sequence[RunFolder], notes: Sequence[str] = ()) -> Group:
    name = folder.resolve().name
    score = score_of(runs)
    return Group(
        folder,
        name,
        "Runs" if name == "runs" else f"Runs in {name}",
        labelled(runs),
        kind="loose",
        metric=score,
        target=TARGETS.get(score, TARGETS["score"]),
        notes=notes,
    )


def _matching_plan(run: RunFolder, planned: Iterable[PlannedRun]) -> PlannedRun | None:
    """Return the planned run whose values the run has, or None.

    A plan may leave defaults out, so among several matches the one with the most values is meant.
    """
    matches = [
        candidate
        for candidate in planned
        if all(_within(getattr(candidate, part), run.description.get(part)) for part in PARTS)
    ]
    return max(matches, key=lambda match: sum(len(getattr(match, part)) for part in PARTS), default=None)


PARTS = ("task", "model", "recipe")


def _scored_on(run: RunFolder, name: str) -> RunFolder:
    """Restrict a run's scores to one held-out set; an empty name keeps all of them."""
    if not name:
        return run
    marks = [
        dataclasses.replace(mark, results={name: mark.results[name]})
        for mark in run.marks
        if name in mark.results
    ]
    return dataclasses.replace(run, marks=marks)


def _scored_by(run: RunFolder, name: str) -> RunFolder:
    """Replace a run's score by another metric of its evaluations."""
    if name == "score":
        return run
    marks = [
        dataclasses.replace(
            mark,
            results={
                held_out: {**result, "score": result[name]} for held_out, result in mark.results.items()
            },
        )
        for mark in run.marks
        if all(name in result for result in mark.results.values())
    ]
    return dataclasses.replace(run, marks=marks)


def _within(few: dict[str, Any], many: Any) -> bool:
    """Return whether `many` has all values of `few`; an absent value equals None.

    >>> _within({"lr": 1, "orthogonal_lr": None}, {"lr": 1.0, "seed": 0})
    True
    """
    return isinstance(many, dict) and all(many.get(key) == few[key] for key in few)


def _by_seed(runs: Iterable[RunFolder]) -> list[RunFolder]:
    return sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, run.name))


def labelled(runs: Sequence[RunFolder]) -> list[TableCell]:
    """Return cells for runs that are in no plan, a row per task and a column per model.

    Labels include the options that distinguish the runs. A run without a description is a cell of its own.
    """
    cells: dict[tuple[str, str], list[RunFolder]] = {}
    described = [run for run in runs if run.description]
    for same_task in _alike(described, lambda run: _name(run, "task")):
        rows = _rows(same_task)
        for same_model in _alike(same_task, _task_and_model):
            models, recipes = _variants(same_model, "model"), _variants(same_model, "recipe")
            for run in same_model:
                options = [
                    *_telling(run, models, "model"),
                    *_telling(run, recipes, "recipe", never=("seed",)),
                ]
                if not all(is_identified(run.description[part]) for part in ("task", "model")):
                    options.append(run.name)  # it cannot be identified as another seed of some run
                row = rows[_description_of_task(run)]
                cells.setdefault((row, ", ".join([_name(run, "model"), *options])), []).append(run)
    for run in runs:
        if not run.description:
            cells[("?", run.name)] = [run]
    ordered = sorted(cells.items(), key=lambda item: [*map(_by_number, item[0])])
    return [TableCell(row, column, _by_seed(members)) for (row, column), members in ordered]


def _rows(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Return the rows of runs whose tasks have one name, by the JSON of the task.

    What follows from a CSV file and its target (columns, classes, a digest) is in a row only where two tasks
    could not be told apart without it.
    """
    variants = _variants(runs, "task")
    tasks = {_description_of_task(run): run for run in runs}
    labels: list[dict[str, str]] = []
    for derived in (_DERIVED, ()):
        labels.append({})
        for key, run in tasks.items():
            label = task_label(run.description["task"]) if _is_csv(run) else _name(run, "task")
            always, never = (("delay", "env"), derived) if not _is_csv(run) else ((), (*_IN_LABEL, *derived))
            options = _telling(run, variants, "task", always, never)
            labels[-1][key] = ", ".join([label, *options])
    short, long = labels
    counts = Counter(short.values())
    return {key: short[key] if counts[short[key]] == 1 else long[key] for key in tasks}


_IN_LABEL = ("target", "horizon")  # options of a CSV task that its label shows, besides its file
_DERIVED = ("sha256", "features", "classes", "encodings", "answer", "asks", "file")


def _is_csv(run: RunFolder) -> bool:
    task = run.description["task"]
    return task.get("name") == "csv" and "file" in task


def _description_of_task(run: RunFolder) -> str:
    return json.dumps(run.description["task"], sort_keys=True)


def _by_number(label: str) -> list[tuple[float, str]]:
    """Return a sort key that puts delay 20 before delay 100.

    >>> sorted(["delay 100", "delay 20"], key=_by_number)
    ['delay 20', 'delay 100']
    """
    return [(float(w), "") if w.replace(".", "", 1).isdigit() else (-1.0, w) for w in label.split()]


def _name(run: RunFolder, part: str) -> str:
    values = run.description[part]
    return str(values["name"] if "name" in values else class_of(values).rpartition(".")[2])


def _task_and_model(run: RunFolder) -> tuple[str, str]:
    return _description_of_task(run), _name(run, "model")


def _alike(runs: Iterable[RunFolder], key: Callable[[RunFolder], Hashable]) -> Iterable[list[RunFolder]]:
    by_key: dict[Hashable, list[RunFolder]] = {}
    for run in runs:
        by_key.setdefault(key(run), []).append(run)
    return by_key.values()


def _variants(runs: Iterable[RunFolder], part: str) -> dict[str, list[Any]]:
    """Return up to two different values of each option among some runs, None where a run lacks it.

    Two values are enough to see that runs differ in an option.
    """
    all_options = [options_of(run.description[part]) for run in runs]
    variants: dict[str, list[Any]] = {key: [] for options in all_options for key in options}
    for key, values in variants.items():
        for value in (options.get(key) for options in all_options):
            if len(values) < 2 and value not in values:
                values.append(value)
    return variants


def _telling(
    run: RunFolder,
    variants: dict[str, list[Any]],
    part: str,
    always: Sequence[str] = (),
    never: Sequence[str] = (),
) -> list[str]:
    """Return the options in which a run differs from some of the others."""
    options = options_of(run.description[part])
    keys = [k for k in options if k in always or (k not in never and variants[k] != [options[k]])]
    keys = [key for key in keys if key != "name"]
    keys = [key for key in keys if key != SHAPES] or keys  # shapes follow from other options that differ
    return [f"{key.replace('_', ' ')} {options[key]}" for key in keys]
