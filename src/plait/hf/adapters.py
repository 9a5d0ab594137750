"""Low-rank adapters of a model's attention, trained together with scores to live with a bounded cache."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from plait.errors import ConfigError, DataError, check_int, check_seed
from plait.hf.layers import full_attention_layers
from plait.hf.saved import SavedFormat

__all__ = ["Adapter", "adapter_of"]

FILES = SavedFormat(
    name="plait adapter",
    version=1,
    noun="trained adapters",
    tensors="adapter.safetensors",
    header="adapter.json",
    fields={"rank": int, "trained": dict},
    defaults={},
)
_MOST_RANK = 1024
_MARK = "_plait_adapter"  # attribute of a model: the adapter that is applied to it


class Adapter(nn.Module):
    r"""Low-rank changes of the linear layers of a model's bounded attention (LoRA, Hu et al. 2021).

    A layer W becomes $W + \frac{α}{r} U V$ with V (r, in), U (out, r) and α = 2r; U begins at zero, so a new
    adapter changes nothing. Weights of the model are not touched: `apply` adds the product to the output of
    each layer, `remove` ends that.

    Args:
        model: a decoder of `transformers` that `BoundedCache` takes.
        rank: r.
        seed: of the initial V.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, eos_token_id=None)).eval()
    >>> adapter = Adapter(model, rank=4)
    >>> len(adapter.layers), sum(p.numel() for p in adapter.parameters())
    (8, 1024)
    """

    def __init__(self, model: Any, *, rank: int = 16, seed: int = 0) -> None:
        super().__init__()
        check_int(1, _MOST_RANK, rank=rank)
        check_seed(seed=seed)
        self.rank = rank
        self.trained: dict[str, Any] = {}
        self.digest = ""  # of the file it was loaded from
        modules = _linear_layers(model)
        self.layers = tuple(modules)
        self.down, self.up = nn.ParameterDict(), nn.ParameterDict()
        generator = torch.Generator().manual_seed(seed)
        for name, module in modules.items():
            start = torch.randn(rank, module.in_features, generator=generator) / math.sqrt(module.in_features)
            self.down[_key(name)] = nn.Parameter(start)
            self.up[_key(name)] = nn.Parameter(torch.zeros(module.out_features, rank))
        self.is_on = True
        self._hooks: list[Any] = []
        self.to(model.device)

    def apply_to(self, model: Any) -> Self:
        """Make the model compute with the adapter, in place of another one.

        Raises:
            ConfigError: for a model with other linear layers.
        """
        modules = _linear_layers(model)
        shapes = {name: (module.out_features, module.in_features) for name, module in modules.items()}
        own = {name: (len(self.up[_key(name)]), self.down[_key(name)].shape[1]) for name in self.layers}
        if shapes != own:
            raise ConfigError(
                f"adapter: expected the model it was made for, got {type(model).__name__} with other layers"
            )
        before = adapter_of(model)
        if before is not None:
            before.remove(model)
        self._hooks = [module.register_forward_hook(self._hook(name)) for name, module in modules.items()]
        model.__dict__[_MARK] = self  # not as a submodule, whose parameters would be the model's
        return self

    def remove(self, model: Any) -> None:
        """Remove the hooks that `apply_to` added, and the model's reference to this adapter."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if adapter_of(model) is self:
            del model.__dict__[_MARK]

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Let the model compute without the adapter, as a teacher."""
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True

    def _hook(self, name: str) -> Any:
        down, up = self.down[_key(name)], self.up[_key(name)]

        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not self.is_on:
                return output
            x = args[0]
            return output + 2 * linear(linear(x, down.to(x.dtype)), up.to(x.dtype))

        return add

    def save(self, folder: str | Path, model: Any) -> str:
        """Write `adapter.safetensors` and `adapter.json` into a folder; return the checksum of the tensors.

        Raises:
            OutputError: if the folder cannot be written.
        """
        fields = {"rank": self.rank, "trained": self.trained}
        self.digest = FILES.write(Path(folder), self, model, fields)
        return self.digest

    @classmethod
    def load(cls, folder: str | Path, model: Any) -> Self:
        """Load the adapter that `save` wrote; `apply_to` then makes the model compute with it.

        Raises:
            ConfigError: for another model.
            DataError: if the files are missing, damaged or not an adapter.
        """
        folder = Path(folder)
        header, content = FILES.read(folder, model)
        try:
            adapter = cls(model, rank=header["rank"])
        except ConfigError as error:
            raise DataError(f"{folder / FILES.header}: {error}") from error
        adapter.trained, adapter.digest = header["trained"], header["sha256"]
        FILES.fill(adapter, content, folder)
        return adapter.eval().requires_grad_(False)


def adapter_of(model: Any) -> Adapter | None:
    """Return the adapter that is applied to a model."""
    adapter: Adapter | None = model.__dict__.get(_MARK)
    return adapter


def _key(name: str) -> str:
    return name.replace(".", "/")  # names of parameters have no dots


def _linear_layers(model: Any) -> dict[str, nn.Linear]:
    """Return the linear layers within the attention of every bounded layer, by name."""
    bounded = set(full_attention_layers(model))
    layers: dict[str, nn.Linear] = {}
    for name, module in model.named_modules():
        is_attention = getattr(module, "layer_idx", None) in bounded and hasattr(module, "scaling")
        for inner, part in module.named_modules() if is_attention else ():
            if isinstance(part, nn.Linear):
                layers[f"{name}.{inner}"] = part
    if not layers:
        raise ConfigError(
            f"adapter: expected linear layers in the attention of {type(model).__name__}, got none"
        )
    return layers
