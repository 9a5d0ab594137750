"""Trained scores: a small head for each bounded layer that ranks a state once, when it is written."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from plait.errors import ConfigError, DataError, check_choice, check_int, check_seed, require
from plait.files import plain_bytes, write_whole, writing
from plait.hf.policies import Token
from plait.hf.tapped import TappedCache

__all__ = ["FEATURES", "HEADER", "JUDGED", "MOST_WIDTH", "TENSORS", "Scores", "model_checksum"]

FORMAT, VERSION = "plait scores", 1
TENSORS, HEADER = "scores.safetensors", "scores.json"
MOST_WIDTH = 4096
FEATURES = ("states", "hidden")
JUDGED = ("birth", "leaving")
_MOST_TENSORS, _MOST_HEADER = 1 << 28, 1 << 20  # bytes


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
        judged: str = "birth",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice(judged, JUDGED, "judged")
        check_choice(features, FEATURES, "features")
        check_int(1, window=window)
        check_int(0, capacity=capacity, sinks=sinks)
        check_int(0, MOST_WIDTH, width=width)
        check_seed(seed=seed)
        self.window, self.capacity, self.sinks = window, capacity, sinks
        self.width, self.features, self.judged = width, features, judged
        self.trained = {}
        sizes = _sizes(model)
        self.layers = tuple(sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            heads = {
                str(index): _Head(size, features, width, window + capacity, judged == "leaving")
                for index, size in sizes.items()
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
        folder = Path(folder)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        content = require("safetensors.torch", "hf").save(tensors)
        header = {
            "format": FORMAT,
            "version": VERSION,
            "model": {**_named(model), "checksum": model_checksum(model)},
            "cache": {"window": self.window, "capacity": self.capacity, "sinks": self.sinks},
            "width": self.width,
            "features": self.features,
            "judged": self.judged,
            "layers": {str(index): self.head(index).size._asdict() for index in self.layers},
            "trained": self.trained,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        write_whole(folder / TENSORS, content)
        write_whole(folder / HEADER, (json.dumps(header, indent=2, allow_nan=False) + "\n").encode())
        return folder

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
        header = _header(folder / HEADER)
        content = _plain(folder / TENSORS, _MOST_TENSORS)
        if hashlib.sha256(content).hexdigest() != header["sha256"]:
            raise DataError(f"{folder / TENSORS}: is damaged or not what {HEADER} describes; copy both again")
        _check_model(header["model"], model, folder)
        try:
            kind = {name: header[name] for name in ("width", "features", "judged")}
            scores = cls(model, **header["cache"], **kind)
        except ConfigError as error:
            raise DataError(f"{folder / HEADER}: {error}") from error
        scores.trained = header["trained"]
        scores._fill(content, folder / TENSORS)
        return scores.eval()

    def check(self, model: Any) -> None:
        """Refuse a model with other layers, KV heads or sizes.

        Raises:
            ConfigError: for such a model.
        """
        expected = {index: self.head(index).size for index in self.layers}
        sizes = _sizes(model)
        if sizes != expected:
            other = [i for i in sorted({*sizes, *expected}) if sizes.get(i) != expected.get(i)]
            raise ConfigError(
                f"scores: expected the model they were made for, got {type(model).__name__} with another "
                f"layer {other[0]}; train scores for this model (plait cache train)"
            )

    def _fill(self, content: bytes, path: Path) -> None:
        """Replace all weights by those of a file."""
        safetensors = require("safetensors", "hf")
        try:
            tensors = require("safetensors.torch", "hf").load(content)
        except safetensors.SafetensorError as error:
            raise DataError(f"{path}: is no safetensors file ({error})") from error
        own = self.state_dict()
        for name in sorted({*own, *tensors}):
            wanted, got = (
                f"{x.dtype} {tuple(x.shape)}" if x is not None else "none"
                for x in (own.get(name), tensors.get(name))
            )
            if wanted != got:
                raise DataError(f"{path}: {name}: expected {wanted}, got {got}")
            if not tensors[name].isfinite().all():
                raise DataError(f"{path}: {name}: expected finite numbers")
        self.load_state_dict(tensors)

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

    def __init__(self, size: HeadSize, features: str, width: int, horizon: int, late: bool) -> None:
        super().__init__()
        self.size, self.reads, self.horizon = size, features, horizon
        count, outputs = size.count(features), size.kv_heads
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("scale", torch.ones(count))
        self.linear = nn.Parameter(torch.zeros(outputs, count))
        self.recency = nn.Parameter(torch.zeros(outputs))
        if late:
            self.earned = nn.Parameter(torch.zeros(outputs, 2))
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
            ranks = ranks.transpose(1, 2)
            if token.earned is not None:
                ranks = ranks + (token.earned * self.earned.unsqueeze(1)).sum(dim=-1)
        return ranks


def model_checksum(model: Any) -> str:
    """Return the SHA-256 of a model's weights: names, shapes, and values rounded to bfloat16.

    Rounded, so that the checksum is that of the same weights in float32 and in bfloat16.
    """
    total = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        total.update(f"{name} {tuple(weight.shape)}\n".encode())
        values = weight.detach().to(torch.bfloat16).cpu().contiguous().view(-1)
        total.update(values.view(torch.uint8).numpy().data)
    return total.hexdigest()


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


def _named(model: Any) -> dict[str, str]:
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    return {"type": str(model.config.model_type), "name": Path(name).name}


def _check_model(saved: dict[str, Any], model: Any, folder: Path) -> None:
    here = _named(model)
    matches = saved.get("type") == here["type"] and saved.get("checksum") == model_checksum(model)
    if not matches:
        raise ConfigError(
            f"{folder}: expected the model the scores were trained for, {saved.get('name')!s:.80} "
            f"({saved.get('type')!s:.40}, checksum {saved.get('checksum')!s:.12}), got {here['name']} "
            f"({here['type']}) with other weights; load that model or train scores for this one"
        )


def _plain(path: Path, most: int) -> bytes:
    try:
        return plain_bytes(path, most)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a folder of trained scores, cannot read it ({text})") from error


def _header(path: Path) -> dict[str, Any]:
    """Return the description of saved scores, with every field that is used checked."""
    content = _plain(path, _MOST_HEADER)
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    named = isinstance(header, dict) and {"format": header.get("format"), "version": header.get("version")}
    if named != {"format": FORMAT, "version": VERSION}:
        raise DataError(f"{path}: expected format {FORMAT!r}, version {VERSION}, got {named or 'no object'}")
    header.setdefault("features", "states")  # files of before there was a choice
    header.setdefault("judged", "birth")
    kinds = {
        "model": dict,
        "cache": dict,
        "width": int,
        "features": str,
        "judged": str,
        "trained": dict,
        "sha256": str,
    }
    for name, kind in kinds.items():
        if not isinstance(header.get(name), kind):
            raise DataError(f"{path}: {name}: expected {kind.__name__}, got {header.get(name)!r:.80}")
    if sorted(header["cache"]) != ["capacity", "sinks", "window"]:
        raise DataError(f"{path}: cache: expected window, capacity and sinks, got {header['cache']!r:.80}")
    return dict(header)
