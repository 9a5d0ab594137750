"""A key-value cache of fixed size for `model.generate(past_key_values=...)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from plait.errors import ConfigError, check_int, check_seed, require
from plait.hf.attention import attach, pass_hidden_states
from plait.hf.layer import BoundedLayer, Limits
from plait.hf.layers import full_attention_layers
from plait.hf.policies import make_policy
from plait.hf.scores import Scores

__all__ = ["BoundedCache"]

cache_utils: Any = require("transformers.cache_utils", "hf")


class BoundedCache(cache_utils.Cache):
    """A cache that keeps `slots` = sinks + window + capacity states for each KV head, for any text.

    A head keeps its first `sinks` states, the latest `window`, and of those that left the window the
    `capacity` that rank highest. A dropped state never returns, and at every step, inside a chunk of a prompt
    as well, a query reads `slots` states at most. With as many slots as tokens the model computes what it
    computes with `DynamicCache`.

    Pass it to `model.generate(ids, past_key_values=cache)`, greedy, sampling or beam search, or to
    `model(ids, past_key_values=cache)`; `prefill_chunk_size=512` bounds the memory of a long prompt, too. A
    batch is padded on the left. Keys keep the positions with which the model has rotated them, so a text can
    be as long as the model's positions. Layers with a sliding window of their own keep that. No gradient
    passes from one call to the next.

    The model's attention function is set to one that reads bounded caches; with any other cache it computes
    what it did (by sdpa where it was another kernel).

    Args:
        model: a decoder of `transformers`, such as LlamaForCausalLM.
        window: latest states kept, at least 1.
        capacity: older states kept.
        sinks: first states kept.
        policy: a name of `plait.hf.POLICIES`; "learned" if there are scores, else "sinks".
        scores: trained scores for the policy "learned", or the folder of `plait cache train` with them.
        seed: of the policy "random".

    Raises:
        ConfigError: for a model without a cache of full attention (Mamba, T5), or with terms in its attention
            that a bounded cache does not have.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, eos_token_id=None)).eval()
    >>> cache = BoundedCache(model, window=4, capacity=3, sinks=1, policy="knorm")
    >>> prompt = torch.ones(1, 20, dtype=torch.int64)
    >>> ids = model.generate(prompt, past_key_values=cache, max_new_tokens=5, pad_token_id=0)
    >>> cache.get_seq_length(), cache.births(0).shape
    (24, torch.Size([1, 2, 8]))
    """

    def __init__(
        self,
        model: Any,
        *,
        window: int,
        capacity: int,
        sinks: int = 4,
        policy: str | None = None,
        scores: Scores | str | Path | None = None,
        seed: int = 0,
    ) -> None:
        check_int(1, window=window)
        check_int(0, capacity=capacity, sinks=sinks)
        check_seed(seed=seed)
        self.limits = Limits(window, capacity, sinks)
        bounded = full_attention_layers(model)
        if isinstance(scores, str | Path):
            scores = Scores.load(scores, model)
        elif scores is not None:
            scores.check(model)
        self.policy = policy or ("sinks" if scores is None else "learned")
        ranking = make_policy(self.policy, scores, seed)
        config = model.config.get_text_config(decoder=True)
        layers = cache_utils.DynamicCache(config=config).layers
        below = None
        for index in bounded:
            layer = BoundedLayer(index, self.limits, ranking, config)
            layer.below = below
            layers[index] = below = layer
        super().__init__(layers=layers)
        self._bounded = bounded
        attach(model)
        if scores is not None and scores.features == "hidden":
            pass_hidden_states(model)

    @property
    def slots(self) -> int:
        """States that a head keeps at most."""
        return self.limits.slots

    def births(self, layer: int) -> Tensor:
        """Return (B, H, slots): the step of each state that a layer keeps, sorted, −1 for empty slots."""
        if layer not in self._bounded:
            raise ConfigError(f"layer: expected one of {self._bounded}, got {layer}")
        births: Tensor = self.layers[layer].births.sort(dim=2).values
        return births

    def bytes(self) -> dict[str, int]:
        """Return the bytes of keys, values, positions and scores of all layers with a bounded cache."""
        names = {
            "keys": ("keys",),
            "values": ("values",),
            "positions": ("births", "is_sink"),
            "scores": ("ranks",),
        }
        layers = [layer for layer in self.layers if isinstance(layer, BoundedLayer) and layer.is_initialized]
        return {
            name: sum(getattr(layer, part).nbytes for layer in layers for part in parts)
            for name, parts in names.items()
        }

    def __repr__(self) -> str:
        window, capacity, sinks = self.limits
        size = f"window={window}, capacity={capacity}, sinks={sinks}"
        return f"BoundedCache({size}, policy={self.policy!r}, seen={self.get_seq_length()})"
