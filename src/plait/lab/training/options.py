"""Options of `plait train`, and the settings that are their defaults for a task and a model.

An option that was not given is None, so that published settings can take its place. The settings of the
published experiments on real data are tables 8 and 9 of the supplement of Kerg et al. A blank in a table is
filled from RelRNN's row and listed in `ours`, and so is a model that is not in the tables. Sizes, epochs and
clipping are those of the published scripts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from plait.errors import ConfigError, check_int
from plait.lab.annotations import field_docs, option
from plait.lab.own_code import is_own_name
from plait.lab.training.recipe import PPOConfig, Recipe, updates_of

if TYPE_CHECKING:
    from plait.lab.tasks import Task

__all__ = [
    "HIDDEN",
    "OF_EPOCHS",
    "PUBLISHED",
    "SMALL_TEXT",
    "ModelOptions",
    "PPOOptions",
    "PolicyOptions",
    "Published",
    "RecipeOptions",
    "RuntimeOptions",
    "TaskOptions",
    "published_for",
    "recommended",
    "settings_for",
]


_OF_MODEL = ("hidden_size", "nonlinearity", "window", "capacity", "initialiser")  # model options of a row
_OF_RECIPE = ("lr", "optimizer", "batch_size", "clip", "schedule", "orthogonal_lr")
OF_EPOCHS = ("updates", "evaluate_every", "evaluate_on")  # options that follow from the size of a data set


@dataclass(frozen=True)
class ModelOptions:
    """Model; an option left out keeps the model's default."""

    name: Annotated[str, option(flag="model")] = "relrnn"
    """rnn, lstm, gru, orthrnn, exprnn, goru, memrnn, memlstm, relrnn, rellstm, relgru, unirnn, unilstm, sab,
    transformer. Or a function of your own, MODULE:NAME, that takes input_size and options."""
    hidden_size: Annotated[int | None, option(flag="hidden")] = None
    """Features of h_t; 128 on most tasks."""
    num_layers: Annotated[int | None, option(flag="layers", default="1")] = None
    """Stacked layers."""
    dropout: Annotated[float | None, option(default="0.0")] = None
    """Dropout probability between layers."""
    bidirectional: bool = False
    """Two directions, each with its own memory; not on text, whose state is carried from span to span."""
    memory: str | None = None
    """transformer: which states a head can read: full, window, relevancy, uniform."""
    window: int | None = None
    """Latest states that can be read."""
    capacity: int | None = None
    """Relevant states kept in addition (with uniform writing: the latest written ones)."""
    relevance: str | None = None
    """Relevance score that decides which states are kept: earned (as published) or learned; for a transformer
    learned."""
    sinks: int | None = None
    """transformer with --memory relevancy: first states that are never evicted; none by default."""
    noise: float | None = None
    """With a learned relevance: scale of the noise on it during training, 0.3 by default."""
    usage: float | None = None
    """With a learned relevance: weight of what it learns from the states that are read, 1 by default."""
    grad_limit: float | None = None
    """With screening: largest element of dL/ds_t, in multiples of the incoming gradient; no limit by
    default."""
    positions: str | None = None
    """transformer with --memory: rotary (true distances; the default), counted (beyond the window only states
    that were kept count), or clamped (up to the window)."""
    every: int | None = None
    """unirnn, unilstm, sab, transformer with --memory uniform: keep every N-th state."""
    top_k: int | None = None
    """sab: states read at a step."""
    heads: int | None = None
    """transformer: attention heads, a divisor of --hidden."""
    nonlinearity: str | None = None
    """Non-linearity of an Elman cell: tanh, modrelu, relu, identity."""
    initialiser: str | None = None
    """Initialiser of the recurrent matrix: henaff, cayley, random, xavier, kaiming, identity."""
    forget_bias: float | None = None
    """LSTM and GRU cells: initial forget-gate bias; 1 is common."""
    chrono: int | None = None
    """LSTM and GRU cells: chrono initialisation of the gates, time scales up to N steps drawn per unit; not
    with --forget-bias."""
    mix: float | None = None
    """s_t = mix · (h_t + c_t)."""


@dataclass(frozen=True)
class TaskOptions:
    """Task; an option left out keeps the task's default."""

    delay: int | None = None
    """T, number of steps to remember the symbols for."""
    shortest_delay: int | None = None
    """copy, transfer, denoise: train at this delay, its double, … and --delay; scored at --delay."""
    lead_in: int | None = None
    """copy, transfer: number of blanks before the symbols; mqar: random symbols before the pairs."""
    test_delays: tuple[int, ...] | None = None
    """transfer, denoise: delays of the held-out sequences."""
    length: int | None = None
    """recall, mqar: steps of a sequence."""
    at: int | None = None
    """recall: step that shows the symbol; left out, it is drawn for every sequence."""
    pairs: int | None = None
    """mqar: number of key-value pairs to remember."""
    vocab: int | None = None
    """mqar: size of the vocabulary, half of it keys."""
    after: int | None = None
    """mqar: steps between a queried key and the answer; 0 as published."""
    group: int | None = None
    """smnist, pmnist: pixels per step."""
    subset: int | None = None
    """smnist, pmnist: train on the first N images."""
    images: str | None = None
    """smnist, pmnist: folder of IDX files with MNIST's names, instead of MNIST."""
    text: tuple[str, ...] | None = None
    """text: one file, or three: to train, validate, test."""
    span: int | None = None
    """ptb, text: characters per span of truncated backpropagation."""
    embedding: int | None = None
    """ptb, text, mqar: size of the embedding of a character or symbol."""
    memory_across_spans: bool = False
    """ptb, text: carry the memory from span to span; without it the memory is emptied."""
    begin_with: str | None = None
    """ptb, text: initial state of a span after the memory was emptied: s (s_T) or h (h_T)."""


@dataclass(frozen=True)
class RuntimeOptions:
    """Device, limits and output; they do not change the id of the run."""

    out: Path = Path("runs")
    """Folder of runs; this run gets a folder inside it, named by its id."""
    device: str | None = None
    """auto (cuda if there is one), cpu, cuda, cuda:N; auto if left out, cpu for a policy."""
    threads: int | None = None
    """Torch threads on the CPU; left out, torch's choice (OMP_NUM_THREADS), or a resumed run's own."""
    checkpoint_every: int | None = None
    """Updates between two checkpoints; 500 if left out, 10 for a policy."""
    max_minutes: float | None = None
    """Save and stop after this many minutes."""
    quiet: bool = False
    """Show no progress."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run's folder."""


def _optional(
    kind: type, by_task: frozenset[str] = frozenset(), usually: Mapping[str, Any] = MappingProxyType({})
) -> list[tuple[str, Any, Any]]:
    """Return the fields of a dataclass with None for "not given", their defaults in the help.

    `usually` replaces defaults; a field with the value None there is left out.
    """
    words, hints = field_docs(kind), get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, Any, Any]] = []
    for part in dataclasses.fields(kind):
        default = usually.get(part.name, part.default)
        if default is None and part.name in usually:
            continue
        hint, mark = hints[part.name], option()
        if get_origin(hint) is Annotated:
            hint, mark = get_args(hint)
        mark = dataclasses.replace(mark, help=words.get(part.name, ""))
        if hint is bool:  # a switch has no third value
            fields.append((part.name, Annotated[bool, mark], dataclasses.field(default=False)))
            continue
        usual = mark.default or "" if default is None else str(default)
        usual += ", or by the task" if part.name in by_task else ""
        mark = dataclasses.replace(mark, default=usual.removeprefix(", or "))
        fields.append((part.name, Annotated[hint | None, mark], dataclasses.field(default=None)))
    return fields


# A policy acts step by step, so it has one direction; sampling its actions replaces the noise on relevance.
# Window and capacity are the published ones.
_OF_POLICY = {
    "name": "rellstm; none is a policy without memory",
    "hidden_size": 64,
    "window": 5,
    "capacity": 5,
    "bidirectional": None,
    "noise": None,
}

if TYPE_CHECKING:
    PolicyOptions = ModelOptions
    RecipeOptions = Recipe
    PPOOptions = PPOConfig
else:
    PolicyOptions = dataclasses.make_dataclass(
        "PolicyOptions", _optional(ModelOptions, usually=_OF_POLICY), frozen=True
    )
    PolicyOptions.__doc__ = "The policy's memory; an option left out has the default shown."
    PPOOptions = dataclasses.make_dataclass("PPOOptions", _optional(PPOConfig), frozen=True)
    PPOOptions.__doc__ = "PPO hyperparameters; an option left out has the default shown."
    RecipeOptions = dataclasses.make_dataclass(
        "RecipeOptions", _optional(Recipe, frozenset({*_OF_RECIPE, *OF_EPOCHS})), frozen=True
    )
    RecipeOptions.__doc__ = "Hyperparameters; an option left out is as published, or the default shown."


def recommended(
    task: Task,
    model: dict[str, Any],
    recipe: dict[str, Any],
    epochs: int | None = None,
    on_cpu: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of model and recipe, completed with the task's settings and the general defaults.

    On a data set, all held-out data are evaluated after every epoch by default.
    """
    from plait.lab.tasks import TASKS

    names = _option_names(model["name"])
    row = settings_for(task.name, model["name"], on_cpu) if type(task) in TASKS.values() else None
    size = {"hidden_size": HIDDEN} if "hidden_size" in names else {}
    model = {**size, **(row.model(names, model) if row else {}), **model}
    values = {**Recipe().values(), **(row.recipe() if row else {}), **recipe}
    if epochs is not None:
        if "updates" in recipe:
            raise ConfigError("expected --epochs or --updates, got both")
        values["updates"] = updates_of(task, values["batch_size"], epochs)
    check_int(1, batch_size=values["batch_size"])
    per_epoch = task.batches_per_epoch(values["batch_size"])
    if per_epoch is not None:
        count = epochs or (row.epochs if isinstance(row, Published) else 1)
        usual = {"updates": count * per_epoch, "evaluate_every": per_epoch, "evaluate_on": None}
        values |= {name: value for name, value in usual.items() if name not in recipe}
    return model, values


def _option_names(model: str) -> frozenset[str]:
    """Return the names of a model's options; of an unknown one only its size, which every model has."""
    from plait.lab.training.factories import option_names
    from plait.models import MODELS
    from plait.models.options import model_defaults

    if is_own_name(model):
        return frozenset(option_names(model))
    return frozenset(model_defaults(model) if model in MODELS else ("hidden_size",))


@dataclass(frozen=True)
class Published:
    """One row of published settings.

    `orthogonal_lr` is the learning rate of orthogonal matrices' parameters, `initialiser` that of an Elman
    cell's recurrent matrix; `ours` names the values that are not published.
    """

    lr: float
    optimizer: str
    nonlinearity: str | None
    window: int
    capacity: int
    hidden_size: int
    batch_size: int
    epochs: int
    clip: float
    initialiser: str
    schedule: str = "constant"
    orthogonal_lr: float | None = None
    ours: tuple[str, ...] = ()

    def model(
        self, names: frozenset[str], options: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the model options of this row, limited to those the model has (`names`)."""
        # The initialiser is for Elman cells, which are recognised by their non-linearity.
        wanted = [name for name in _OF_MODEL if name != "initialiser" or "nonlinearity" in names]
        if "memory" in names:  # a Transformer, which no table has
            wanted = [name for name in wanted if name not in ("window", "capacity")]
        return {name: getattr(self, name) for name in wanted if name in names}

    def recipe(self) -> dict[str, Any]:
        """Return the recipe values of this row; `epochs` becomes updates once the task is known."""
        values = {name: getattr(self, name) for name in _OF_RECIPE}
        return values if self.orthogonal_lr is not None else _without(values, "orthogonal_lr")


@dataclass(frozen=True)
class Drawn:
    """Default settings of tasks whose sequences are drawn, and which no publication tabulates.

    The learning rate settles and non-finite gradients are skipped; on the tasks of ten symbols RelRNN and
    gated cells with a memory get the settings that learn copy fastest without losing it again
    (results/memory).
    """

    TASKS = ("copy", "transfer", "denoise", "recall", "mqar")
    OF_TEN_SYMBOLS = TASKS[:3]
    STEADY = MappingProxyType({"optimizer": "amsgrad", "clip": 0.1})
    RATES = MappingProxyType({"relrnn": 2e-3, "memlstm": 4e-3, "rellstm": 4e-3, "relgru": 4e-3})
    GUARD = 1e6  # a lower limit clips rare batches that are still informative
    task: str
    name: str

    def model(
        self, names: frozenset[str], options: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the model options, limited to those the model has; `options` given may exclude some."""
        values: dict[str, Any] = {}
        if not self._is_ours or self.name == "relrnn":
            return values
        if options.get("chrono") is None:
            values["forget_bias"] = 1.0
        if "relevance" in names:
            values |= {"capacity": 15, "relevance": "learned", "grad_limit": 1.0}
        return values

    def recipe(self) -> dict[str, Any]:
        """Return the recipe values."""
        ours = {**self.STEADY, "lr": self.RATES[self.name]} if self._is_ours else {}
        return {"schedule": "settle", "relative_clip": self.GUARD, **ours}

    @property
    def _is_ours(self) -> bool:
        return self.task in self.OF_TEN_SYMBOLS and self.name in self.RATES


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


_EVERY = ("lr", "optimizer", "nonlinearity", "window", "capacity")


def _mnist(lr: float = 3e-4, clip: float = 0.0, ours: tuple[str, ...] = (), **other: Any) -> Published:
    """Return a row of table 8, whose non-linearity is modrelu."""
    return Published(lr, "adam", "modrelu", 10, 10, 100, 100, 200, clip, "henaff", ours=ours, **other)


def _treebank(lr: float = 3e-4, ours: tuple[str, ...] = (), **other: Any) -> Published:
    """Return a row of table 9, where ρ is 5."""
    return Published(lr, "adam", "tanh", 10, 5, 1024, 128, 100, 0.0, "cayley", "halve", ours=ours, **other)


_NO_OPTIMIZER = ("optimizer",)
PUBLISHED: dict[str, dict[str, Published]] = {
    "mnist": {
        "orthrnn": _mnist(1e-4),
        "exprnn": _mnist(1e-4, orthogonal_lr=1e-5),
        "lstm": _mnist(2e-4, clip=1.0, ours=_NO_OPTIMIZER),
        "goru": _mnist(ours=_EVERY),
        "relrnn": _mnist(),
        "rellstm": _mnist(clip=1.0, ours=_EVERY),
    },
    "treebank": {
        "orthrnn": _treebank(1e-3),
        "exprnn": _treebank(3e-3, orthogonal_lr=3e-4),
        "lstm": _treebank(2e-4, ours=_NO_OPTIMIZER),
        "goru": _treebank(ours=_EVERY),
        "relrnn": _treebank(),
    },
}
_OTHERS = {"mnist": _mnist(ours=_EVERY), "treebank": _treebank(ours=_EVERY)}
HIDDEN = 128  # default number of features
# For a user's text on a CPU: the published sizes take a day there, these take minutes for a book.
SMALL_TEXT = Published(2e-3, "adam", "tanh", 10, 10, 128, 32, 5, 1.0, "cayley", "halve", ours=_EVERY)
_TABLE_OF = {"smnist": "mnist", "pmnist": "mnist", "ptb": "treebank", "text": "treebank"}


def published_for(task: str, model: str) -> Published | None:
    """Return the row for a task and a model by their names; None for a task that is not in the tables.

    >>> row = published_for("ptb", "exprnn")
    >>> row.lr, row.orthogonal_lr, row.capacity, row.ours
    (0.003, 0.0003, 5, ())
    >>> published_for("pmnist", "goru").ours
    ('lr', 'optimizer', 'nonlinearity', 'window', 'capacity')
    >>> published_for("copy", "relrnn") is None
    True
    """
    table = _TABLE_OF.get(task)
    return None if table is None else PUBLISHED[table].get(model, _OTHERS[table])


def settings_for(task: str, model: str, on_cpu: bool) -> Published | Drawn | None:
    """Return the default settings of a run: published, ours, or small ones for a user's text on a CPU."""
    if task in Drawn.TASKS:
        return Drawn(task, model)
    return SMALL_TEXT if on_cpu and task == "text" else published_for(task, model)
