"""Tables 8 and 9, figures 7, 8 and 9: what needs MNIST or the Penn Treebank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait.experiments.description import Experiment, Kind, PlannedRun
from plait.experiments.untangling.contestants import SOURCE
from plait.experiments.untangling.size import Size
from plait.training.options import published_for
from plait.training.recipe import Recipe

__all__ = ["figure7", "figure8", "figure9", "table8", "table9"]

_NOTES = (
    "Tables 8 and 9 are hyperparameters; no result on these tasks is published as a number.",
    "Ours: rates and optimisers the tables leave blank (of LSTM and GORU), and everything of models they do "
    "not have, are those of RelRNN's row.",
    "Ours: the memory is emptied after every span of text and the next begins with the last s_T.",
)
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
    """A data set: what it is called, the updates of an epoch, a small version of its task, and a Transformer
    with as many parameters as RelRNN."""

    needs: str
    task: str
    per_epoch: int
    small: dict[str, Any]
    transformer: dict[str, Any]

    def runs(
        self, columns: Sequence[str], size: Size, task: dict[str, Any], epochs: int | None = None
    ) -> list[PlannedRun]:
        """One run for each column; a small one needs the data too."""
        options = {**task, **({} if size.published else self.small)}
        trace = columns == ("MemRNN",)
        row = {"smnist": "sequential", "pmnist": "permuted"}.get(task["name"], "characters")
        return [
            PlannedRun(row, column, options, self._model(column, size), self._recipe(column, size, epochs),
                       trace=trace)
            for column in columns
        ]  # fmt: skip

    def _model(self, column: str, size: Size) -> dict[str, Any]:
        name = _COLUMNS[column]
        published = published_for(self.task, name)
        assert published is not None
        model: dict[str, Any] = {"name": name}
        if name == "transformer":
            return model | (self.transformer if size.published else {"hidden_size": size.hidden})
        model["hidden_size"] = published.hidden_size if size.published else size.hidden
        if name in _ELMAN:
            model |= {"nonlinearity": published.nonlinearity, "initialiser": published.initialiser}
        if name in _SCREENED:
            model |= {"window": published.window, "capacity": published.capacity}
        return model

    def _recipe(self, column: str, size: Size, epochs: int | None) -> dict[str, Any]:
        published = published_for(self.task, _COLUMNS[column])
        assert published is not None
        if size.published:
            recipe = Recipe(
                updates=(epochs or published.epochs) * self.per_epoch,
                evaluate_every=self.per_epoch,
                evaluate_on=None,
                record_every=100,
            ).changed(**published.recipe())
        else:
            recipe = size.recipe.changed(**{**published.recipe(), "batch_size": size.recipe.batch_size})
        values = recipe.values()
        del values["seed"]
        return values


_MNIST = _Data(
    "mnist", "pmnist", 500, {"group": 28, "subset": 200}, {"hidden_size": 36, "num_layers": 2}
)  # fmt: skip
_TREEBANK = _Data(
    "ptb", "ptb", 261, {"span": 20, "embedding": 16}, {"hidden_size": 264, "num_layers": 4}
)  # fmt: skip


def table8(size: Size) -> Experiment:
    """Sequential and permuted MNIST."""
    columns = tuple(_COLUMNS)
    runs = [run for task in ("smnist", "pmnist") for run in _MNIST.runs(columns, size, {"name": task})]
    return _experiment("table8", "MNIST, one pixel at a time", "table", _MNIST, "accuracy", 0.9, runs, size)


def table9(size: Size) -> Experiment:
    """Characters of the Penn Treebank."""
    runs = _TREEBANK.runs(tuple(_COLUMNS), size, {"name": "ptb", "span": 150})
    title, metric = "Penn Treebank, one character at a time", "accuracy; bits per character beside it"
    return _experiment("table9", title, "table", _TREEBANK, metric, 0.5, runs, size)


def figure7(size: Size) -> Experiment:
    """Attention over text."""
    runs = _TREEBANK.runs(("MemRNN",), size, {"name": "ptb", "span": 125})
    title = "Penn Treebank: full attention over 125 characters"
    return _experiment("figure7", title, "attention", _TREEBANK, "attention weight", 0.5, runs, size)


def figure8(size: Size) -> Experiment:
    """Validation accuracy by epoch, 0 to 40 as in the figure."""
    runs = _MNIST.runs(("RelRNN", "orth-RNN", "RNN"), size, {"name": "pmnist"}, epochs=40)
    title = "Permuted MNIST: validation accuracy by epoch"
    return _experiment("figure8", title, "curves", _MNIST, "validation accuracy", 0.9, runs, size)


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
        notes=_NOTES,
    )
