"""Speed and memory of decoding with a bounded cache, beside the caches of `transformers` that grow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch

from plait.errors import check_choice, check_int, require
from plait.hf.cache import BoundedCache, cache_utils
from plait.lab.caches.evaluation import Variant, make_cache

__all__ = ["CACHES", "LLAMA_1B", "decoding_speed", "measure_decoding"]

# The sizes of Llama-3.2-1B.
LLAMA_1B = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
}
CACHES = ("bounded", "dynamic", "static")
_CHUNK = 2048  # tokens of a prompt read in one call
_WARM_UP = 8  # decoding steps before the clock starts


def measure_decoding(
    device: torch.device,
    lengths: Iterable[int],
    *,
    caches: Iterable[str] = CACHES,
    batch: int = 8,
    slots: int = 512,
    policy: str = "sinks",
    steps: int = 64,
    sizes: dict[str, int] | None = None,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yield the speed of each cache at each length, on a Llama of random weights.

    Args:
        device: bfloat16 on a GPU, float32 on a CPU.
        lengths: tokens of the prompt.
        caches: names of `CACHES`.
        batch: texts decoded together.
        slots: states that a head of the bounded cache keeps.
        policy: of the bounded cache.
        steps: tokens that are timed.
        sizes: of the model; `LLAMA_1B` by default.
        seed: of the weights and the prompts.
    """
    check_int(1, batch=batch, steps=steps)
    transformers = require("transformers", "hf")
    kinds = [check_choice(kind, CACHES, "cache") for kind in caches]
    torch.manual_seed(seed)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = transformers.LlamaConfig(**(sizes or LLAMA_1B), bos_token_id=None, eos_token_id=None)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False)
    variant = Variant.of(policy, slots)
    for length in lengths:
        for kind in kinds:
            make = partial(_make, kind, model, variant, length + _WARM_UP + steps)
            figures = decoding_speed(model, make, length, batch, steps, seed)
            bounded = {"slots": slots, "policy": policy} if kind == "bounded" else {}
            yield {"cache": kind, **bounded, "length": length, "batch": batch, **figures}


def _make(kind: str, model: Any, variant: Variant, longest: int) -> Any:
    if kind == "bounded":
        return make_cache(model, variant)
    if kind == "dynamic":
        return cache_utils.DynamicCache(config=model.config)
    return cache_utils.StaticCache(config=model.config, max_cache_len=longest)


@torch.inference_mode()
def decoding_speed(
    model: Any, make: Callable[[], Any], length: int, batch: int, steps: int, seed: int = 0
) -> dict[str, Any]:
    """Return the speed of decoding after a prompt of random tokens, and the memory of the cache.

    `memory` has the most bytes allocated on a GPU while decoding, beyond the weights and what else was there.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    prompt = torch.randint(vocabulary, (batch, length), generator=generator).to(model.device)
    gc.collect()
    on_gpu = model.device.type == "cuda"
    before = torch.cuda.memory_allocated(model.device) if on_gpu else 0
    cache = make()
    began = _clock(model)
    for chunk in prompt.split(_CHUNK, dim=1):
        logits = model(chunk, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    prefill = _clock(model) - began
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(model.device)
    times = []
    for _ in range(_WARM_UP + steps):
        token = logits[:, -1].argmax(dim=-1, keepdim=True)
        began = _clock(model)
        logits = model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        times.append(_clock(model) - began)
    timed = sorted(times[_WARM_UP:])
    middle = timed[len(timed) // 2]
    return {
        "tokens_per_second": round(batch / middle, 2),
        "milliseconds": {name: round(1e3 * value, 3) for name, value in _spread(timed).items()},
        "prefill_tokens_per_second": round(batch * length / prefill, 1),
        "cache_bytes": _bytes(cache),
        "memory": torch.cuda.max_memory_allocated(model.device) - before if on_gpu else None,
    }


def _spread(timed: list[float]) -> dict[str, float]:
    return {"fastest": timed[0], "median": timed[len(timed) // 2], "slowest": timed[-1]}


def _bytes(cache: Any) -> int:
    if isinstance(cache, BoundedCache):
        return sum(cache.bytes().values())
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def _clock(model: Any) -> float:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter()
