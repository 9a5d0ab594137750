"""The models of the paper's copy and denoise by two recipes: published and recommended.

The published one is that of tables 6 and 7 and the authors' script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plait.errors import check_choice
from plait.lab.experiments.description import PlannedRun
from plait.lab.experiments.untangling.size import Size

__all__ = [
    "BEST_ON_MNIST",
    "GUARDED",
    "OURS",
    "RECIPES",
    "RECOMMENDED",
    "RECOMMENDED_ON_MNIST",
    "RECOMMENDED_ON_TREEBANK",
    "SOURCE",
    "STEADY",
    "Contestant",
    "by_ours",
    "contestants",
    "grid",
    "model_of",
]

SOURCE = "Kerg et al., NeurIPS 2020, arXiv:2006.09471, supplement"
RECIPES = ("published", "plait")
_BY_OURS = ", plait"  # suffix of a column, so that a table can have both recipes


@dataclass(frozen=True)
class Contestant:
    """A model's name and options, and its changes of the training recipe.

    `chrono` initialises the gates for the task's delay (chrono initialisation); `far` has a delay and further
    changes of the recipe from that delay on; `shortest_delay` makes batches of delays from that one on.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    chrono: bool = False
    far: tuple[int, dict[str, Any]] | None = None
    shortest_delay: int = 0

    def planned(
        self,
        column: str,
        task: str,
        delay: int,
        size: Size,
        full: dict[str, Any] | None = None,
        **others: Any,
    ) -> PlannedRun:
        """Return the run of this model on a task with one delay; `full` changes its recipe at full size."""
        return PlannedRun(
            row=f"T = {delay}",
            column=column,
            task={"name": task, "delay": delay, **self._shorter(size)},
            model={
                "name": self.name,
                "hidden_size": size.hidden,
                **self.options,
                **({"chrono": delay} if self.chrono else {}),
            },
            recipe=size.training(full, **{**self.training, **self._further(delay * size.shrink)}),
            **others,
        )

    def changed(self, options: Mapping[str, Any] | None = None, **training: Any) -> Contestant:
        """Return a copy with these options of the model and of its training changed (None: removed)."""
        return replace(
            self,
            options=_without_none({**self.options, **(options or {})}),
            training=_without_none({**self.training, **training}),
        )

    def _shorter(self, size: Size) -> dict[str, int]:
        return {"shortest_delay": self.shortest_delay // size.shrink} if self.shortest_delay else {}

    def _further(self, delay: int) -> dict[str, Any]:
        return self.far[1] if self.far is not None and delay >= self.far[0] else {}


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


_SCREENED = {"window": 10, "capacity": 10}
_ADAM = {"lr": 2e-4, "optimizer": "adam"}
_RMSPROP = {"lr": 2e-4, "optimizer": "rmsprop"}
_EXPRNN = Contestant("exprnn", {"nonlinearity": "modrelu"}, {**_RMSPROP, "orthogonal_lr": 2e-5})
_GORU = Contestant("goru", {}, {"lr": 1e-3, "optimizer": "rmsprop", "orthogonal_lr": 1e-4})


# Table 6 has no RelLSTM; these are the defaults of the authors' script.
_SCRIPT = Contestant("rellstm", {"window": 10, "capacity": 15}, {"lr": 1e-3, "optimizer": "rmsprop"})


def _published(nonlinearity: str, training: dict[str, Any]) -> dict[str, Contestant]:
    """Return all models; those with a memory and plain RNNs get this nonlinearity and this training."""
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
# GORU after expRNN, as in table 7: the experiment.json of existing folders has this order
_FIRST = ("LSTM", "orth-RNN", "expRNN", "GORU")
_RMSPROPPED = _published("modrelu", _RMSPROP)
DENOISE = {name: _RMSPROPPED[name] for name in dict.fromkeys((*_FIRST, *_RMSPROPPED))}


# The best settings of each model in `plait reproduce recipes`, for every delay of copy; `far` adds to them.
_SLOTS = {"window": 10, "capacity": 15}
_LEARNED = {**_SLOTS, "relevance": "learned"}
_BATCHES = {"batch_size": 32, "clip": 0.1}
# Half the learning rate, relative clipping of the gradient's norm, and a decaying schedule: at these delays
# orth-RNN and MemRNN diverged or stalled without these settings. RelRNN and RelLSTM were worse with the
# clipping and the schedule (`table5-tried`).
STEADY = {"relative_clip": 100.0, "schedule": "settle"}
# Skips gradients that are non-finite or a million times the usual norm; a lower threshold keeps RelRNN from
# learning. Without it 7 of 31 runs of RelRNN ended in such a gradient, with it 1 of 27, at a delay of 2000.
GUARDED = {"relative_clip": 1e6}
RECOMMENDED = {
    "RelRNN": Contestant("relrnn", {**_SLOTS, "mix": 0.75}, {**_BATCHES, **GUARDED, "lr": 1e-3}),
    "RelLSTM": Contestant("rellstm", {**_LEARNED, "forget_bias": 1.0}, {**_BATCHES, "lr": 4e-3}),
    "MemRNN": Contestant(
        "memrnn", {"mix": 0.75}, {**_BATCHES, "lr": 2e-3}, far=(500, {**STEADY, "lr": 1e-3})
    ),
    "LSTM": Contestant("lstm", {}, {**_BATCHES, "lr": 4e-3}, chrono=True),
    "orth-RNN": Contestant(
        "orthrnn", {"nonlinearity": "modrelu"}, {**_BATCHES, **_RMSPROP}, far=(1000, {**STEADY, "lr": 1e-4})
    ),
    "expRNN": replace(_EXPRNN, training={"lr": 1e-3, "optimizer": "rmsprop", "orthogonal_lr": 1e-4}),
}

# Not searched: uniform writing is trained as RelRNN is, and SAB, whose cell is an LSTM, as RelLSTM is.
RECOMMENDED_ON_COPY = {
    **RECOMMENDED,
    "SAB": Contestant("sab", {"forget_bias": 1.0}, {**_BATCHES, "lr": 4e-3}),
    "uniform writing": replace(RECOMMENDED["RelRNN"], name="unirnn"),
}
# Trained at a delay of 1000 alone, no model of ours learned denoise; with delays from this one on, RelRNN did
# (results/memory). Scored at the delay of the row, like all.
_FROM = 30
RECOMMENDED_ON_DENOISE = {
    column: replace(model, shortest_delay=_FROM) for column, model in {**RECOMMENDED, "GORU": _GORU}.items()
}

# On real data no model ends by making no mistake: the learning rate is halved when the loss stalls.
_HALVED = {"lr": 1e-3, "clip": 1.0, **GUARDED, "schedule": "halve"}
_IMAGES = {**_HALVED, "batch_size": 100}
_PIXELS = {"hidden_size": 128, "chrono": 784}
_ELMAN = {"hidden_size": 128, **_SLOTS, "mix": 0.75}
_MODRELU = {"hidden_size": 128, "nonlinearity": "modrelu", "initialiser": "henaff"}
_OTHERS_ON_MNIST = ("RelRNN", "orth-RNN", "expRNN")
BEST_ON_MNIST = {  # by validation; on sequential MNIST RelLSTM and LSTM were tried at 0.002 alone
    "pmnist": ("RelLSTM, lr 0.004", "LSTM, lr 0.004", *_OTHERS_ON_MNIST),
    "smnist": ("RelLSTM, lr 0.002", "LSTM, lr 0.002", *_OTHERS_ON_MNIST),
}
RECOMMENDED_ON_MNIST = {
    "RelLSTM": Contestant("rellstm", {**_PIXELS, **_SLOTS}, _IMAGES),
    "RelLSTM, lr 0.002": Contestant("rellstm", {**_PIXELS, **_SLOTS}, {**_IMAGES, "lr": 2e-3}),
    "RelLSTM, lr 0.004": Contestant("rellstm", {**_PIXELS, **_SLOTS}, {**_IMAGES, "lr": 4e-3}),
    "RelLSTM, learned": Contestant("rellstm", {**_PIXELS, **_LEARNED}, _IMAGES),
    "RelRNN": Contestant("relrnn", _ELMAN, _IMAGES),
    "RelRNN, lr 0.002": Contestant("relrnn", _ELMAN, {**_IMAGES, "lr": 2e-3}),
    "RelRNN, modrelu": Contestant("relrnn", {**_MODRELU, **_SLOTS}, _IMAGES),
    "LSTM": Contestant("lstm", _PIXELS, _IMAGES),
    "LSTM, lr 0.002": Contestant("lstm", _PIXELS, {**_IMAGES, "lr": 2e-3}),
    "LSTM, lr 0.004": Contestant("lstm", _PIXELS, {**_IMAGES, "lr": 4e-3}),
    "orth-RNN": Contestant("orthrnn", _MODRELU, {**_IMAGES, "lr": 5e-4}),
    "expRNN": Contestant("exprnn", _MODRELU, {**_IMAGES, "orthogonal_lr": 1e-4}),
}
_TEXT = {**_HALVED, "batch_size": 128}
RECOMMENDED_ON_TREEBANK = {  # RelLSTM with 848 features has 0.994 of the parameters of LSTM with 1024
    "RelLSTM": Contestant(
        "rellstm", {"hidden_size": 848, "window": 10, "capacity": 5, "forget_bias": 1.0}, _TEXT
    ),
    "LSTM": Contestant("lstm", {"hidden_size": 1024, "forget_bias": 1.0}, _TEXT),
}


def contestants(task: str, recipe: str = "published") -> dict[str, Contestant]:
    """Return the models of copy or denoise by column, trained by one of the `RECIPES`."""
    if check_choice(recipe, RECIPES, "recipe") == "published":
        return {"copy": COPY, "denoise": DENOISE}[task]
    return by_ours({"copy": RECOMMENDED_ON_COPY, "denoise": RECOMMENDED_ON_DENOISE}[task])


def by_ours(contestants: Mapping[str, Contestant]) -> dict[str, Contestant]:
    """Return the models with columns that name our recipe."""
    return {column + _BY_OURS: model for column, model in contestants.items()}


def model_of(column: str) -> str:
    """Return the model of a column, without its recipe.

    >>> model_of("RelLSTM, plait"), model_of("LSTM")
    ('RelLSTM', 'LSTM')
    """
    return column.removesuffix(_BY_OURS)


# The choices that the supplement leaves open, shared by these experiments.
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
    """Return the runs of every model at every delay of the size."""
    return [
        contestant.planned(column, task, delay, size)
        for delay in size.delays(*delays)
        for column, contestant in contestants
    ]
