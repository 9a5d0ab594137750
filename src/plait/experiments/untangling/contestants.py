"""The models of the paper's copy and denoise experiments with their hyperparameters (tables 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from plait.experiments.description import PlannedRun
from plait.experiments.untangling.size import Size

__all__ = ["COPY", "DENOISE", "OURS", "SOURCE", "Contestant", "grid"]

SOURCE = "Kerg et al., NeurIPS 2020, arXiv:2006.09471, supplement"


@dataclass(frozen=True)
class Contestant:
    """A model by name with its options, and what its training changes of the recipe."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def planned(self, column: str, task: str, delay: int, size: Size, **others: Any) -> PlannedRun:
        """The run of this model on a task with one delay."""
        return PlannedRun(
            row=f"T = {delay}",
            column=column,
            task={"name": task, "delay": delay},
            model={"name": self.name, "hidden_size": size.hidden, **self.options},
            recipe=size.training(**self.training),
            **others,
        )


_SCREENED = {"window": 10, "capacity": 10}
_ADAM = {"lr": 2e-4, "optimizer": "adam"}
_RMSPROP = {"lr": 2e-4, "optimizer": "rmsprop"}
_EXPRNN = Contestant("exprnn", {"nonlinearity": "modrelu"}, {**_RMSPROP, "orthogonal_lr": 2e-5})
_GORU = Contestant("goru", {}, {"lr": 1e-3, "optimizer": "rmsprop", "orthogonal_lr": 1e-4})


def _contestants(nonlinearity: str, training: dict[str, Any]) -> dict[str, Contestant]:
    """All of them, where those with a memory and plain ones have this nonlinearity and are trained so."""
    elman = {"nonlinearity": nonlinearity}
    return {
        "LSTM": Contestant("lstm", {}, _ADAM),
        "orth-RNN": Contestant("orthrnn", {"nonlinearity": "modrelu"}, _RMSPROP),
        "expRNN": _EXPRNN,
        "MemRNN": Contestant("memrnn", elman, training),
        "SAB": Contestant("sab", {}, training),
        "RelRNN": Contestant("relrnn", {**elman, **_SCREENED}, training),
        "RelLSTM": Contestant("rellstm", _SCREENED, training),
        "RNN": Contestant("rnn", elman, training),
        "GORU": _GORU,
        "MemLSTM": Contestant("memlstm", {}, training),
        "Transformer": Contestant("transformer", {"num_layers": 2}, _ADAM),
        "uniform writing": Contestant("unirnn", {**elman, **_SCREENED}, training),
    }


COPY = _contestants("tanh", _ADAM)
# GORU after expRNN, as in table 7: plans that are written down have this order
_FIRST = ("LSTM", "orth-RNN", "expRNN", "GORU")
_RMSPROPPED = _contestants("modrelu", _RMSPROP)
DENOISE = {name: _RMSPROPPED[name] for name in dict.fromkeys((*_FIRST, *_RMSPROPPED))}

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
