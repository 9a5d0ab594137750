"""Where a run is computed."""

from __future__ import annotations

import os

import torch

from plait.errors import ConfigError, known

__all__ = ["device_named"]


def device_named(name: str) -> torch.device:
    """`auto` is cuda if there is one, else cpu; under torchrun every process has its own GPU.

    >>> device_named("cpu")
    device(type='cpu')
    """
    kind, _, number = name.partition(":")
    known(kind, ("auto", "cpu", "cuda"), "device")
    if number and (kind != "cuda" or not number.isdecimal()):
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}")
    count = torch.cuda.device_count()
    if kind == "cpu" or (kind == "auto" and not count):
        return torch.device("cpu")
    index = int(number or os.environ.get("LOCAL_RANK", "0"))
    if index >= count:
        raise ConfigError(f"device {name!r}: found {count} CUDA devices here; use --device cpu")
    return torch.device("cuda", index)
