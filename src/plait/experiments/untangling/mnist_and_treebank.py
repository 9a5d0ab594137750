"""Tables 8 and 9, figures 7, 8 and 9: what needs MNIST or the Penn Treebank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plait.experiments.description import Experiment, Kind, PlannedRun
from plait.experiments.untangling.contestants import (
    BEST_ON_MNIST,
    RECOMMENDED_ON_MNIST,
    RECOMMENDED_ON_TREEBANK,
    SOURCE,
    Contestant,
    by_ours,
)
from plait.experiments.untangling.size import Size
from plait.training.options import published_for
from plait.training.recipe import Recipe

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
# name on the command line of each column
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
    """A data set: what it is called, the updates of an epoch, a small version of its task, a Transformer
    with as many parameters as RelRNN; and what we recommend: models by column, and epochs."""

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
        """One run for each column, as published; a small one needs the data too."""
        trace = columns == ("MemRNN",)
        return [
            self._planned(column, *self._published(column, epochs), size, task, trace) for column in columns
        ]

    def ours(self, size: Size, task: dict[str, Any], columns: Iterable[str] = ()) -> list[PlannedRun]:
        """One run for each column, or each of these, as we recommend."""
        chosen = {column: self.recommended[column] for column in columns or self.recommended}
        return [
            self._planned(column, one, self.epochs, size, task) for column, one in by_ours(chosen).items()
        ]

    def _planned(
        self, column: str, one: Contestant, epochs: int, size: Size, task: dict[str, Any], trace: bool = False
    ) -> PlannedRun:
        updates = epochs * self.per_epoch
        full = Recipe(updates, evaluate_every=self.per_epoch, evaluate_on=None, record_every=100)
        small = size.recipe.changed(**{**one.training, "batch_size": size.recipe.batch_size})
        values = (full.changed(**one.training) if size.published else small).values()
        del values["seed"]
        return PlannedRun(
            row={"smnist": "sequential", "pmnist": "permuted"}.get(task["name"], "characters"),
            column=column,
            task={**task, **({} if size.published else self.small)},
            model={
                "name": one.name,
                **one.options,
                **({} if size.published else {"hidden_size": size.hidden}),
            },
            recipe=values,
            trace=trace,
        )

    def _published(self, column: str, epochs: int | None) -> tuple[Contestant, int]:
        """A row of the paper's table, and for how long it is trained."""
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
    "mnist", "pmnist", 500, {"group": 28, "subset": 200}, {"hidden_size": 36, "num_layers": 2},
    RECOMMENDED_ON_MNIST, 30,
)  # fmt: skip
_TREEBANK = _Data(
    "ptb", "ptb", 261, {"span": 20, "embedding": 16}, {"hidden_size": 264, "num_layers": 4},
    RECOMMENDED_ON_TREEBANK, 24,
)  # fmt: skip


def table8(size: Size, recipe: str = "published") -> Experiment:
    """Sequential and permuted MNIST; by ours the best settings of each model, and on the permuted all."""
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
    """Characters of the Penn Treebank."""
    task = {"name": "ptb", "span": 150}
    published = recipe == "published"
    runs = _TREEBANK.runs(tuple(_COLUMNS), size, task) if published else _TREEBANK.ours(size, task)
    title, metric = "Penn Treebank, one character at a time", "accuracy; bits per character beside it"
    return _experiment("table9", title, "table", _TREEBANK, metric, 0.5, runs, size, recipe)


def figure7(size: Size) -> Experiment:
    """Attention over text."""
    runs = _TREEBANK.runs(("MemRNN",), size, {"name": "ptb", "span": 125})
    title = "Penn Treebank: full attention over 125 characters"
    return _experiment("figure7", title, "attention", _TREEBANK, "attention weight", 0.5, runs, size)


def figure8(size: Size, recipe: str = "published") -> Experiment:
    """Validation accuracy by epoch, 0 to 40 as in the figure; by ours the runs of table8."""
    task = {"name": "pmnist"}
    if recipe == "published":
        runs = _MNIST.runs(("RelRNN", "orth-RNN", "RNN"), size, task, epochs=40)
    else:
        runs = _MNIST.ours(size, task, BEST_ON_MNIST["pmnist"])
    title = "Permuted MNIST: validation accuracy by epoch"
    return _experiment("figure8", title, "curves", _MNIST, "validation accuracy", 0.9, runs, size, recipe)


def figure9(size: Size) -> Experiment:
    """Attention over an image."""
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
