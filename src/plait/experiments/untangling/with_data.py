"""Tables 8 and 9, figures 7, 8 and 9: what needs MNIST or the Penn Treebank. Declared, not yet runnable."""

from __future__ import annotations

from typing import Any

from plait.experiments.description import Experiment, Kind, PlannedRun
from plait.experiments.untangling.contestants import SOURCE
from plait.experiments.untangling.size import Size

__all__ = ["figure7", "figure8", "figure9", "table8", "table9"]

_BLANK = "Ours: rates and optimisers the table leaves blank (of LSTM and GORU) are those of RelRNN's row."
_ADAM = {"optimizer": "adam"}
# model with its options, and its training
_MNIST: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "orth-RNN": ({"name": "orthrnn", "nonlinearity": "modrelu"}, {"lr": 1e-4}),
    "expRNN": ({"name": "exprnn", "nonlinearity": "modrelu"}, {"lr": 1e-4, "orthogonal_lr": 1e-5}),
    "LSTM": ({"name": "lstm"}, {"lr": 2e-4}),
    "GORU": ({"name": "goru"}, {"lr": 3e-4}),
    "RelRNN": (
        {"name": "relrnn", "nonlinearity": "modrelu", "window": 10, "capacity": 10},
        {"lr": 3e-4},
    ),
}
_TREEBANK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "orth-RNN": ({"name": "orthrnn", "nonlinearity": "tanh"}, {"lr": 1e-3}),
    "expRNN": ({"name": "exprnn", "nonlinearity": "tanh"}, {"lr": 3e-3, "orthogonal_lr": 3e-4}),
    "LSTM": ({"name": "lstm"}, {"lr": 2e-4}),
    "GORU": ({"name": "goru"}, {"lr": 3e-4}),
    "RelRNN": ({"name": "relrnn", "nonlinearity": "tanh", "window": 10, "capacity": 5}, {"lr": 3e-4}),
}


def table8(size: Size) -> Experiment:
    """Sequential and permuted MNIST."""
    runs = [
        run
        for row, task in (("sequential", "mnist"), ("permuted", "pmnist"))
        for run in _rows(row, {"name": task}, _MNIST, {"hidden_size": 100}, {"batch_size": 100})
    ]
    return _declared("table8", "MNIST, one pixel at a time", "table", "mnist", "accuracy", runs, size, _BLANK)


def table9(size: Size) -> Experiment:
    """Characters of the Penn Treebank."""
    task = {"name": "ptb", "span": 150}
    runs = _rows("characters", task, _TREEBANK, {"hidden_size": 1024}, {"batch_size": 128, "clip": 0.0})
    metric = "bits per character"
    return _declared(
        "table9", "Penn Treebank, one character at a time", "table", "ptb", metric, runs, size, _BLANK
    )


def figure7(size: Size) -> Experiment:
    """Attention over text."""
    task = {"name": "ptb", "span": 125}
    model = {"MemRNN": ({"name": "memrnn", "nonlinearity": "tanh"}, {"lr": 3e-4})}
    runs = _rows("characters", task, model, {"hidden_size": 1024}, {"batch_size": 128}, trace=True)
    title = "Penn Treebank: full attention over 125 characters"
    return _declared("figure7", title, "attention", "ptb", "attention weight", runs, size)


def figure8(size: Size) -> Experiment:
    """Validation accuracy by epoch."""
    models = {name: _MNIST[name] for name in ("RelRNN", "orth-RNN")}
    models["RNN"] = ({"name": "rnn", "nonlinearity": "modrelu"}, {"lr": 3e-4})
    runs = _rows("permuted", {"name": "pmnist"}, models, {"hidden_size": 100}, {"batch_size": 100})
    title = "Permuted MNIST: validation accuracy by epoch"
    return _declared("figure8", title, "curves", "mnist", "validation accuracy", runs, size)


def figure9(size: Size) -> Experiment:
    """Attention over an image."""
    task = {"name": "mnist", "group": 7}
    model = {"MemRNN": ({"name": "memrnn", "nonlinearity": "modrelu"}, {"lr": 3e-4})}
    runs = _rows("sequential", task, model, {"hidden_size": 100}, {"batch_size": 100}, trace=True)
    title = "MNIST, seven pixels a step: full attention"
    return _declared("figure9", title, "attention", "mnist", "attention weight", runs, size)


def _rows(
    row: str,
    task: dict[str, Any],
    models: dict[str, tuple[dict[str, Any], dict[str, Any]]],
    options: dict[str, Any],
    training: dict[str, Any],
    trace: bool = False,
) -> list[PlannedRun]:
    return [
        PlannedRun(row, column, task, {**model, **options}, {**_ADAM, **training, **own}, trace=trace)
        for column, (model, own) in models.items()
    ]


def _declared(
    name: str,
    title: str,
    kind: Kind,
    needs: str,
    metric: str,
    runs: list[PlannedRun],
    size: Size,
    *notes: str,
) -> Experiment:
    item = name.replace("table", "table ").replace("figure", "figure ")
    return Experiment(
        name=name,
        title=title,
        source=f"{SOURCE}, {item}",
        claim="",
        kind=kind,
        metric=metric,
        updates_to=0.9,
        needs=needs,
        seeds=size.seeds,
        runs=tuple(runs),
        notes=notes,
    )
