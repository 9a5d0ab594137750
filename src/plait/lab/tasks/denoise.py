"""Denoise: copy, with the symbols scattered over the delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from plait.lab.tasks.base import LATER, Task
from plait.lab.tasks.ten_symbols import SYMBOLS, TenSymbolsTask, checked_delays

__all__ = ["DenoiseTask"]


@dataclass(frozen=True)
class DenoiseTask(TenSymbolsTask):
    """Pick ten symbols out of the blanks they are scattered in, and remember them in order.

    ```
    step    1                       T+9  T+10  T+11     T+20
    input   · 3 · · 5 1 · 7 · ·  … 3  ·   10   · · · · · · ·
    target  · · · · · · · · · ·  … ·  ·    ·   3 5 1 7 2 6 4 8 1 3
    ```

    The ten symbols are at distinct steps among the first T + 9. Inputs are one-hot over 11 (marker 10, index
    9 unused), classes 10 (index 9 unused), as in the published experiments. With `test_delays` it is scored
    at these delays as well.

    >>> inputs, targets, *_ = DenoiseTask(delay=50).batch(4, torch.Generator().manual_seed(0))
    >>> inputs[:, :, 1:9].sum(dim=(0, 2)).tolist(), targets[-10:].min().item() >= 1
    ([10.0, 10.0, 10.0, 10.0], True)
    """

    name = "denoise"
    marker = 10
    classes = 10
    test_delays: tuple[int, ...] = field(default=(), kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "test_delays", checked_delays(self.test_delays))

    def held_out(self) -> Mapping[str, Task]:
        if not self.test_delays:
            return super().held_out()
        return {f"delay {delay}": DenoiseTask(delay) for delay in (self.delay, *self.test_delays)}

    def places(self, batch_size: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        # The indices of the ten largest of T + 9 uniform numbers are a uniform choice without repetition.
        lots = torch.rand(batch_size, self.delay + SYMBOLS - 1, generator=generator, device=device)
        return lots.topk(SYMBOLS, dim=1).indices.sort(dim=1).values.t()
