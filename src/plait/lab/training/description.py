"""The network of a supervised run: built from its description, and described when it was built in Python."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from plait.cells import INITIALISERS
from plait.errors import ConfigError, PlaitError, check_choice
from plait.estimates import check_weights
from plait.lab.tasks import TASKS, Batch, Task
from plait.lab.tasks.base import Scale
from plait.lab.training.identity import described_class, described_module
from plait.lab.training.predictor import predict_data
from plait.lab.training.recipe import Recipe
from plait.lab.training.spec import ModelSpec, PythonModel, SupervisedSpec, supervised
from plait.models import MODELS, Recurrent, Transformer

__all__ = [
    "Network",
    "build",
    "describe",
    "last_steps",
    "network_for",
    "network_of",
    "spec_of",
    "states_read",
]

_SPREAD = 0.1  # embedding and decoder weights start uniform in ± this, as published


class Network(nn.Module):
    """A recurrent model with an output layer: logits_t = W h_t + b, h_t from `recurrent`.

    Inputs and logits are time first, even if `recurrent` is batch first. b is initialised to zero, W
    xavier-normal, or with a vocabulary uniform in ±0.1 as the embedding.

    Args:
        recurrent: maps (T, B, input_size) and a state to (T, B, hidden_size) and a state.
        num_classes: number of logits of a step.
        vocabulary: size of the vocabulary, for inputs (T, B) that are symbols; None for features.
        reads: "all" steps, or only the "last": no logits are computed or kept for earlier steps. A
            bidirectional model then reads the forward direction at the last step and the backward direction
            at the first, where each has read the whole sequence.
        scaled: whether inputs are standardised, and outputs scaled back, with the scale of the data.
        anchor: feature that is added to the output, which is then predicted as a change from it.

    >>> from plait.models import RelRNN
    >>> Network(RelRNN(10, 16), 9)(torch.zeros(7, 2, 10))[0].shape
    torch.Size([7, 2, 9])
    >>> Network(RelRNN(10, 16), 9, vocabulary=5, reads="last")(torch.tensor([[4], [0]]))[0].shape
    torch.Size([1, 1, 9])
    """

    anchor: int | None = None

    def __init__(
        self,
        recurrent: Recurrent | nn.RNNBase,
        num_classes: int,
        vocabulary: int | None = None,
        reads: str = "all",
        scaled: tuple[bool, bool] = (False, False),
        anchor: int | None = None,
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        if anchor is not None:
            self.anchor = anchor
        self.reads = check_choice(reads, ("all", "last"), "reads")
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
        at_steps: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Return logits (T, 1 or Q, B, classes), the state, and further outputs of the recurrent model.

        Args:
            lengths: (B,) number of valid steps of each row; the rest is padding.
            at_steps: (Q, B) steps of each row to compute logits at; None for those of `reads`.
            options: `reset`, `nudge`, `need_trace`, of the recurrent model.
        """
        output, *rest = self._read(self.features(inputs), state, lengths, options)
        output = self._select(output, lengths) if at_steps is None else _at(output, at_steps)
        logits = self.decoder(output)
        if self.output_scale is not None:
            logits = self.output_scale.denormalise(logits)
        if self.anchor is not None:
            logits = logits + inputs[..., self.anchor : self.anchor + 1]
        return logits, *rest

    @cached_property
    def task(self) -> Task:
        """The task it was trained on, without its data; set by `plait.load` and `plait.fit`."""
        raise ConfigError("predict: expected a network that plait.load or plait.fit returns, got a new one")

    def predict(
        self, data: Any, *, batch_first: bool = True, missing: str | None = None
    ) -> dict[str, list[Any]]:
        """Predict from new data by the names of columns and classes, for a network trained on a user's data.

        Returns columns: `prediction` (a class by its name, or a number; a list for several targets),
        `probability` of that class, and with a table its own columns, or those that name a sequence.

        Args:
            data: for a run on a table, a CSV file, a DataFrame or columns by name; the target may be absent.
                For any run, an array (N, T, F), or a list of (T_i, F).
            batch_first: whether an array is (N, T, F), as data usually are, or (T, N, F).
            missing: how to fill missing features of a table: mean (of the training data) or previous; as in
                training if left out.
        """
        return predict_data(self, self.task, data, batch_first=batch_first, missing=missing)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the recurrent model: the embedded symbols, or the standardised features."""
        if self.embedding is not None:
            embedded: Tensor = self.embedding(inputs)
            return embedded
        return inputs if self.input_scale is None else self.input_scale.normalise(inputs)

    def scale_by(self, inputs: Scale | None, outputs: Scale | None) -> None:
        """Set the scale of inputs and outputs to that of the data, where this network standardises them."""
        for buffers, scale in ((self.input_scale, inputs), (self.output_scale, outputs)):
            if buffers is not None and scale is not None:
                buffers.mean.copy_(scale.mean)
                buffers.deviation.copy_(scale.deviation)

    def _read(self, x: Tensor, state: Any, lengths: Tensor | None, options: dict[str, Any]) -> Any:
        """Return the recurrent output, time first; a backward direction starts at a row's last valid step."""
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

    def _select(self, output: Tensor, lengths: Tensor | None) -> Tensor:
        if self.reads == "all":
            return output
        last = last_steps(output, lengths)
        if not self.recurrent.bidirectional:
            return last
        half = output.shape[-1] // 2
        return torch.cat([last[..., :half], output[:1, :, half:]], dim=-1)


class _Scaled(nn.Module):
    """Mean and standard deviation as buffers: saved in a checkpoint, not trained."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, device=like.device, dtype=like.dtype))
        self.register_buffer("deviation", torch.ones(size, device=like.device, dtype=like.dtype))

    def normalise(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation

    def denormalise(self, values: Tensor) -> Tensor:
        return values * self.deviation + self.mean


def network_on(recurrent: Recurrent | nn.RNNBase, task: Task) -> Network:
    """Return a `Network` around `recurrent` with the inputs and outputs of a task."""
    return Network(recurrent, task.num_classes, task.vocabulary, task.reads, task.scaled, task.anchor)


@torch.no_grad()
def states_read(network: nn.Module, batch: Batch) -> dict[str, float]:
    """Return the largest number of states a head read at a step of a batch, for bounded Transformers only.

    The states are counted in the trace of a separate forward pass.
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
    """Return (1, B, …): each row's last valid step."""
    if lengths is None:
        return output[-1:]
    return _at(output, (lengths - 1).unsqueeze(0))


def _at(output: Tensor, steps: Tensor) -> Tensor:
    """Return (Q, B, …): each row at its own steps (Q, B)."""
    return output[steps, torch.arange(steps.shape[1], device=output.device)]


def _output_size(recurrent: Recurrent | nn.RNNBase) -> int:
    if isinstance(recurrent, Recurrent):
        return recurrent.output_size
    return (recurrent.proj_size or recurrent.hidden_size) * (2 if recurrent.bidirectional else 1)


def network_for(model: nn.Module, task: Task, seed: int) -> nn.Module:
    """Return `model`, with an output layer if it is recurrent; any other model must return logits itself."""
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
    """Return the description of a run of `network` on `task` by `recipe` as plain data."""
    return spec_of(network, task, recipe).to_json()


def spec_of(network: nn.Module, task: Task, recipe: Recipe) -> SupervisedSpec:
    """Return the description of a run of `network` on `task` by `recipe`.

    A model or task that is not in plait's registry, or was changed after its construction, is described by
    its class, its parts and the source of all code that no library provides; resuming and loading such a run
    needs the object. `unidentified` in it says why two such objects cannot be distinguished.
    """
    options = _describe_named(network)
    model: ModelSpec | PythonModel
    if _is_changed(network, task, options):
        model = PythonModel(_describe_stranger(network))
    else:
        model = ModelSpec(options.pop("name"), options)
    named = TASKS.get(task.name) is type(task)
    source = {} if named else {"class": _class_name(task), **described_class(task)}
    return SupervisedSpec(task, model, recipe, source)


def build(description: SupervisedSpec | dict[str, Any], backend: str = "auto") -> tuple[Network, Task]:
    """Build the network of a description, as it is before the first update, and return it with the task.

    Weights are drawn on the CPU from the recipe's seed, so they do not depend on the training device.

    >>> network, task = build({"task": {"name": "copy"}, "model": {"name": "rnn", "hidden_size": 4}})
    >>> describe(network, task, Recipe())["model"]["initialiser"]
    'henaff'
    """
    spec = supervised(description)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.recipe.seed)
        recurrent = spec.model.build(spec.task.input_size, backend)
        _begin_inputs(recurrent, spec.task.input_initialiser)
        return network_on(recurrent, spec.task), spec.task


def network_of(description: SupervisedSpec | dict[str, Any], backend: str = "auto") -> Network:
    """Build the network of a description; it knows the task, for `Network.predict`."""
    network, task = build(description, backend)
    network.task = task
    return network


def _begin_inputs(recurrent: Recurrent, initialiser: str) -> None:
    """Initialise the first layer's input weights as published for the task, unless that is the default."""
    layers = getattr(recurrent, "layers", None)  # a layer of torch has none
    cell = getattr(layers[0], "cell", None) if layers else None
    if initialiser == Task.input_initialiser or cell is None:
        return
    with torch.no_grad():
        for block in cell.weight_ih.split(cell.hidden_size):
            INITIALISERS[initialiser](block)


def _describe_named(network: nn.Module) -> dict[str, Any]:
    """Return name and constructor options of a model in the registry; empty for any other."""
    model = network.recurrent if type(network) is Network else network
    name = type(model).__name__.lower()
    try:
        options = model.options() if MODELS.get(name) is type(model) else None
    except (TypeError, AttributeError):  # a layer was replaced by one without these options
        options = None
    return {} if options is None else {"name": name, **options}


def _is_changed(network: nn.Module, task: Task, model: dict[str, Any]) -> bool:
    """Return whether a network differs from the one built from its name and options."""
    if not model:
        return True
    options = {name: value for name, value in model.items() if name != "name"}
    recurrent: Any = network.recurrent if isinstance(network, Network) else network
    builder = MODELS[model["name"]]
    # Only the structure is compared; building an orthogonal matrix needs real values.
    device = "cpu" if getattr(builder, "orthogonal", False) else "meta"
    with torch.random.fork_rng(devices=[]):
        try:
            fresh = builder(recurrent.input_size, batch_first=recurrent.batch_first, device=device, **options)
        except (PlaitError, TypeError):  # options of a memory that replaced the model's own
            return True
        rebuilt: nn.Module = network_on(fresh, task) if isinstance(network, Network) else fresh
    identity = described_module(network)
    return bool(identity.get("sources", True)) or identity != described_module(rebuilt)


def _describe_stranger(network: nn.Module) -> dict[str, Any]:
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    identity = described_module(network)
    if type(network) is Network and "parts" in identity:
        identity["parts"]["recurrent"].pop("batch_first", None)  # a Network is time first in either case
    return {"class": _class_name(network), "weights": shapes, **identity}


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
