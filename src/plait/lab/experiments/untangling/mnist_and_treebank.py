"""Tables 8 and 9, figures 7, 8 and 9: the experiments on MNIST and the Penn Treebank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plait.lab.experiments.description import Experiment, Kind, PlannedRun
from plait.lab.experiments.untangling.contestants import (
    BEST_ON_MNIST,
    RECOMMENDED_ON_MNIST,
    RECOMMENDED_ON_TREEBANK,
    SOURCE,
    Contestant,
    by_ours,
)
from plait.lab.experiments.untangling.size import Size
from plait.lab.training.options import published_for
from plait.lab.training.recipe import Recipe

__all__ = ["figure7", "figure8", "figure9", "table8", "table9"]

_NO_RESULTS = "Tables 8 and 9 are hyperparameters; no result on these tasks is published as a number."
_EMPTIED = "Ours: the memory is emptied after every span of text and the next begins with the last s_T."
_NOTES = {
    "published": (
        _NO_RESULTS,
        "Ours: rates and optimisers the tables leave blank (of LSTM and GORU), and everything of models they "
        "do not have, are those of RelRNN's row.",
        _EMPTIED,
    ),
    "plait": (
        _NO_RESULTS,
        "By the recipe we recommend: MNIST with 128 features and LSTM cells whose gates begin open for up to "
        "784 steps (chrono); text with as many parameters in RelLSTM as in LSTM; clipped, and a rate that is "
        "halved whenever the held-out loss is no better, as in table 9.",
        _EMPTIED,
    ),
}
# the model's name on the command line, by column
_COLUMNS = {
    "orth-RNN": "orthrnn",
    "expRNN": "exprnn",
    "LSTM": "lstm",
    "GORU": "goru",
    "RelRNN": "relrnn",
    "RelLSTM": "rellstm",
    "RNN": "rnn",
    "MemRNN": "memrnn",
    "Transformer": "transformer",
}
_ELMAN = ("orthrnn", "exprnn", "relrnn", "rnn", "memrnn")
_SCREENED = ("relrnn", "rellstm")


@dataclass(frozen=True)
class _Data:
    """A data set with its experiments' settings.

    `needs` is its name, `task` that of its row in the published tables, `per_epoch` the updates of an epoch,
    `small` the task's options at smoke size, `transformer` the options of a Transformer with as many
    parameters as RelRNN; `recommended` has our models by column, trained for `epochs`.
    """

    needs: str
    task: str
    per_epoch: int
    small: dict[str, Any]
    transformer: dict[str, Any]
    recommended: dict[str, Contestant]
    epochs: int

    def runs(
        self, columns: Sequence[str], size: Size, task: dict[str, Any], epochs: int | None = None
    ) -> list[PlannedRun]:
        """Return a run for each column by the published recipe."""
        trace = columns == ("MemRNN",)
        return [
            self._planned(column, *self._published(column, epochs), size, task, trace) for column in columns
        ]

    def ours(self, size: Size, task: dict[str, Any], columns: Iterable[str] = ()) -> list[PlannedRun]:
        """Return a run for each of these columns (all, if empty) by our recipe."""
        chosen = {column: self.recommended[column] for column in columns or self.recommended}
        return [
            self._planned(column, model, self.epochs, size, task) for column, model in by_ours(chosen).items()
        ]

    def _planned(
        self, column: str, row: Contestant, epochs: int, size: Size, task: dict[str, Any], trace: bool = False
    ) -> PlannedRun:
        updates = epochs * self.per_epoch
        full = Recipe(updates, evaluate_every=self.per_epoch, evaluate_on=None, record_every=100)
        small = size.recipe.changed(**{**row.training, "batch_size": size.recipe.batch_size})
        values = (full.changed(**row.training) if size.published else small).values()
        del values["seed"]
        return PlannedRun(
            row={"smnist": "sequential", "pmnist": "permuted"}.get(task["name"], "characters"),
            column=column,
            task={**task, **({} if size.published else self.small)},
            model={
                "name": row.name,
                **row.options,
                **({} if size.published else {"hidden_size": size.hidden}),
            },
            recipe=values,
            trace=trace,
        )

    def _published(self, column: str, epochs: int | None) -> tuple[Contestant, int]:
        """Return the model of a row of the paper's table, and its epochs."""
        name = _COLUMNS[column]
        row = published_for(self.task, name)
        assert row is not None
        options: dict[str, Any] = {"hidden_size": row.hidden_size}
        if name in _ELMAN:
            options |= {"nonlinearity": row.nonlinearity, "initialiser": row.initialiser}
        if name in _SCREENED:
            options |= {"window": row.window, "capacity": row.capacity}
        options = self.transformer if name == "transformer" else options
        return Contestant(name, options, row.recipe()), epochs or row.epochs


_MNIST = _Data(
    "mnist",
    "pmnist",
    500,
    {"group": 28, "subset": 200},
    {"hidden_size": 36, "num_layers": 2},
    RECOMMENDED_ON_MNIST,
    30,
)
_TREEBANK = _Data(
    "ptb",
    "ptb",
    261,
    {"span": 20, "embedding": 16},
    {"hidden_size": 264, "num_layers": 4},
    RECOMMENDED_ON_TREEBANK,
    24,
)


def table8(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: sequential and permuted MNIST.

    Our recipe has all settings of each model on permuted MNIST, the best ones on sequential MNIST.
    """
    if recipe == "published":
        runs = [
            r for task in ("smnist", "pmnist") for r in _MNIST.runs(tuple(_COLUMNS), size, {"name": task})
        ]
    else:
        runs = [
            *_MNIST.ours(size, {"name": "pmnist"}),
            *_MNIST.ours(size, {"name": "smnist"}, BEST_ON_MNIST["smnist"]),
        ]
    return _experiment(
        "table8", "MNIST, one pixel at a time", "table", _MNIST, "accuracy", 0.9, runs, size, recipe
    )


def table9(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: characters of the Penn Treebank."""
    task = {"name": "ptb", "span": 150}
    published = recipe == "published"
    runs = _TREEBANK.runs(tuple(_COLUMNS), size, task) if published else _TREEBANK.ours(size, task)
    title, metric = "Penn Treebank, one character at a time", "accuracy; bits per character beside it"
    return _experiment("table9", title, "table", _TREEBANK, metric, 0.5, runs, size, recipe)


def figure7(size: Size) -> Experiment:
    """Return the experiment: attention over text."""
    runs = _TREEBANK.runs(("MemRNN",), size, {"name": "ptb", "span": 125})
    title = "Penn Treebank: full attention over 125 characters"
    return _experiment("figure7", title, "attention", _TREEBANK, "attention weight", 0.5, runs, size)


def figure8(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: validation accuracy by epoch, up to 40; by our recipe the runs of table8."""
    task = {"name": "pmnist"}
    if recipe == "published":
        runs = _MNIST.runs(("RelRNN", "orth-RNN", "RNN"), size, task, epochs=40)
    else:
        runs = _MNIST.ours(size, task, BEST_ON_MNIST["pmnist"])
    title = "Permuted MNIST: validation accuracy by epoch"
    return _experiment("figure8", title, "curves", _MNIST, "validation accuracy", 0.9, runs, size, recipe)


def figure9(size: Size) -> Experiment:
    """Return the experiment: attention over an image."""
    runs = _MNIST.runs(("MemRNN",), size, {"name": "smnist", "group": 7}, epochs=20)
    title = "MNIST, seven pixels a step: full attention"
    return _experiment("figure9", title, "attention", _MNIST, "attention weight", 0.9, runs, size)


def _experiment(
    name: str,
    title: str,
    kind: Kind,
    data: _Data,
    metric: str,
    updates_to: float,
    runs: list[PlannedRun],
    size: Size,
    recipe: str = "published",
) -> Experiment:
    item = name.replace("table", "table ").replace("figure", "figure ")
    return Experiment(
        name=name,
        title=title,
        source=f"{SOURCE}, {item}",
        claim="",
        kind=kind,
        metric=metric,
        updates_to=updates_to,
        needs=data.needs,
        seeds=size.seeds[:1],
        runs=tuple(runs),
        notes=_NOTES[recipe],
    )
