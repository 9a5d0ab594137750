"""All states of a scan and their keys, in buffers filled once and read block by block.

Everything is laid out (W, B, H), position first: h_t is appended as one block, and the states up to t are one
contiguous piece. With κ₀ initial slots, h_t has position κ₀ + t.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from plait.ops.scan.contract import Inputs, Scanned
from plait.ops.scan.torch_cells import or_zeros

__all__ = ["Past", "PastInReverse", "Readable"]

# elements of one block: small enough for a cache, large enough to hide the overhead of a call
_BLOCK = {"cpu": 2**19}
_WIDEST = 2**26


def _block(width: int, rows: int, size: int, device: str) -> int:
    """Return the number of positions in a block.

    >>> _block(9000, 1, 128, "cpu")
    4096
    """
    return min(width, max(1, _BLOCK.get(device, _WIDEST) // max(1, rows * size)))


def _sigma(query: Tensor, doubled_keys: Tensor, out: Tensor) -> Tensor:
    """Return σ(2q + 2k) from q (B, H) and 2k (n, B, H).

    tanh(q + k) = 2σ − 1, and σ is torch's faster function.
    """
    return torch.add(doubled_keys, query, alpha=2, out=out).sigmoid_()


class Readable:
    """The positions that each step can read: since the row's last reset, and not empty from the start.

    `first` (T, B) is the first position since the reset; `empty` (κ₀, B) marks the empty initial slots.
    """

    def __init__(self, born: Tensor, reset: Tensor | None, steps: int) -> None:
        self.initial = born.shape[1]
        self.empty = born.t() < 0
        self.positions = torch.arange(self.initial + steps, device=born.device).unsqueeze(1)
        self.reset = reset
        self.first: Tensor | None = None
        if reset is not None:
            self.first = torch.where(reset, self.positions[self.initial :], 0).cummax(dim=0).values

    # used by plain torch alone: on a GPU these make the host wait
    @cached_property
    def is_cut(self) -> list[bool]:
        """Return whether any row is reset at step t."""
        steps = len(self.positions) - self.initial
        return [False] * steps if self.reset is None else self.reset.any(dim=1).tolist()

    @cached_property
    def is_all(self) -> bool:
        """Return whether every step can read all earlier positions."""
        return not any(self.is_cut) and not bool(self.empty.any())

    def excluded(self, t: int, low: int, high: int) -> Tensor:
        """Return the mask (high − low, B) of positions from `low` to `high` that step t cannot read."""
        positions = self.positions[low:high]
        beyond = positions > self.initial + t
        before = positions < (0 if self.first is None else self.first[t])
        excluded = (beyond | before).expand(-1, self.empty.shape[1]).clone()
        excluded[: max(0, self.initial - low)] |= self.empty[low:high]
        return excluded


class Past:
    """The states so far and their keys, growing by one position at each step."""

    def __init__(self, inputs: Inputs, wide: torch.dtype) -> None:
        steps, rows, _ = inputs.projected.shape
        self.readable = Readable(inputs.born, inputs.reset, steps)
        initial, size = self.readable.initial, inputs.energy.shape[0]
        width = initial + steps
        self.doubled_key, self.twice_energy = 2 * inputs.key.to(wide).t(), 2 * inputs.energy.to(wide)
        self.states = inputs.slots.new_zeros(width, rows, size, dtype=wide)
        self.states[:initial] = inputs.slots.transpose(0, 1)
        self.doubled_keys = torch.empty_like(self.states)
        self.doubled_keys[:initial] = self.states[:initial] @ self.doubled_key
        self.block = _block(width, rows, size, self.states.device.type)
        self.scratch = self.states.new_empty(self.block, rows, size)
        self.energies = self.states.new_empty(width, rows)

    def clear(self, t: int, rows: Tensor) -> None:
        """Clear everything before step t in `rows` (B,), by selection, so that a NaN there is gone."""
        self.states[: self.readable.initial + t].masked_fill_(rows.view(1, -1, 1), 0)

    def append_and_read(self, t: int, h: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write h_t (B, H), then read with `query` (B, H).

        Returns the context (B, H), the weights (B, κ₀ + t + 1) and the normaliser log Σ_j e^{e_j} (B,). An
        energy is Σ 2 v_a σ; the constant −Σ v_a is left out, since no weight depends on it.
        """
        here = self.readable.initial + t
        end = here + 1
        self.states[here] = h
        torch.mm(h, self.doubled_key, out=self.doubled_keys[here])
        for low in range(0, end, self.block):
            high = min(low + self.block, end)
            sigma = _sigma(query, self.doubled_keys[low:high], self.scratch[: high - low])
            torch.matmul(sigma, self.twice_energy, out=self.energies[low:high])
        energies = self.energies[:end]
        if not self.readable.is_all:
            energies.masked_fill_(self.readable.excluded(t, 0, end), -torch.inf)
        log_weights = torch.log_softmax(energies, dim=0)
        # contiguous: otherwise bmm would copy more than the weights
        weights = log_weights.exp().t().contiguous()
        read = torch.bmm(weights.unsqueeze(1), self.states[:end].transpose(0, 1))
        # h_t itself is always read, so the normaliser follows from its weight
        return read.squeeze(1), weights, energies[here] - log_weights[here]


class PastInReverse:
    """All states and keys, and their gradients, gathered while the steps are walked back."""

    def __init__(self, inputs: Inputs, scanned: Scanned, arriving: Tensor | None) -> None:
        steps, rows, size = scanned.output.shape
        wide = scanned.contexts.dtype
        self.readable = Readable(inputs.born, inputs.reset, steps)
        self.states = torch.cat([inputs.slots.transpose(0, 1), scanned.output]).to(wide)
        width = len(self.states)
        self.doubled_keys = self.states @ (2 * inputs.key.to(wide).t())
        self.queries = (scanned.prev_states.to(wide) @ inputs.query.to(wide).t()).unbind()
        self.contexts, self.normalisers = scanned.contexts.unbind(), scanned.normalisers.unbind()
        self.twice_energy = 2 * inputs.energy.to(wide)
        self.four_energies = 2 * self.twice_energy
        final = None if arriving is None else arriving.transpose(0, 1)
        self.d_states = or_zeros(final, self.states).clone(memory_format=torch.contiguous_format)
        if inputs.reset is not None:
            cleared = self.readable.excluded(steps - 1, 0, width)
            self.d_states.masked_fill_(cleared.unsqueeze(2), 0)
        # Σ_t de_tj σ_tj (1 − σ_tj): the keys' gradients without the factor 4 v_a
        self.slopes = torch.zeros_like(self.states)
        self.d_energy = torch.zeros_like(self.twice_energy)
        self.block = _block(width, rows, size, self.states.device.type)
        self.sigma, self.product = self.states.new_empty(2, self.block, rows, size).unbind()

    def read_backward(self, t: int, d_context: Tensor, d_query: Tensor) -> None:
        """Add the part of dL/dc_t (B, H) to the gradients of the states, keys and v_a that step t read.

        `d_query` (B, H) receives the query's.
        """
        end = self.readable.initial + t + 1
        # Σ_j α_j dL/dα_j, without a pass over the positions
        mean = (self.contexts[t] * d_context).sum(dim=1)
        d_query.zero_()
        for low in range(0, end, self.block):
            self._read_block_backward(t, low, min(low + self.block, end), d_context, mean, d_query)
        d_query.mul_(self.four_energies)

    def _read_block_backward(
        self, t: int, low: int, high: int, d_context: Tensor, mean: Tensor, d_query: Tensor
    ) -> None:
        product = self.product[: high - low]
        sigma = _sigma(self.queries[t], self.doubled_keys[low:high], self.sigma[: high - low])
        weights = (sigma @ self.twice_energy).sub_(self.normalisers[t]).exp_()
        d_weights = torch.bmm(d_context.unsqueeze(1), self.states[low:high].permute(1, 2, 0)).squeeze(1).t()
        d_energies = weights * (d_weights - mean)
        if not self.readable.is_all:
            unreadable = self.readable.excluded(t, low, high)
            weights.masked_fill_(unreadable, 0)
            d_energies.masked_fill_(unreadable, 0)
            sigma.masked_fill_(unreadable.unsqueeze(2), 0)
        # Σ_j de_j tanh_j = 2 Σ_j de_j σ_j, because the gradients of a softmax sum to zero
        self.d_energy.addmv_(sigma.flatten(0, 1).t(), d_energies.flatten(), alpha=2)
        slopes = torch.addcmul(sigma, sigma, sigma, value=-1, out=product).mul_(d_energies.unsqueeze(2))
        self.slopes[low:high].add_(slopes)
        d_query.add_(slopes.sum(dim=0))
        self.d_states[low:high].addcmul_(weights.unsqueeze(2), d_context)

    def of_step(self, t: int) -> tuple[Tensor, Tensor]:
        """Return the gathered gradients of h_t (B, H), as a view, and of its key (B, H)."""
        here = self.readable.initial + t
        return self.d_states[here], self.slopes[here] * self.four_energies

    def gathered(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the gradients of the initial states (κ₀, B, H), of h (T, B, H), and of the keys of each."""
        initial = self.readable.initial
        split = (initial, len(self.states) - initial)
        return self.d_states.split(split), self.slopes.mul_(self.four_energies).split(split)
