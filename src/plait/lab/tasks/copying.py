"""Copy, and copy tested at delays that do not occur in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from plait.errors import ConfigError, check_int
from plait.lab.tasks.base import LATER, Task
from plait.lab.tasks.ten_symbols import SYMBOLS, TenSymbolsTask, checked_delays

__all__ = ["CopyTask", "TransferCopyTask"]


@dataclass(frozen=True)
class CopyTask(TenSymbolsTask):
    """Remember ten symbols over a delay.

    ```
    step    1        10  11       T+9  T+10  T+11     T+20
    input   3517264813   · · · · · ·    9    · · · · · · ·
    target  · · · · ·    · · · · · ·    ·    3 5 1 7 2 6 4 8 1 3
    ```

    Inputs are one-hot over 10 (blank 0, symbols 1..8, marker 9), classes 9. With a lead-in of N blanks the
    symbols to keep are not the first steps:

    ```
    step    1       N  N+1     N+10  N+11      N+T+10  N+T+11   N+T+20
    input   · · · · ·  3517264813    · · · · ·    9    · · · · · · · ·
    target  · · · · ·  · · · · ·     · · · · ·    ·    3 5 1 7 2 6 4 8 1 3
    ```

    >>> task = CopyTask(delay=100)
    >>> inputs, targets, *_ = task.batch(32, torch.Generator().manual_seed(0))
    >>> inputs.shape, targets.shape, round(task.chance_loss, 5)
    (torch.Size([120, 32, 10]), torch.Size([120, 32]), 0.17329)
    """

    name = "copy"
    marker = 9
    classes = 9
    lead_in: int = field(default=0, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int(0, lead_in=self.lead_in)

    @property
    def length(self) -> int:
        """Length L = N + T + 20."""
        return self.lead_in + super().length

    def places(self, batch_size: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        steps = torch.arange(self.lead_in, self.lead_in + SYMBOLS, device=device)
        return steps.unsqueeze(1).expand(SYMBOLS, batch_size)


@dataclass(frozen=True)
class TransferCopyTask(CopyTask):
    """Copy, trained at `delay` and scored at `test_delays` as well.

    The rows are those of `CopyTask`; only the held-out sequences are longer or shorter.

    >>> list(TransferCopyTask(100, (200, 400)).held_out())
    ['delay 100', 'delay 200', 'delay 400']
    """

    name = "transfer"
    test_delays: tuple[int, ...] = (200, 400, 1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "test_delays", checked_delays(self.test_delays))
        if not self.test_delays:
            raise ConfigError("test_delays: expected at least one delay, got none; use the copy task instead")

    def held_out(self) -> Mapping[str, Task]:
        delays = (self.delay, *self.test_delays)
        return {f"delay {delay}": CopyTask(delay, lead_in=self.lead_in) for delay in delays}
