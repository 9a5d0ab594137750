"""A layer with its backend and size, and the functions to be timed: a training step, a streaming step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from plait.errors import BackendError
from plait.estimates import FLOAT, check_fits, check_weights
from plait.models import MODELS, Recurrent
from plait.ops.scan import BACKENDS, FullScan, PlainScan, Scan, record_backends

__all__ = ["BOUNDED", "LAYERS", "PEERS", "PRECISIONS", "LayerConfig", "backends_here", "scan_of"]

PEERS: dict[str, Callable[[int, int], nn.Module]] = {"torch.nn.LSTM": nn.LSTM, "torch.nn.RNN": nn.RNN}
LAYERS = ("relrnn", "rellstm", "relgru", "memrnn", "memlstm", "modrelurnn", "orthrnn", "goru")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_CELLS = {"relrnn": "elman", "rellstm": "lstm", "relgru": "gru"}
BOUNDED = tuple(_CELLS)
_FULL = {"memrnn": "elman", "memlstm": "lstm"}
WINDOW = CAPACITY = 10
# options of models whose memory is an option
_OPTIONS: dict[str, dict[str, Any]] = {
    "transformer": {"memory": "relevancy", "window": WINDOW, "capacity": CAPACITY}
}
# steps after which the memory of a stream is full and has evicted states
_SETTLED = 4 * (WINDOW + CAPACITY)
# recurrent layers without a memory that torch lacks: title, model and options
_PLAIN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "modrelurnn": ("RNN, modrelu", "rnn", {"nonlinearity": "modrelu", "initialiser": "random"}),
    "orthrnn": ("OrthRNN", "orthrnn", {}),
    "goru": ("GORU", "goru", {}),
}


def scan_of(layer: str) -> Scan | FullScan | PlainScan:
    """Return the scan that a layer runs.

    >>> scan_of("rellstm").width, scan_of("modrelurnn").nonlinearity, scan_of("memrnn").cell
    (20, 'modrelu', 'elman')
    """
    if layer in _PLAIN:
        return PlainScan("gru" if layer == "goru" else "elman", "modrelu")
    return FullScan(_FULL[layer]) if layer in _FULL else Scan(_CELLS[layer], WINDOW, CAPACITY)


@dataclass(frozen=True)
class LayerConfig:
    """A layer, its backend and its size; window and capacity, where it has them, are 10.

    With `graphed` it runs by CUDA graphs.

    >>> config = LayerConfig("relrnn", "torch", torch.device("cpu"), hidden=8)
    >>> config.backend_that_ran()
    'torch'
    """

    layer: str
    backend: str
    device: torch.device
    hidden: int = 128
    dtype: torch.dtype = torch.float32
    input_size: int = 10
    steps: int = 2
    rows: int = 1
    relevance: str = "earned"
    graphed: bool = False

    @property
    def title(self) -> str:
        if self.layer in _PLAIN:
            return _PLAIN[self.layer][0]
        name = self.layer if self.layer in PEERS else MODELS[self.layer].__name__
        name = name if self.relevance == "earned" else f"{name}, {self.relevance}"
        return f"{name}, graphed" if self.graphed else name

    def module(self, seed: int = 0) -> nn.Module:
        """Build the layer; its weights depend on the seed, not on the backend."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.layer in PEERS:
                check_weights(self.hidden * (self.input_size + self.hidden))
                module = PEERS[self.layer](self.input_size, self.hidden)
            else:
                bounded = {"window": WINDOW, "capacity": CAPACITY, "relevance": self.relevance}
                usual = bounded if self.layer in _CELLS else _OPTIONS.get(self.layer, {})
                _, model, options = _PLAIN.get(self.layer, ("", self.layer, usual))
                module = MODELS[model](self.input_size, self.hidden, backend=self.backend, **options)
        module = module.to(self.device, self.dtype)
        return cast(Recurrent, module).graphed() if self.graphed else module

    def tensors(self, seed: int = 1) -> tuple[Tensor, Tensor]:
        """Draw an input (T, B, F) and an output gradient (T, B, H)."""
        step = self.input_size + self.hidden * (2 if self.layer in PEERS else 1)
        check_fits(FLOAT * self.steps * self.rows * step, "take fewer steps or rows", str(self.device))
        generator = torch.Generator().manual_seed(seed)
        shapes = (self.steps, self.rows, self.input_size), (self.steps, self.rows, self.hidden)
        x, arriving = (torch.randn(shape, generator=generator) for shape in shapes)
        return x.to(self.device, self.dtype), arriving.to(self.device, self.dtype)

    def training_step(self) -> Callable[[], tuple[Tensor, ...]]:
        """Return a function that runs forward and backward to every weight, without an optimiser."""
        module = self.module()
        weights = list(module.parameters())
        x, arriving = self.tensors()

        def step() -> tuple[Tensor, ...]:
            return torch.autograd.grad(module(x)[0], weights, arriving, materialize_grads=True)

        return step

    def forward_pass(self) -> Callable[[], Tensor]:
        """Return a function that runs forward alone, in training mode, with saved activations."""
        module, (x, _) = self.module(), self.tensors()

        def step() -> Tensor:
            output: Tensor = module(x)[0]
            return output

        return step

    def stream(self) -> Callable[[], Tensor]:
        """Return a function that runs one step in inference mode and carries a state whose memory is full."""
        module, (x, _) = self.module().eval(), replace(self, steps=1).tensors()
        state: Any = None

        @torch.inference_mode()
        def step() -> Tensor:
            nonlocal state
            output: Tensor
            output, state = module(x, state)
            return output

        for _ in range(_SETTLED):
            step()
        return step

    def backend_that_ran(self) -> str:
        """Return the backend that computes this layer here, as recorded during a step."""
        if self.layer in PEERS:
            return "cudnn" if self.device.type == "cuda" else "torch.nn"
        with record_backends() as ran:
            replace(self, steps=min(self.steps, 2)).training_step()()
        return " + ".join(dict.fromkeys(ran)) or "reference"


def backends_here(config: LayerConfig, wanted: Sequence[str] = ()) -> list[str]:
    """Return the backends that can run a layer here, of `wanted` or of all but Triton's interpreter.

    >>> backends_here(LayerConfig("memrnn", "auto", torch.device("cpu"), hidden=8), ["reference"])
    ['reference']
    """
    interpreted = "triton" if config.device.type == "cpu" else None
    names = wanted or [name for name in BACKENDS if name not in ("auto", interpreted)]
    return [name for name in names if _runs(replace(config, backend=name, steps=2, rows=1))]


def _runs(config: LayerConfig) -> bool:
    try:
        config.training_step()()
    except BackendError:
        return False
    return True
