"""Digests of values too long to be written out, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["array_text", "canonical", "digest", "short", "shortened", "tensor_text"]

_MOST_VALUES, _MOST_CHARACTERS = 64, 200


def digest(content: bytes) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def canonical(value: Any) -> str:
    """Return plain data as JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def short(values: list[Any]) -> Any:
    """Return a short list unchanged, a long one as its length and digest."""
    if len(values) <= _MOST_VALUES:
        return values
    return {"list": f"{len(values)} values {digest(canonical(values).encode())}"}


def shortened(text: str) -> str:
    """Return a short text unchanged, a long one as its digest."""
    return text if len(text) <= _MOST_CHARACTERS else digest(text.encode())


def array_text(array: np.ndarray) -> str:
    """Return dtype, shape and digest of an array."""
    sizes = "×".join(map(str, array.shape))
    return f"{array.dtype} {sizes} {digest(np.ascontiguousarray(array).tobytes())}"


def tensor_text(tensor: Tensor) -> str:
    """Return dtype, shape and digest of a tensor on any device; a meta tensor has no digest."""
    text = f"{str(tensor.dtype).removeprefix('torch.')} {'×'.join(map(str, tensor.shape))}"
    if tensor.is_meta:
        return text
    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return f"{text} {digest(plain.numpy().tobytes())}"
