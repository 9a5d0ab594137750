"""Bounded attention on a GPU: flash-style kernels over the states that a block of queries reads."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from plait.ops.bounded_attention.older import older_states
from plait.ops.bounded_attention.triton_backward import (
    carried_kernel,
    older_kernel,
    query_kernel,
    recent_kernel,
)
from plait.ops.bounded_attention.triton_kernels import forward_kernel
from plait.ops.scan.triton_launch import interpreting

__all__ = ["bounded_attention", "missing"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LARGEST = 256
_SPAN = 16  # blocks that a program of `older_kernel` walks


def missing(device: str, dtype: torch.dtype, size: int) -> str | None:
    """Return why the kernels cannot run on such queries, or None if they can."""
    if device != "cuda" and not interpreting():
        return f"it needs a CUDA device, got {device} tensors"
    if dtype not in _DTYPES:
        return f"it computes in {', '.join(map(str, _DTYPES))}, got {dtype}"
    if size > _LARGEST:
        return f"it takes heads of {_LARGEST} features at most, got {size}"
    return None


def bounded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    deaths: Tensor,
    births: Tensor,
    scores: Tensor | None,
    far: tuple[Tensor, Tensor] | None,
    *,
    window: int,
    score_from: str,
    width: int,
) -> Tensor:
    """Return (B, heads, T, D); the definition is `naive.bounded_attention`, `width` is `older_states`'s."""
    tiles = _tiles(query.shape[3], query.dtype, far is not None)
    older = older_states(deaths, births, query.shape[2], window, tiles["BT"], width).int()
    settings = {"window": window, "FROM_LEAVING": score_from == "leaving", **tiles}
    far_query, far_key = far or (None, None)
    steps = deaths.int(), births.clamp_min(-(2**31)).int(), older
    output: Tensor = _Attention.apply(query, far_query, key, far_key, value, scores, *steps, settings)[0]
    return output


def _tiles(size: int, dtype: torch.dtype, far: bool) -> dict[str, int]:
    """Return the queries of a block, the states of a tile, and the features with padding.

    Larger tiles of float32, or of heads beyond 128 features, do not fit the registers. With a far pair, which
    doubles the features, that is so beyond 64; beyond 128, 32 rows of float32 do not fit the shared memory.
    """
    block = max(16, triton.next_power_of_2(size))
    edge = 32 if dtype == torch.float32 or block > (64 if far else 128) else 64
    if far and dtype == torch.float32 and block > 128:
        edge = 16
    return {"BT": edge, "BS": edge, "BD": block, "D": size}


def _launch(kernel: str, tiles: dict[str, Any]) -> dict[str, int]:
    """Return the launch options of the kernel "forward", "query", "recent" or "older".

    The fastest of those measured on an H200 (results/bench). Four warps share the 64 rows of a tile; eight
    would compute every product twice.
    """
    options = {"BS": tiles["BS"], "num_warps": 4, "num_stages": 2 if kernel == "recent" else 3}
    if kernel in ("recent", "older"):  # two sums, of keys and of values, leave registers for fewer queries
        options["BQ"] = min(tiles["BT"], 32)
    else:
        options["BS"] = min(tiles["BS"], 32)
    return options


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        query: Tensor,
        far_query: Tensor | None,
        key: Tensor,
        far_key: Tensor | None,
        value: Tensor,
        scores: Tensor | None,
        deaths: Tensor,
        births: Tensor,
        older: Tensor,
        settings: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        rows, heads, steps, _ = query.shape
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        sums = torch.empty(rows, heads, steps, dtype=torch.float32, device=query.device)
        tensors, sizes = _arguments(
            query, far_query, key, far_key, value, scores, deaths, births, older, settings
        )
        launch = sizes | _launch("forward", settings)
        forward_kernel[(rows * heads, older.shape[2])](**tensors, output=output, sums=sums, **launch)
        return output, sums

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.settings = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, far_query, key, far_key, value, scores, deaths, births, older, output, sums = ctx.saved_tensors
        tensors, sizes = _arguments(
            query, far_query, key, far_key, value, scores, deaths, births, older, ctx.settings
        )
        tiles, d_output = ctx.settings, d_output.to(tensors["query"].dtype).contiguous()
        products = torch.empty_like(sums)
        tensors |= {"sums": sums, "d_output": d_output}
        d_query = torch.empty_like(query, memory_format=torch.contiguous_format)
        d_far_query = d_query if far_query is None else torch.empty_like(d_query)
        rows, heads, blocks, width = older.shape
        of_queries = {"output": output.to(d_output.dtype), "d_query": d_query, "d_far_query": d_far_query}
        launch = sizes | _launch("query", tiles)
        query_kernel[(rows * query.shape[1], blocks)](**tensors, products=products, **of_queries, **launch)
        tensors |= {"products": products}

        spans = triton.cdiv(blocks, _SPAN) if width else 1
        sums_of_older, extent = _sums_of_older(key, width * spans if spans > 1 else 0, far_key is not None)
        launch = sizes | _launch("older", tiles) | {"SPAN": _SPAN, "M": extent}
        slots = rows * heads, triton.cdiv(max(width, 1), launch["BS"])
        older_kernel[(*slots, spans)](**tensors, **sums_of_older, **launch)
        if spans > 1:
            names = "N", "M", "K", "NB", "SPAN", "HAS_SCORES", "HAS_FAR", "D", "BD"
            carried_kernel[(rows * heads, triton.cdiv(width, 16))](
                older=tensors["older"],
                **sums_of_older,
                **{name: launch[name] for name in names},
                SPANS=spans,
                BS=16,
            )
        d_key, d_value = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (key, value))
        d_far_key = d_key if far_key is None else torch.empty_like(d_key)
        d_scores = torch.empty(
            key.shape[:3], dtype=None if scores is None else scores.dtype, device=key.device
        )
        tensors |= {"d_key": d_key, "d_value": d_value, "d_far_key": d_far_key, "d_scores": d_scores}
        launch = sizes | _launch("recent", tiles) | {"M": extent} | sums_of_older
        recent = {name: x for name, x in (tensors | launch).items() if name not in ("older", "births", "K")}
        recent_kernel[(rows * heads, triton.cdiv(key.shape[2], launch["BS"]))](**recent)
        d_far = (None, None) if far_key is None else (d_far_query, d_far_key)
        d_states = d_key, d_far[1], d_value, None if scores is None else d_scores
        return d_query, d_far[0], *d_states, None, None, None, None


def _sums_of_older(key: Tensor, carried: int, has_far: bool) -> tuple[dict[str, Tensor], int]:
    """Return buffers in float32 for the sums of `older_kernel`, and their number of rows for a head."""
    extent = key.shape[2] + carried
    shape = *key.shape[:2], extent
    names = ("key", "value", "far") if has_far else ("key", "value")
    buffers = {f"older_{x}": torch.empty(*shape, key.shape[3], device=key.device) for x in names}
    buffers.setdefault("older_far", buffers["older_key"])
    return {**buffers, "older_scores": torch.empty(shape, device=key.device)}, extent


def _arguments(
    query: Tensor,
    far_query: Tensor | None,
    key: Tensor,
    far_key: Tensor | None,
    value: Tensor,
    scores: Tensor | None,
    deaths: Tensor,
    births: Tensor,
    older: Tensor,
    settings: dict[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the arguments of every kernel: tensors, contiguous, and sizes."""
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "deaths": deaths,
        "births": births,
        "older": older,
        # a kernel needs a pointer even for an absent tensor
        "far_query": query if far_query is None else far_query,
        "far_key": key if far_key is None else far_key,
        "scores": deaths if scores is None else scores.float(),
    }
    sizes = {
        "T": query.shape[2],
        "N": key.shape[2],
        "NB": older.shape[2],
        "K": older.shape[3],
        "G": query.shape[1] // key.shape[1],
        "scale": query.shape[3] ** -0.5,
        "HAS_SCORES": scores is not None,
        "HAS_FAR": far_query is not None,
    }
    # the interpreter stores bfloat16 as integers and would multiply those
    wide = interpreting() and query.dtype == torch.bfloat16
    ready = (x.float() if wide and x.is_floating_point() else x for x in tensors.values())
    return {name: x.contiguous() for name, x in zip(tensors, ready, strict=True)}, sizes | settings
