"""Trained scores: a small head for each bounded layer that ranks a state once, when it is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from plait.errors import ConfigError, DataError, check_choice, check_int, check_seed
from plait.hf.adapters import adapter_of
from plait.hf.policies import Token
from plait.hf.saved import SavedFormat
from plait.hf.tapped import TappedCache

__all__ = ["FEATURES", "HEADER", "MOST_WIDTH", "TENSORS", "Scores"]

TENSORS, HEADER = "scores.safetensors", "scores.json"
MOST_WIDTH = 4096
FEATURES = ("states", "hidden")
FILES = SavedFormat(
    name="plait scores",
    version=1,
    noun="trained scores",
    tensors=TENSORS,
    header=HEADER,
    fields={
        "cache": dict,
        "width": int,
        "features": str,
        "adapter": str,
        "trained": dict,
    },
    # before there was a choice
    defaults={"features": "states", "adapter": ""},
)


class Scores(nn.Module):
    r"""Scores that decide which of the older states a `BoundedCache` keeps.

    A layer's head reads features of a token and returns one float32 for each KV head:
    $r_j = w·x_j + u·\mathrm{gelu}(Vx_j + b) + ρ·j/n$, with x_j the standardised features, j the
    token's number and n = window + capacity. ρ, one number for a head, is how fast states become worthless;
    every state's score falls behind at that rate, so ranks are fixed at birth all the same.

    Features are the hidden state that the layer's attention reads ("hidden"), or its keys and values of all
    KV heads ("states"), keys as the lengths of their rotated pairs. No position changes either, so scores
    mean at token 8,000 what they meant at token 800. The order by r_j decides and nothing else: scores enter
    no attention.
    New scores are zero and keep the first states that leave the window; `plait cache train` trains them.

    Args:
        model: a decoder of `transformers` that `BoundedCache` takes.
        window: latest states kept by the caches that these scores are trained for, at least 1.
        capacity: older states kept by these.
        sinks: first states kept by these.
        width: hidden features of a head; 0 for a linear one.
        features: what a head reads, "states" or "hidden".
        seed: of the initial weights.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, eos_token_id=None)).eval()
    >>> scores = Scores(model, window=4, capacity=8, width=8)
    >>> scores.layers, sum(p.numel() for p in scores.parameters())
    ((0, 1), 532)
    """

    trained: dict[str, Any]

    def __init__(
        self,
        model: Any,
        *,
        window: int,
        capacity: int,
        sinks: int = 4,
        width: int = 64,
        features: str = "states",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice(features, FEATURES, "features")
        check_int(1, window=window)
        check_int(0, capacity=capacity, sinks=sinks)
        check_int(0, MOST_WIDTH, width=width)
        check_seed(seed=seed)
        self.window, self.capacity, self.sinks = window, capacity, sinks
        self.width, self.features = width, features
        self.trained = {}
        self.adapter = ""  # checksum of the adapter that they were trained with
        sizes = _sizes(model)
        self.layers = tuple(sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            heads = {
                str(index): _Head(size, features, width, window + capacity) for index, size in sizes.items()
            }
        self.heads = nn.ModuleDict(heads).to(model.device)

    def forward(self, token: Token) -> Tensor:
        """Return the ranks (B, H, n) of the new states of one layer."""
        head = self.head(token.layer)
        if head.mean.device != token.key.device:  # the model is spread over several devices
            head.to(token.key.device)
        ranks: Tensor = head(token)
        return ranks

    def head(self, layer: int) -> _Head:
        """Return the head of a bounded layer."""
        head = self.heads[str(layer)]
        assert isinstance(head, _Head)
        return head

    @torch.no_grad()
    def calibrate(self, tokens: list[Token]) -> None:
        """Set the mean and the standard deviation by which each layer's features are standardised."""
        for token in tokens:
            head = self.head(token.layer)
            x = head.features(token).flatten(0, 1)
            head.mean.copy_(x.mean(dim=0))
            head.scale.copy_(1 / x.std(dim=0, correction=0).clamp_min(1e-3))

    def save(self, folder: str | Path, model: Any) -> Path:
        """Write `scores.safetensors` and `scores.json` into a folder; return the folder.

        The description has the model's type, name and checksum, layers, heads and sizes, the cache that the
        scores were trained for, and `trained`, how they were.

        Raises:
            ConfigError: if the scores are not those of this model's layers and heads.
            OutputError: if the folder cannot be written.
        """
        self.check(model)
        fields = {
            "cache": {"window": self.window, "capacity": self.capacity, "sinks": self.sinks},
            "width": self.width,
            "features": self.features,
            "adapter": self.adapter,
            "layers": {str(index): self.head(index).size._asdict() for index in self.layers},
            "trained": self.trained,
        }
        FILES.write(Path(folder), self, model, fields)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, model: Any) -> Self:
        """Load the scores that `save` wrote, onto the model's device; nothing is unpickled.

        The model may have another precision than the one of training. Its weights are read once for their
        checksum, which takes a second for some 10⁹ bytes of them.

        Raises:
            ConfigError: for another model.
            DataError: if the files are missing, damaged or not scores.
        """
        folder = Path(folder)
        header, content = FILES.read(folder, model)
        path = folder / HEADER
        if sorted(header["cache"]) != ["capacity", "sinks", "window"]:
            raise DataError(
                f"{path}: cache: expected window, capacity and sinks, got {header['cache']!r:.80}"
            )
        try:
            kind = {name: header[name] for name in ("width", "features")}
            scores = cls(model, **header["cache"], **kind)
        except ConfigError as error:
            raise DataError(f"{path}: {error}") from error
        scores.trained, scores.adapter = header["trained"], header["adapter"]
        FILES.fill(scores, content, folder)
        scores._check_adapter(model)
        return scores.eval()

    def check(self, model: Any) -> None:
        """Refuse a model with other layers, KV heads or sizes, or without the adapter of these scores.

        Raises:
            ConfigError: for such a model.
        """
        self._check_adapter(model)
        expected = {index: self.head(index).size for index in self.layers}
        sizes = _sizes(model)
        if sizes != expected:
            other = [i for i in sorted({*sizes, *expected}) if sizes.get(i) != expected.get(i)]
            raise ConfigError(
                f"scores: expected the model they were made for, got {type(model).__name__} with another "
                f"layer {other[0]}; train scores for this model (plait cache train)"
            )

    def _check_adapter(self, model: Any) -> None:
        applied = adapter_of(model)
        if self.adapter != ("" if applied is None else applied.digest):
            raise ConfigError(
                "scores: expected the model with the adapter they were trained with, got it "
                f"{'without one' if applied is None else 'with another one'}; apply "
                "Adapter.load(FOLDER, model).apply_to(model) first (--tuned FOLDER)"
                if self.adapter
                else "scores: expected the model they were trained for, got it with an adapter; remove it"
            )

    def __repr__(self) -> str:
        cache = f"window={self.window}, capacity={self.capacity}, sinks={self.sinks}"
        return f"Scores({len(self.layers)} layers, {cache}, width={self.width})"


class HeadSize(NamedTuple):
    """Sizes of a layer: KV heads, features of a key and a value, of a key's rotated part, hidden states."""

    kv_heads: int
    key: int
    value: int
    rotated: int
    hidden: int

    def count(self, features: str) -> int:
        """Return the number of features that a head reads."""
        if features == "hidden":
            return self.hidden
        return self.kv_heads * (self.value + self.key - self.rotated // 2)


class _Head(nn.Module):
    """Scores of one layer: a linear function of the features, a small MLP, and a rate of ageing."""

    mean: Tensor
    scale: Tensor

    def __init__(self, size: HeadSize, features: str, width: int, horizon: int) -> None:
        super().__init__()
        self.size, self.reads, self.horizon = size, features, horizon
        count, outputs = size.count(features), size.kv_heads
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("scale", torch.ones(count))
        self.linear = nn.Parameter(torch.zeros(outputs, count))
        self.recency = nn.Parameter(torch.zeros(outputs))
        if width:
            self.hidden = nn.Parameter(torch.randn(width, count) / math.sqrt(count))
            self.bias = nn.Parameter(torch.zeros(width))
            self.out = nn.Parameter(torch.zeros(outputs, width))

    def features(self, token: Token) -> Tensor:
        """Return (B, n, features): the hidden state, or values and keys, as lengths of rotated pairs."""
        if self.reads == "hidden":
            if token.hidden is None:
                raise ConfigError(
                    "scores: expected a model whose attention modules have a layer_idx and take the hidden "
                    "states, got another; train scores with --features states for it"
                )
            return token.hidden.float()
        key, value = token.key.float(), token.value.float()
        first, second = key[..., : self.size.rotated].chunk(2, dim=-1)
        parts = (value, torch.hypot(first, second), key[..., self.size.rotated :])
        return torch.cat([part.transpose(1, 2).flatten(2) for part in parts], dim=-1)

    def forward(self, token: Token) -> Tensor:
        with torch.autocast(token.key.device.type, enabled=False):
            x = (self.features(token) - self.mean) * self.scale
            ranks = x @ self.linear.T
            if hasattr(self, "hidden"):
                ranks = ranks + gelu(x @ self.hidden.T + self.bias) @ self.out.T
            ranks = ranks + self.recency * (token.number / self.horizon).unsqueeze(-1)
            result: Tensor = ranks.transpose(1, 2)
        return result


@torch.no_grad()
def _sizes(model: Any) -> dict[int, HeadSize]:
    """Return the sizes of every bounded layer, read off one token's keys and values."""
    sizes: dict[int, HeadSize] = {}

    def attention(query: Tensor, token: Token) -> Tensor:
        key, value = token.key, token.value
        hidden = 0 if token.hidden is None else token.hidden.shape[2]
        rotated = _rotated(model, key.shape[3])
        sizes[token.layer] = HeadSize(key.shape[1], key.shape[3], value.shape[3], rotated, hidden)
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)

    cache = TappedCache(model, attention)  # raises for a model that cannot be bounded
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    model(token, past_key_values=cache)
    if not sizes:
        raise ConfigError(
            f"model: expected {type(model).__name__} to use its cache, got one that does not (gradient "
            "checkpointing turns it off); call model.eval()"
        )
    return sizes


def _rotated(model: Any, size: int) -> int:
    """Return how many features of a key the model rotates, in two halves: 0 to all of them."""
    config = model.config.get_text_config(decoder=True)
    settings = getattr(config, "rope_parameters", None)
    if not isinstance(settings, dict):
        return 0
    share = settings.get("partial_rotary_factor", 1.0)
    rotated = int(size * share) if isinstance(share, int | float) and 0 < share <= 1 else size
    return rotated - rotated % 2
