"""Model as three functions per step, as the calculus of paths needs it, and its Jacobian blocks.

    H_m = step(S_{m−1}),   c_m = context(S_{m−1}, {H_i : i ∈ A_m}),   S_m = f(H_m, c_m)

with the supports A_m held fixed. For cells whose h_{t+1} is a function of (s_t, x_{t+1}) alone, H = h and
S = s. For the LSTM, H = (h, cell_state) and S = (s, cell_state): twice as wide, nothing else changes, and
"the derivative by h_t" holds cell_state_t fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacrev

from plait.errors import ConfigError, ShapeError

__all__ = ["Blocks", "Dynamics", "Trajectory"]


@dataclass(frozen=True)
class Trajectory:
    """Values of a run: `states` (T, N) H_1..H_T, `mixed` (T + 1, N) S_0..S_T, `contexts` (T, n) c_1..c_T."""

    states: Tensor
    mixed: Tensor
    contexts: Tensor

    def __len__(self) -> int:
        return self.states.shape[0]


@dataclass(frozen=True)
class Dynamics:
    """Step, context and mixing functions of one sequence; m counts steps from 1.

    Args:
        step: (m, S_{m−1}) → H_m, with the input x_m inside.
        context: (m, S_{m−1}, states of A_m (|A_m|, N)) → c_m.
        mix: (H_m, c_m) → S_m.
        supports: A_1, A_2, … as increasing times counted from 1; for an empty one, `context` receives
            (0, N) states and must accept them.
        begin: S_0.
    """

    step: Callable[[int, Tensor], Tensor]
    context: Callable[[int, Tensor, Tensor], Tensor]
    mix: Callable[[Tensor, Tensor], Tensor]
    supports: Sequence[Sequence[int]]
    begin: Tensor

    def __post_init__(self) -> None:
        for m, attended in enumerate(self.supports, start=1):
            if attended and not (min(attended) >= 1 and max(attended) <= m):
                raise ConfigError(f"A_{m}: expected times in 1..{m}, got {list(attended)}")

    def __len__(self) -> int:
        return len(self.supports)

    def attended_states(self, m: int, states: Sequence[Tensor] | Tensor) -> Tensor:
        """Return the states of A_m, (|A_m|, N)."""
        rows = [states[i - 1] for i in self.supports[m - 1]]
        return torch.stack(rows) if rows else self.begin.new_zeros(0, self.begin.shape[0])

    def run(self) -> Trajectory:
        """Run all steps and return the trajectory."""
        mixed, states, contexts = [self.begin], [], []
        for m in range(1, len(self) + 1):
            states.append(self.step(m, mixed[-1]))
            contexts.append(self.context(m, mixed[-1], self.attended_states(m, states)))
            mixed.append(self.mix(states[-1], contexts[-1]))
        return Trajectory(torch.stack(states), torch.stack(mixed), torch.stack(contexts))

    def blocks(self, first: int = 1, last: int | None = None) -> Blocks:
        """Return all Jacobians that a derivative from t >= `first` to T <= `last` can need, by autograd."""
        last = len(self) if last is None else last
        if not 1 <= first <= last <= len(self):
            raise ConfigError(f"times: expected 1 <= first <= last <= {len(self)}, got {first} and {last}")
        with torch.no_grad():  # jacrev differentiates nevertheless; the weights' graph is not kept
            return self.linearise(first, last, self.run())

    def linearise(self, first: int, last: int, path: Trajectory) -> Blocks:
        """Return the Jacobians of steps first..last around a trajectory."""
        blocks = Blocks(first, last, self.supports)
        for m in range(first, last + 1):
            self._linearise_step(m, path, blocks)
        return blocks

    def _linearise_step(self, m: int, path: Trajectory, blocks: Blocks) -> None:
        before, here, context = path.mixed[m - 1], path.states[m - 1], path.contexts[m - 1]
        attended = self.attended_states(m, path.states)
        blocks.jump[m - 1] = jacrev(lambda s: self.step(m, s))(before)
        blocks.direct[m], blocks.through[m] = jacrev(self.mix, argnums=(0, 1))(here, context)
        by_query, by_state = jacrev(lambda s, h: self.context(m, s, h), argnums=(0, 1))(before, attended)
        blocks.query[m] = by_query
        blocks.reads[m] = by_state.transpose(0, 1)


class Blocks:
    """Jacobians of steps first..last. They do not depend on t: one set serves every (t, T).

    `jump[m]` J_m = ∂H_{m+1}/∂S_m, `direct[m]` ∂_1 f, `through[m]` ∂_2 f, `reads[m]` (|A_m|, n, N)
    ∂c_m/∂H_i, `query[m]` ∂c_m/∂S_{m−1}.
    """

    def __init__(self, first: int, last: int, supports: Sequence[Sequence[int]]) -> None:
        self.first, self.last, self.supports = first, last, supports
        self.jump: dict[int, Tensor] = {}
        self.direct: dict[int, Tensor] = {}
        self.through: dict[int, Tensor] = {}
        self.reads: dict[int, Tensor] = {}
        self.query: dict[int, Tensor] = {}

    @property
    def width(self) -> int:
        return int(self.direct[self.first].shape[0])

    def check(self, start: int, end: int) -> None:
        if not self.first <= start <= end <= self.last:
            raise ConfigError(
                f"times: expected {self.first} <= start <= end <= {self.last}, got start {start}, end {end}"
            )

    def attention(self, m: int, i: int) -> Tensor:
        """Return the part of ∂S_m/∂H_i through the context: α_{i,m} ∂_2 f (I + X_{i,m}) by Lemma 6."""
        if i not in self.supports[m - 1]:
            return self.direct[m].new_zeros(self.width, self.width)
        return self.through[m] @ self.reads[m][list(self.supports[m - 1]).index(i)]

    def by_state(self, m: int, i: int) -> Tensor:
        """Return W(m,i) = ∂S_m/∂H_i, the attention's part and, for i = m, ∂_1 f."""
        block = self.attention(m, i)
        return block + self.direct[m] if i == m else block

    def by_query(self, m: int) -> Tensor:
        """Return Q(m) = ∂S_m/∂S_{m−1} through the attention's query."""
        return self.through[m] @ self.query[m]

    def recurrent(self, m: int) -> Tensor:
        """Return R = ∂_1 f · J_{m−1} + Q(m): the recurrent edge S_{m−1} → S_m."""
        return self.direct[m] @ self.jump[m - 1] + self.by_query(m)

    def enter(self, start: int, m: int) -> Tensor:
        """Return E = ∂S_m/∂H_t, the first edge of a path from H_t."""
        return self.by_state(m, start)

    def edge(self, m: int, j: int) -> Tensor:
        """Return F(m,j) = W(m,j+1) J_j + 1[j=m−1] Q(m), from S_j to S_m, j < m."""
        if not self.first <= j < m <= self.last:
            raise ShapeError(f"edge: expected {self.first} <= j < m <= {self.last}, got j {j}, m {m}")
        block = self.by_state(m, j + 1) @ self.jump[j]
        return block + self.by_query(m) if j == m - 1 else block

    def sources(self, m: int, start: int) -> list[int]:
        """Return the j in start..m−1 from which an edge leads to S_m."""
        attended = {i - 1 for i in self.supports[m - 1] if i - 1 >= start}
        return sorted(attended | ({m - 1} if m - 1 >= start else set()))
