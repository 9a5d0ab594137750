"""A cell of your own and a memory of your own: each works with everything else at once.

python examples/own_cell.py [--smoke]
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear

import plait
from plait.cells import Cell
from plait.gradients import probe
from plait.memory import Memory
from plait.ops.slots import MemoryState

STEPS = 30 if "--smoke" in sys.argv else 300


class MinimalGatedCell(Cell):
    """One gate: f = σ(z_f + V_f s), h_t = (1 − f) ⊙ s + f ⊙ tanh(z_n + V_n (f ⊙ s))."""

    gates: ClassVar[int] = 2

    def step(self, projected: Tensor, hidden: Tensor, cell_state: Tensor | None) -> tuple[Tensor, None]:
        z_forget, z_new = projected.chunk(2, dim=-1)
        V_forget, V_new = self.weight_hh.chunk(2)
        forget = torch.sigmoid(z_forget + linear(hidden, V_forget))
        return (1 - forget) * hidden + forget * torch.tanh(z_new + linear(forget * hidden, V_new)), None


@dataclass(frozen=True)
class FirstMemory(Memory):
    """The first `size` states, forever; later ones are not written."""

    size: int = 10

    @property
    def initial_width(self) -> int:
        return self.size

    def write(self, h: Tensor, state: MemoryState) -> MemoryState:
        slot = torch.arange(self.size, device=h.device)
        here = slot == state.age.unsqueeze(-1)  # (B, size): where this step goes, nowhere once all are full
        slots = torch.where(here.unsqueeze(-1), h.unsqueeze(1), state.slots)
        born = torch.where(here, state.age.unsqueeze(-1), state.born)
        return state._replace(slots=slots, born=born, age=state.age + 1)


torch.manual_seed(0)
model = plait.Recurrent([plait.SelfAttentive(MinimalGatedCell(10, 32), FirstMemory(10))])
x = torch.randn(STEPS, 4, 10)
whole, _ = model(x)
first, state = model(x[: STEPS // 2])
second, _ = model(x[STEPS // 2 :], state)
torch.testing.assert_close(torch.cat([first, second]), whole)  # a scan of T is two scans
print(probe(model, x, lambda output: output[0][-1].square().sum()).summary())
