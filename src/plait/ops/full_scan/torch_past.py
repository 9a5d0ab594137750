"""All states of a scan and what their scores need, in buffers filled once, read block by block.

Everything is laid out (W, B, H), position first: h_t is appended as one block, and the states up to t are
one contiguous piece. With κ₀ initial slots, h_t stands at position κ₀ + t.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from plait.ops.attentive_scan.contract import Inputs
from plait.ops.attentive_scan.torch_cells import or_zeros
from plait.ops.full_scan.contract import FullSaved

__all__ = ["Past", "PastInReverse"]

# elements of one block: two scratch blocks and what they are made of stay in a core's cache
_BLOCK = {"cpu": 2**16}
_WIDEST = 2**26


def _block(width: int, rows: int, size: int, device: str) -> int:
    """How many positions make a block.

    >>> _block(1200, 1, 128, "cpu")
    512
    """
    return min(width, max(1, _BLOCK.get(device, _WIDEST) // max(1, rows * size)))


class Keys:
    """σ(2q + 2k_j) for a query against all keys; tanh(q + k_j) is 2σ − 1.

    While all |q| and |k| are small, e^{−2k} is kept for each key, and σ = 1 / (1 + e^{−2q} e^{−2k}): one
    exponential for each key instead of one for each pair. Neither factor nor product can leave the range
    of the type while both are below a quarter of its logarithm. Beyond, 2k is kept and σ computed as such;
    a GPU does that always, the check would stall it.
    """

    def __init__(self, width: int, like: Tensor) -> None:
        self.held = like.new_empty(width, *like.shape[-2:])
        self.one = like.new_ones(())
        self.limit = math.log(torch.finfo(like.dtype).max) / 4
        self.factored = like.device.type == "cpu"

    def admit(self, low: int, keys: Tensor, queries: Tensor) -> Tensor:
        """Hold `keys` (n, B, H) from position `low` on; give back `queries` as `sigma` wants them."""
        if self.factored and bool((keys.abs() > self.limit).any() | (queries.abs() > self.limit).any()):
            self.factored = False
            self.held[:low].log_().neg_()
        held = self.held[low : low + len(keys)]
        if self.factored:
            torch.mul(keys, -2, out=held).exp_()
            return torch.mul(queries, -2).exp_()
        torch.mul(keys, 2, out=held)
        return torch.mul(queries, 2)

    def sigma(self, query: Tensor, low: int, high: int, out: Tensor) -> Tensor:
        """σ for the positions from `low` to `high`, written to `out` (high − low, B, H)."""
        if self.factored:
            return torch.addcmul(self.one, self.held[low:high], query, out=out).reciprocal_()
        return torch.add(self.held[low:high], query, out=out).sigmoid_()


class Readable:
    """Which positions a step can read: those since the row's last reset that are not empty from the start.

    `first` (T, B) is the first position since the reset; `empty` (κ₀, B) the initial slots that hold nothing.
    """

    def __init__(self, born: Tensor, reset: Tensor | None, steps: int) -> None:
        self.initial = born.shape[1]
        self.empty = born.t() < 0
        self.positions = torch.arange(self.initial + steps, device=born.device).unsqueeze(1)
        self.first: Tensor | None = None
        self.is_cut = [False] * steps
        if reset is not None:
            times = torch.arange(self.initial, self.initial + steps, device=born.device).unsqueeze(1)
            self.first = torch.where(reset, times, 0).cummax(dim=0).values
            self.is_cut = reset.any(dim=1).tolist()
        self.is_all = not any(self.is_cut) and not bool(self.empty.any())

    def hidden(self, t: int, low: int, high: int) -> Tensor:
        """(high − low, B): what step t cannot read of the positions from `low` to `high`."""
        seen = self.positions[low:high]
        cut = seen < (0 if self.first is None else self.first[t])
        hidden = cut.expand(high - low, self.empty.shape[1])
        if low < self.initial:
            hidden = hidden.clone()
            hidden[: self.initial - low] |= self.empty[low:high]
        return hidden


class Past:
    """The states so far and their keys, growing by one position at each step."""

    def __init__(self, inputs: Inputs, wide: torch.dtype) -> None:
        steps, rows, _ = inputs.projected.shape
        self.readable = Readable(inputs.born, inputs.reset, steps)
        initial, size = self.readable.initial, inputs.energy.shape[0]
        width = initial + steps
        self.key, self.twice_energy = inputs.key.to(wide).t(), 2 * inputs.energy.to(wide)
        self.states = inputs.slots.new_zeros(width, rows, size, dtype=wide)
        self.states[:initial] = inputs.slots.transpose(0, 1)
        self.keys = Keys(width, self.states)
        self.keys.admit(0, self.states[:initial] @ self.key, self.states[:0])
        self.block = _block(width, rows, size, self.states.device.type)
        self.scratch = self.states.new_empty(min(width, self.block), rows, size)
        self.energies = self.states.new_empty(width, rows)

    def clear(self, t: int, rows: Tensor) -> None:
        """Forget everything before step t in `rows` (B,): selected, so that a NaN there is gone."""
        self.states[: self.readable.initial + t].masked_fill_(rows.view(1, -1, 1), 0)

    def append_and_read(self, t: int, h: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write h_t (B, H), read with `query` (B, H): the context, all weights (W, B), log Σ_j e^{e_j} (B,).

        An energy is Σ 2 v_a σ, the constant −Σ v_a aside, which no weight depends on.
        """
        here = self.readable.initial + t
        end = here + 1
        self.states[here] = h
        asked = self.keys.admit(here, (h @ self.key).unsqueeze(0), query)
        for low in range(0, end, self.block):
            high = min(low + self.block, end)
            sigma = self.keys.sigma(asked, low, high, self.scratch[: high - low])
            torch.matmul(sigma, self.twice_energy, out=self.energies[low:high])
        self.energies[end:] = -torch.inf
        energies = self.energies[:end]
        if not self.readable.is_all:
            energies.masked_fill_(self.readable.hidden(t, 0, end), -torch.inf)
        normaliser = torch.logsumexp(energies, dim=0)
        weights = torch.exp(self.energies - normaliser)
        read = torch.bmm(weights[:end].t().unsqueeze(1), self.states[:end].transpose(0, 1))
        return read.squeeze(1), weights, normaliser


class PastInReverse:
    """All states and keys at once, and the gradients they gather while the steps are walked back."""

    def __init__(self, saved: FullSaved, arriving: Tensor | None) -> None:
        steps, rows, size = saved.output.shape
        wide = saved.contexts.dtype
        self.readable = Readable(saved.born, saved.reset, steps)
        self.states = torch.cat([saved.slots.transpose(0, 1), saved.output]).to(wide)
        width = len(self.states)
        self.keys = Keys(width, self.states)
        queries = saved.asked.to(wide) @ saved.query.to(wide).t()
        self.queries = self.keys.admit(0, self.states @ saved.key.to(wide).t(), queries)
        self.contexts, self.normalisers = saved.contexts, saved.normalisers
        self.energy = saved.energy.to(wide)
        final = None if arriving is None else arriving.transpose(0, 1)
        self.d_states = or_zeros(final, self.states).clone(memory_format=torch.contiguous_format)
        if saved.reset is not None:
            cleared = self.readable.hidden(steps - 1, 0, width)
            self.d_states.masked_fill_(cleared.unsqueeze(2), 0)
        # Σ_t de_tj σ_tj (1 − σ_tj): the keys' gradients but for the factor 4 v_a
        self.slopes = torch.zeros_like(self.states)
        self.d_energy = torch.zeros_like(self.energy)
        self.block = _block(width, rows, size, self.states.device.type)
        self.sigma, self.product = self.states.new_empty(2, min(width, self.block), rows, size).unbind()

    def read_backward(self, t: int, d_context: Tensor, d_query: Tensor) -> None:
        """Spread dL/dc_t (B, H) over the states, keys and v_a that step t read, and into `d_query` (B, H)."""
        end = self.readable.initial + t + 1
        # Σ_j α_j dL/dα_j, without a pass over the positions
        mean = (self.contexts[t] * d_context).sum(dim=1)
        d_query.zero_()
        for low in range(0, end, self.block):
            self._read_block_backward(t, low, min(low + self.block, end), d_context, mean, d_query)
        d_query.mul_(4 * self.energy)

    def _read_block_backward(
        self, t: int, low: int, high: int, d_context: Tensor, mean: Tensor, d_query: Tensor
    ) -> None:
        product = self.product[: high - low]
        sigma = self.keys.sigma(self.queries[t], low, high, self.sigma[: high - low])
        weights = (sigma @ (2 * self.energy)).sub_(self.normalisers[t]).exp_()
        d_weights = torch.mul(self.states[low:high], d_context, out=product).sum(dim=2)
        d_energies = d_weights.sub_(mean).mul_(weights)
        if not self.readable.is_all:
            hidden = self.readable.hidden(t, low, high)
            for gathered in (weights, d_energies, sigma):
                gathered.masked_fill_(hidden.view(*hidden.shape, *[1] * (gathered.dim() - 2)), 0)
        # Σ_j de_j tanh_j = 2 Σ_j de_j σ_j, because the gradients of a softmax sum to zero
        self.d_energy.addmv_(sigma.flatten(0, 1).t(), d_energies.flatten(), alpha=2)
        slopes = torch.addcmul(sigma, sigma, sigma, value=-1, out=product).mul_(d_energies.unsqueeze(2))
        self.slopes[low:high].add_(slopes)
        d_query.add_(slopes.sum(dim=0))
        self.d_states[low:high].addcmul_(weights.unsqueeze(2), d_context)

    def of_step(self, t: int) -> tuple[Tensor, Tensor]:
        """What h_t (B, H) and its key (B, H) have gathered; changing the first changes what is kept."""
        here = self.readable.initial + t
        return self.d_states[here], self.slopes[here] * (4 * self.energy)

    def gathered(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Gradients of the initial states (κ₀, B, H) and of h (T, B, H); of their keys likewise."""
        initial = self.readable.initial
        split = (initial, len(self.states) - initial)
        return self.d_states.split(split), self.slopes.mul_(4 * self.energy).split(split)
