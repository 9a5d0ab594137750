"""What a supervised run is: plain data, checked, and the network it describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from plait.cells import INITIALISERS
from plait.errors import ConfigError, PlaitError, known
from plait.estimates import check_weights
from plait.models import MODELS, Recurrent, Transformer
from plait.models.options import check_model, model_defaults
from plait.runs.difference import nameless
from plait.strict import checked as strictly
from plait.tasks import TASKS, Batch, Task, task_named
from plait.tasks.base import Scale
from plait.training.identity import described_class, described_module
from plait.training.recipe import Recipe

__all__ = [
    "FORMAT", "Network", "build", "checked", "completed", "describe", "last_steps", "network_for",
    "network_of", "states_read",
]  # fmt: skip

FORMAT = "plait run 1"
_SPREAD = 0.1  # embeddings and what reads them out begin uniform within ± this, as published


class Network(nn.Module):
    """logits_t = W h_t + b, with h_t from `recurrent`; time first, whatever `recurrent` is.

    b begins at zero; W xavier-normal, or with a vocabulary uniform in ±0.1 as the embedding.

    Args:
        recurrent: maps (T, B, input_size) and a state to (T, B, hidden_size) and a state.
        num_classes: of the logits.
        vocabulary: how many symbols there are, for inputs (T, B) that are symbols; None for features.
        reads: "all" steps, or the "last" alone: then no logits are computed or kept for those before it. Of
            two directions both have read everything then: the forward one at the end, the backward one at
            the beginning.
        scaled: whether inputs and outputs are those of data whose scale is taken in, and given back.

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
        scaled: tuple[bool, bool] = (False, False),
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.reads = known(reads, ("all", "last"), "reads")
        check_weights((vocabulary or 0) * recurrent.input_size + num_classes * recurrent.hidden_size)
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, recurrent.input_size)
        self.decoder = nn.Linear(_output_size(recurrent), num_classes)
        nn.init.xavier_normal_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)
        weight = next(recurrent.parameters())
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -_SPREAD, _SPREAD)
            nn.init.uniform_(self.decoder.weight, -_SPREAD, _SPREAD)
            self.embedding.to(weight.device, weight.dtype)
        self.decoder.to(weight.device, weight.dtype)
        self.input_scale = _Scaled(recurrent.input_size, weight) if scaled[0] else None
        self.output_scale = _Scaled(num_classes, weight) if scaled[1] else None

    def forward(
        self,
        inputs: Tensor,
        state: Any = None,
        *,
        lengths: Tensor | None = None,
        asked: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Logits (T, 1 or Q, B, classes) and state, and what else the recurrent model returns.

        Args:
            lengths: (B,) how many steps of each row are its own, where what follows is padding.
            asked: (Q, B) steps of each row to answer at, and at no other.
            options: `reset`, `nudge`, `need_trace`, of the recurrent model.
        """
        output, *rest = self._read(self.features(inputs), state, lengths, options)
        output = self._asked(output, lengths) if asked is None else _at(output, asked)
        logits = self.decoder(output)
        return logits if self.output_scale is None else self.output_scale.given_back(logits), *rest

    def features(self, inputs: Tensor) -> Tensor:
        """What the recurrent model reads: the inputs, scaled, or what they are embedded as."""
        if self.embedding is not None:
            embedded: Tensor = self.embedding(inputs)
            return embedded
        return inputs if self.input_scale is None else self.input_scale.taken_in(inputs)

    def scale_by(self, inputs: Scale | None, outputs: Scale | None) -> None:
        """Take over the scale of data, where this network has one."""
        for mine, found in ((self.input_scale, inputs), (self.output_scale, outputs)):
            if mine is not None and found is not None:
                mine.mean.copy_(found.mean)
                mine.deviation.copy_(found.deviation)

    def _read(self, x: Tensor, state: Any, lengths: Tensor | None, options: dict[str, Any]) -> Any:
        """The recurrent model's output, time first; a backward direction begins where a row ends."""
        model = self.recurrent
        if lengths is not None and model.bidirectional:
            if isinstance(model, nn.RNNBase):
                packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
                output, *rest = model(packed, state, **options)
                return pad_packed_sequence(output, total_length=len(x))[0], *rest
            steps = torch.arange(len(x), device=x.device).unsqueeze(1)
            ends, reset = steps == lengths, options.get("reset")
            options = {**options, "reset": ends if reset is None else ends | reset}
        if not model.batch_first:
            return model(x, state, **options)
        if options.get("reset") is not None:
            options = {**options, "reset": options["reset"].t()}
        output, *rest = model(x.transpose(0, 1), state, **options)
        return output.transpose(0, 1), *rest

    def _asked(self, output: Tensor, lengths: Tensor | None) -> Tensor:
        if self.reads == "all":
            return output
        last = last_steps(output, lengths)
        if not self.recurrent.bidirectional:
            return last
        half = output.shape[-1] // 2
        return torch.cat([last[..., :half], output[:1, :, half:]], dim=-1)


class _Scaled(nn.Module):
    """Mean and standard deviation as buffers: part of a checkpoint, and of no gradient."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, device=like.device, dtype=like.dtype))
        self.register_buffer("deviation", torch.ones(size, device=like.device, dtype=like.dtype))

    def taken_in(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation

    def given_back(self, values: Tensor) -> Tensor:
        return values * self.deviation + self.mean


def network_on(recurrent: Recurrent | nn.RNNBase, task: Task) -> Network:
    """A network that answers what a task asks."""
    return Network(recurrent, task.num_classes, task.vocabulary, task.reads, task.scaled)


@torch.no_grad()
def states_read(network: nn.Module, batch: Batch) -> dict[str, float]:
    """Return the most states that a head read at a step of a batch, where a Transformer's memory bounds them.

    They are counted in the trace of a call of its own.
    """
    recurrent = network.recurrent if isinstance(network, Network) else None
    if not isinstance(recurrent, Transformer) or recurrent.slots is None:
        return {}
    inputs, options = batch.inputs, {} if batch.reset is None else {"reset": batch.reset}
    if inputs.is_floating_point():
        inputs = inputs.to(recurrent.embedding.weight.dtype)
    *_, traces = network(inputs, lengths=batch.lengths, need_trace=True, **options)
    return {"states_read": recurrent.states_read(traces)}


def last_steps(output: Tensor, lengths: Tensor | None) -> Tensor:
    """(1, B, …): each row's last own step."""
    if lengths is None:
        return output[-1:]
    return _at(output, (lengths - 1).unsqueeze(0))


def _at(output: Tensor, steps: Tensor) -> Tensor:
    """(Q, B, …): each row at steps (Q, B) of its own."""
    return output[steps, torch.arange(steps.shape[1], device=output.device)]


def _output_size(recurrent: Recurrent | nn.RNNBase) -> int:
    if isinstance(recurrent, Recurrent):
        return recurrent.output_size
    return (recurrent.proj_size or recurrent.hidden_size) * (2 if recurrent.bidirectional else 1)


def network_for(model: nn.Module, task: Task, seed: int) -> nn.Module:
    """`model`, with an output layer if it is a bare recurrent model; anything else maps to logits itself."""
    if not isinstance(model, Recurrent | nn.RNNBase):
        return model
    if model.input_size != task.input_size:
        raise ConfigError(
            f"model: expected input_size {task.input_size} as {task.name!r} has, got {model.input_size}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = network_on(model, task)
    network.scale_by(*task.scales())
    return network


def describe(network: nn.Module, task: Task, recipe: Recipe) -> dict[str, Any]:
    """Return the run of `network` on `task` by `recipe`, ready for JSON.

    A model or task that has no name here, or was changed after it was made, is described by its class, its
    parts and the source of what is no library's; such a run can be resumed and loaded by whoever has the
    object. `unidentified` in it says why two such objects could not be told apart.
    """
    model = _describe_named(network)
    return _described(
        task, _describe_stranger(network) if _is_changed(network, task, model) else model, recipe
    )


def _described(task: Task, model: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    named = TASKS.get(task.name) is type(task)
    said = {"name": task.name} if named else {"class": _class_name(task), **described_class(task)}
    return {
        "format": FORMAT,
        "task": {**said, **task.options()},
        "model": model,
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
            raise ConfigError(nameless(part, description[part]))
    task = task_named(**description["task"])
    options = dict(description["model"])
    name = known(options.pop("name", ""), MODELS, "model")
    for option in options:
        known(option, model_defaults(name), f"option of {name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(description.get("recipe", {}).get("seed", Recipe.seed))
        recurrent = MODELS[name](task.input_size, backend=backend, **options)
        _begin_inputs(recurrent, task.input_initialiser)
        return network_on(recurrent, task), task


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


def _describe_named(network: nn.Module) -> dict[str, Any]:
    """Return name and options of a named model, as they were when it was made; empty for any other."""
    model = network.recurrent if type(network) is Network else network
    name = type(model).__name__.lower()
    try:
        options = model.options() if MODELS.get(name) is type(model) else None
    except (TypeError, AttributeError):  # a layer was replaced by one that has no such options
        options = None
    return {} if options is None else {"name": name, **options}


def _is_changed(network: nn.Module, task: Task, model: dict[str, Any]) -> bool:
    """Return whether a network is not the one its name and options make, where it has them."""
    if not model:
        return True
    options = {name: value for name, value in model.items() if name != "name"}
    recurrent: Any = network.recurrent if isinstance(network, Network) else network
    kind = MODELS[model["name"]]
    # Only the form is compared; an orthogonal matrix cannot be made without numbers.
    device = "cpu" if getattr(kind, "orthogonal", False) else "meta"
    with torch.random.fork_rng(devices=[]):
        try:
            again = kind(recurrent.input_size, batch_first=recurrent.batch_first, device=device, **options)
        except (PlaitError, TypeError):  # options of a memory that was put in place of the model's own
            return True
        whole: nn.Module = network_on(again, task) if isinstance(network, Network) else again
    mine = described_module(network)
    return bool(mine.get("sources", True)) or mine != described_module(whole)


def _describe_stranger(network: nn.Module) -> dict[str, Any]:
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    found = described_module(network)
    if type(network) is Network and "parts" in found:
        found["parts"]["recurrent"].pop("batch_first", None)  # a Network reads time first, whatever it is
    return {"class": _class_name(network), "weights": shapes, **found}


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def checked(values: Any) -> dict[str, Any]:
    """A description with its recipe complete, or one error that lists everything that is wrong with it.

    >>> checked({"task": {"name": "cpy"}, "model": {"name": "lstm", "hidden_size": 0}, "recipe": {"lr": -1}})
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: unknown task 'cpy': did you mean 'copy'? (one of: copy, csv, data, denoise, mqar, pmnist, ptb, recall, smnist, text, transfer); hidden_size: expected at least 1, got 0; lr: expected at least 0, got -1.0
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
        if isinstance(value, dict) and "class" in value:
            raise ConfigError(nameless(part, value))
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
    """Return a checked description with every option of the model that was left to its default."""
    values = checked(values)
    network, task = build(values)
    return _described(task, _describe_named(network), Recipe(**values["recipe"]))
