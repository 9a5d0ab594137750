"""What a supervised run is: plain data, checked, and the network it describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from plait.cells import INITIALISERS
from plait.errors import ConfigError, PlaitError, known
from plait.estimates import check_weights
from plait.models import MODELS, Recurrent
from plait.models.options import check_model, model_defaults
from plait.strict import checked as strictly
from plait.tasks import TASKS, Task, task_named
from plait.training.recipe import Recipe

__all__ = [
    "FORMAT", "Network", "build", "checked", "completed", "describe", "network_for", "network_of",
]  # fmt: skip

FORMAT = "plait run 1"
_SPREAD = 0.1  # embeddings and what reads them out begin uniform within ± this, as published


class Network(nn.Module):
    """logits_t = W h_t + b, with h_t from `recurrent`.

    b begins at zero; W xavier-normal, or with a vocabulary uniform in ±0.1 as the embedding.

    Args:
        recurrent: maps (T, B, input_size) and a state to (T, B, hidden_size) and a state.
        num_classes: of the logits.
        vocabulary: how many symbols there are, for inputs (T, B) that are symbols; None for features.
        reads: "all" steps, or the "last" alone: then no logits are computed or kept for those before it.

    >>> from plait.models import RelRNN
    >>> Network(RelRNN(10, 16), 9)(torch.zeros(7, 2, 10))[0].shape
    torch.Size([7, 2, 9])
    >>> Network(RelRNN(10, 16), 9, vocabulary=5, reads="last")(torch.tensor([[4], [0]]))[0].shape
    torch.Size([1, 1, 9])
    """

    def __init__(
        self,
        recurrent: Recurrent | nn.RNNBase,
        num_classes: int,
        vocabulary: int | None = None,
        reads: str = "all",
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.reads = known(reads, ("all", "last"), "reads")
        check_weights((vocabulary or 0) * recurrent.input_size + num_classes * recurrent.hidden_size)
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, recurrent.input_size)
        self.decoder = nn.Linear(recurrent.hidden_size, num_classes)
        nn.init.xavier_normal_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)
        weight = next(recurrent.parameters())
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -_SPREAD, _SPREAD)
            nn.init.uniform_(self.decoder.weight, -_SPREAD, _SPREAD)
            self.embedding.to(weight.device, weight.dtype)
        self.decoder.to(weight.device, weight.dtype)

    def forward(self, inputs: Tensor, state: Any = None, **options: Any) -> Any:
        """Logits (T or 1, B, classes) and state, and what else the recurrent model returns.

        `options` (`reset`, `nudge`, `need_trace`) are the recurrent model's.
        """
        output, *rest = self.recurrent(self.features(inputs), state, **options)
        return self.decoder(output[-1:] if self.reads == "last" else output), *rest

    def features(self, inputs: Tensor) -> Tensor:
        """What the recurrent model reads: the inputs, or what they are embedded as."""
        return inputs if self.embedding is None else self.embedding(inputs)


def network_for(model: nn.Module, task: Task, seed: int) -> nn.Module:
    """`model`, with an output layer if it is a bare recurrent model; anything else maps to logits itself."""
    if not isinstance(model, Recurrent | nn.RNNBase):
        return model
    if model.batch_first:
        raise ConfigError("model: expected time first, got batch_first=True; tasks give (T, B, F)")
    if model.input_size != task.input_size:
        raise ConfigError(
            f"model: expected input_size {task.input_size} as {task.name!r} has, got {model.input_size}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(model, task.num_classes, task.vocabulary, task.reads)


def describe(network: nn.Module, task: Task, recipe: Recipe) -> dict[str, Any]:
    """The run of `network` on `task` by `recipe`, ready for JSON.

    A model or task that has no name here is described by its class; such a run can be resumed and loaded
    by whoever has the object.
    """
    named = TASKS.get(task.name) is type(task)
    return {
        "format": FORMAT,
        "task": {**({"name": task.name} if named else {"class": _class_name(task)}), **task.options()},
        "model": _describe_model(network),
        "recipe": recipe.values(),
    }


def build(description: dict[str, Any], backend: str = "auto") -> tuple[Network, Task]:
    """The network, as it is before the first update, and the task of a description.

    Weights are drawn on the CPU from the recipe's seed, so they are the same wherever the run is computed.

    >>> network, task = build({"task": {"name": "copy"}, "model": {"name": "rnn", "hidden_size": 4}})
    >>> describe(network, task, Recipe())["model"]["initialiser"]
    'henaff'
    """
    for part in ("task", "model"):
        if "class" in description[part]:
            raise ConfigError(
                f"this run's {part} is {description[part]['class']}, which has no name here; "
                "make it in Python and pass it"
            )
    task = task_named(**description["task"])
    options = dict(description["model"])
    name = known(options.pop("name", ""), MODELS, "model")
    for option in options:
        known(option, model_defaults(name), f"option of {name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(description.get("recipe", {}).get("seed", Recipe.seed))
        recurrent = MODELS[name](task.input_size, backend=backend, **options)
        _begin_inputs(recurrent, task.input_initialiser)
        return Network(recurrent, task.num_classes, task.vocabulary, task.reads), task


def network_of(description: dict[str, Any], backend: str = "auto") -> Network:
    """The network of a description alone."""
    return build(description, backend)[0]


def _begin_inputs(recurrent: Recurrent, initialiser: str) -> None:
    """Draw the first layer's input weights as the task's published experiments do, where it is not usual."""
    cell = getattr(recurrent.layers[0], "cell", None)
    if initialiser == Task.input_initialiser or cell is None:
        return
    with torch.no_grad():
        for block in cell.weight_ih.split(cell.hidden_size):
            INITIALISERS[initialiser](block)


def _describe_model(network: nn.Module) -> dict[str, Any]:
    model = network.recurrent if isinstance(network, Network) else network
    name = type(model).__name__.lower()
    if MODELS.get(name) is not type(model):
        return _describe_stranger(network)
    options = model.options()
    return _describe_stranger(network) if options is None else {"name": name, **options}


def _describe_stranger(network: nn.Module) -> dict[str, Any]:
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    return {"class": _class_name(network), "weights": shapes}


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def checked(values: Any) -> dict[str, Any]:
    """A description with its recipe complete, or one error that lists everything that is wrong with it.

    >>> checked({"task": {"name": "cpy"}, "model": {"name": "lstm", "hidden_size": 0}, "recipe": {"lr": -1}})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: unknown task 'cpy': did you mean 'copy'? (one of: copy, denoise, mqar, pmnist, ptb, recall, smnist, text, transfer); hidden_size: expected at least 1, got 0; lr: expected at least 0, got -1.0
    """  # noqa: E501  (the message is one line)
    if not isinstance(values, dict) or values.get("format", FORMAT) != FORMAT:
        found = values.get("format") if isinstance(values, dict) else None
        raise ConfigError(f"format: expected {FORMAT!r}, got {found!r}; it was not written by this version")
    problems = [f"{name}: is not known here" for name in values if name not in _PARTS]
    found = {part: _collect(problems, check, values.get(part)) for part, check in _PARTS.items() if check}
    if problems:
        raise ConfigError("; ".join(problems))
    return {"format": FORMAT, **found}


def _named(part: str, check: Callable[[dict[str, Any]], Any]) -> Callable[[Any], dict[str, Any]]:
    """The check of a part that is a name and options."""

    def checked_part(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ConfigError(f"{part}: expected a name and options, got {value!r:.80}")
        check(value)
        return dict(value)

    return checked_part


_PARTS: dict[str, Callable[[Any], dict[str, Any]] | None] = {
    "format": None,
    "task": _named("task", lambda task: task_named(**task)),
    "model": _named("model", check_model),
    "recipe": lambda values: strictly(Recipe, {} if values is None else values, "recipe").check().values(),
}


def _collect(problems: list[str], check: Callable[[Any], Any], value: Any) -> Any:
    """What a check gives; what it raises joins the problems."""
    try:
        return check(value)
    except PlaitError as error:
        problems.append(str(error))


def completed(values: dict[str, Any]) -> dict[str, Any]:
    """A checked description with every option of the model that was left to its default."""
    values = checked(values)
    return describe(*build(values), Recipe(**values["recipe"]))
