"""The models of the paper's copy and denoise, each by two recipes: as published (tables 6 and 7,
the authors' script), and as we recommend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from plait.errors import known
from plait.experiments.description import PlannedRun
from plait.experiments.untangling.size import Size

__all__ = [
    "COPY",
    "DENOISE",
    "OURS",
    "RECIPES",
    "RECOMMENDED",
    "SOURCE",
    "Contestant",
    "contestants",
    "grid",
    "model_of",
]

SOURCE = "Kerg et al., NeurIPS 2020, arXiv:2006.09471, supplement"
RECIPES = ("published", "plait")
_BY_OURS = ", plait"  # ends a column, so that both recipes can stand in one table


@dataclass(frozen=True)
class Contestant:
    """A model by name with its options, and what its training changes of the recipe; with `chrono` its gates
    begin open for as long as the delay is."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    chrono: bool = False

    def planned(
        self,
        column: str,
        task: str,
        delay: int,
        size: Size,
        full: dict[str, Any] | None = None,
        **others: Any,
    ) -> PlannedRun:
        """The run of this model on a task with one delay; `full` is changed of its recipe at full size."""
        return PlannedRun(
            row=f"T = {delay}",
            column=column,
            task={"name": task, "delay": delay},
            model={
                "name": self.name,
                "hidden_size": size.hidden,
                **self.options,
                **({"chrono": delay} if self.chrono else {}),
            },
            recipe=size.training(full, **self.training),
            **others,
        )


_SCREENED = {"window": 10, "capacity": 10}
_ADAM = {"lr": 2e-4, "optimizer": "adam"}
_RMSPROP = {"lr": 2e-4, "optimizer": "rmsprop"}
_EXPRNN = Contestant("exprnn", {"nonlinearity": "modrelu"}, {**_RMSPROP, "orthogonal_lr": 2e-5})
_GORU = Contestant("goru", {}, {"lr": 1e-3, "optimizer": "rmsprop", "orthogonal_lr": 1e-4})


# Table 6 has no RelLSTM; the authors' script has these as its defaults.
_SCRIPT = Contestant("rellstm", {"window": 10, "capacity": 15}, {"lr": 1e-3, "optimizer": "rmsprop"})


def _published(nonlinearity: str, training: dict[str, Any]) -> dict[str, Contestant]:
    """All of them, where those with a memory and plain ones have this nonlinearity and are trained so."""
    elman = {"nonlinearity": nonlinearity}
    return {
        "LSTM": Contestant("lstm", {}, _ADAM),
        "orth-RNN": Contestant("orthrnn", {"nonlinearity": "modrelu"}, _RMSPROP),
        "expRNN": _EXPRNN,
        "MemRNN": Contestant("memrnn", elman, training),
        "SAB": Contestant("sab", {}, training),
        "RelRNN": Contestant("relrnn", {**elman, **_SCREENED}, training),
        "RelLSTM": _SCRIPT,
        "RNN": Contestant("rnn", elman, training),
        "GORU": _GORU,
        "MemLSTM": Contestant("memlstm", {}, training),
        "Transformer": Contestant("transformer", {"num_layers": 2}, _ADAM),
        "uniform writing": Contestant("unirnn", {**elman, **_SCREENED}, training),
    }


COPY = _published("tanh", _ADAM)
# GORU after expRNN, as in table 7: plans that are written down have this order
_FIRST = ("LSTM", "orth-RNN", "expRNN", "GORU")
_RMSPROPPED = _published("modrelu", _RMSPROP)
DENOISE = {name: _RMSPROPPED[name] for name in dict.fromkeys((*_FIRST, *_RMSPROPPED))}


# The best of each model in `plait reproduce recipes`; the same for copy and denoise, at every delay.
_SLOTS = {"window": 10, "capacity": 15}
_LEARNED = {**_SLOTS, "relevance": "learned"}
_BATCHES = {"batch_size": 32, "clip": 0.1}
RECOMMENDED = {
    "RelRNN": Contestant("relrnn", {**_SLOTS, "mix": 0.75}, {**_BATCHES, "lr": 1e-3}),
    "RelLSTM": Contestant("rellstm", {**_LEARNED, "forget_bias": 1.0}, {**_BATCHES, "lr": 4e-3}),
    "MemRNN": Contestant("memrnn", {"mix": 0.75}, {**_BATCHES, "lr": 2e-3}),
    "LSTM": Contestant("lstm", {}, {**_BATCHES, "lr": 4e-3}, chrono=True),
    "orth-RNN": Contestant("orthrnn", {"nonlinearity": "modrelu"}, {**_BATCHES, **_RMSPROP}),
    "expRNN": replace(_EXPRNN, training={"lr": 1e-3, "optimizer": "rmsprop", "orthogonal_lr": 1e-4}),
}


def contestants(task: str, recipe: str = "published") -> dict[str, Contestant]:
    """The models of copy or denoise by their columns, trained by one of the `RECIPES`."""
    if known(recipe, RECIPES, "recipe") == "published":
        return {"copy": COPY, "denoise": DENOISE}[task]
    return {column + _BY_OURS: one for column, one in RECOMMENDED.items()}


def model_of(column: str) -> str:
    """The model of a column, whichever recipe it is trained by.

    >>> model_of("RelLSTM, plait"), model_of("LSTM")
    ('RelLSTM', 'LSTM')
    """
    return column.removesuffix(_BY_OURS)


# What the supplement leaves open and these experiments share.
OURS = (
    "Ours: a run ends when it makes no mistake on 200 held-out sequences; the paper trained for 200,000 "
    "updates.",
    "Ours: the learning rate of expRNN's and GORU's orthogonal matrices is a tenth of the others', as in the "
    "paper's tables 8 and 9; tables 6 and 7 give one rate.",
    "Ours: seeds 0, 1 and 2; the paper names one seed, 100, of another generator.",
)


def grid(
    contestants: Iterable[tuple[str, Contestant]], task: str, size: Size, *delays: int
) -> list[PlannedRun]:
    """Every contestant at every delay of the size."""
    return [
        contestant.planned(column, task, delay, size)
        for delay in size.delays(*delays)
        for column, contestant in contestants
    ]
