"""Multi-query associative recall, as published with zoology (Arora et al., 2023)."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from plait.errors import ConfigError, check_int
from plait.estimates import FLOAT, check_fits
from plait.lab.tasks.base import IGNORE, LATER, SMALLER, Batch, Task

__all__ = ["MultiQueryRecallTask"]

POWER = 0.01  # exponent of the power law of the queries' distances; 1 would be uniform


@dataclass(frozen=True)
class MultiQueryRecallTask(Task):
    """Remember `pairs` keys with their values, and name the value of each key when it comes again.

    ```
    step    1  2  3  4  …  2P   2P+1  2P+2  2P+3  …   L
    input   k₁ v₁ k₂ v₂ …  v_P   k₂    ?     ?    …   ?
    target                       v₂
    ```

    Keys are P different ones of 1 … V/2 − 1, values P different ones of V/2 … V − 1. Each key comes again
    once, at step 2P + 2g + 1, its g drawn without repetition from 0 … (L − 2P)/2 − 1 with probability
    ∝ (g + 1)^(a − 1), a = 0.01. All other steps (?) show a random symbol, and only queries have a target.
    Published: V = 8,192 and (L, P) = (64, 4), (128, 8), (256, 16). With `after` the target is `after` steps
    after its key, and `after` random symbols follow the sequence: a layer that reads its memory with the
    previous state can answer after two steps. With `lead_in` that many random symbols come before the pairs,
    so that a memory cannot answer by keeping the first steps.

    >>> inputs, targets, *_ = MultiQueryRecallTask(64, 4).batch(32, torch.Generator().manual_seed(0))
    >>> inputs.shape, (targets >= 4096).sum(0).unique().tolist()
    (torch.Size([64, 32]), [4])
    """

    name: ClassVar[str] = "mqar"
    length: int = 64
    pairs: int = 4
    vocab: int = 8192
    embedding: int = 64
    after: int = field(default=0, kw_only=True, metadata=LATER)
    lead_in: int = field(default=0, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        check_int(1, pairs=self.pairs, embedding=self.embedding)
        check_int(2, length=self.length, vocab=self.vocab)
        check_int(0, after=self.after, lead_in=self.lead_in)
        if self.length % 2 or self.length < 4 * self.pairs:
            raise ConfigError(
                f"length: expected an even number of at least 4 · pairs = {4 * self.pairs}, got {self.length}"
            )
        if self.vocab % 2 or self.vocab <= self.length:
            raise ConfigError(f"vocab: expected an even number above length {self.length}, got {self.vocab}")

    @property
    def input_size(self) -> int:
        return self.embedding

    @property
    def vocabulary(self) -> int:
        return self.vocab

    @property
    def num_classes(self) -> int:
        return self.vocab

    @property
    def answers(self) -> int:
        return self.pairs

    @property
    def chance_loss(self) -> float:
        """Loss of a uniform guess among the values: ln V/2."""
        return math.log(self.vocab // 2)

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        steps = self.lead_in + self.length + self.after
        check_fits(FLOAT * batch_size * (self.vocab + 4 * steps), SMALLER, str(device))
        half, shown = self.vocab // 2, 2 * self.pairs

        def different(count: int) -> Tensor:
            lots = torch.rand(batch_size, count, generator=generator, device=device)
            return lots.topk(self.pairs, dim=1).indices.t()  # (P, B)

        keys, values = 1 + different(half - 1), half + different(half)
        gaps = torch.arange(1, (self.length - shown) // 2 + 1, device=device, dtype=torch.float32)
        law = (gaps ** (POWER - 1)).expand(batch_size, -1)
        first, places = (
            self.lead_in,
            self.lead_in + shown + 2 * law.multinomial(self.pairs, generator=generator).t(),
        )
        inputs = torch.randint(self.vocab, (steps, batch_size), generator=generator, device=device)
        inputs[first : first + shown : 2], inputs[first + 1 : first + shown : 2] = keys, values
        inputs.scatter_(0, places, keys)
        return Batch(inputs, torch.full_like(inputs, IGNORE).scatter_(0, places + self.after, values))

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one sequence as text: its pairs, and the steps and keys of its queries."""
        inputs, targets, *_ = self.batch(1, torch.Generator().manual_seed(seed))
        first, last, tokens = self.lead_in, self.lead_in + 2 * self.pairs, inputs[:, 0].tolist()
        paired = zip(tokens[first:last:2], tokens[first + 1 : last : 2], strict=True)
        pairs = [f"{key} is {value}" for key, value in paired]
        queries = [
            f"step {step - self.after}: {tokens[step - 1 - self.after]}? {target}"
            for step, target in enumerate(targets[:, 0].tolist(), 1)
            if target != IGNORE
        ]
        when = f", answered {self.after} steps later" if self.after else ""
        lines = (f"steps {first + 1} to {last}: {', '.join(pairs)}", f"asked{when}: {', '.join(queries)}")
        return "\n".join(textwrap.fill(line, max(width, 20)) for line in lines)
