"""Total derivatives as sums over paths, by dynamic programs that never enumerate the 2^k paths.

C_k = dS_{t+k}/dH_t, E the first edge of a path, F every later one (see `Blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import ConfigError, check_min
from plait.gradients.paths.dynamics import Blocks, Dynamics

__all__ = [
    "Breakdown",
    "breakdown",
    "by_degree",
    "by_hops",
    "closed_form",
    "derivatives_to",
    "path_weights",
    "recursion",
    "taken_apart",
]


def recursion(blocks: Blocks, start: int, end: int) -> list[Tensor]:
    """Return C_0, …, C_{T−t} by Lemma 2: C_0 = E_0, C_{k+1} = E_{k+1} + Σ_{j<=k} F_{k+1,j} C_j."""
    blocks.check(start, end)
    derivative: dict[int, Tensor] = {}
    for m in range(start, end + 1):
        derivative[m] = blocks.enter(start, m)
        for j in blocks.sources(m, start):
            derivative[m] = derivative[m] + blocks.edge(m, j) @ derivative[j]
    return list(derivative.values())


def path_weights(blocks: Blocks, start: int, end: int) -> dict[int, Tensor]:
    """Return Ξ_{r:k} for r = start..T: the sum over paths from S_r to S_T of the products of F.

    Ξ_{k:k} = I, Ξ_{r:k} = Σ_j Ξ_{j:k} F_{j,r}; these serve every t at once.
    """
    blocks.check(start, end)
    identity = torch.eye(blocks.width, dtype=blocks.direct[end].dtype, device=blocks.direct[end].device)
    weight = {m: torch.zeros_like(identity) for m in range(start, end)} | {end: identity}
    for m in range(end, start - 1, -1):
        for j in blocks.sources(m, start):
            weight[j] = weight[j] + weight[m] @ blocks.edge(m, j)
    return weight


def closed_form(blocks: Blocks, start: int, end: int) -> Tensor:
    """Return C_k = Σ_{r=0..k} Ξ_{r:k} E_r by Lemmas 3 and 4, with Ξ summed over all numbers of edges."""
    weight = path_weights(blocks, start, end)
    return sum((weight[m] @ blocks.enter(start, m) for m in weight), torch.zeros_like(weight[end]))


def derivatives_to(system: Dynamics, end: int | None = None) -> list[Tensor]:
    """Return dS_T/dH_t for one T = `end` (default: the last step) and every t = 1..T, by one backward sweep.

    q_m = dS_T/dS_m and g_m = dS_T/dH_m obey g_i += q_m ∂S_m/∂H_i, q_{m−1} = g_m J_{m−1} + q_m ∂S_m/∂S_{m−1}.
    A step's Jacobians are computed when the sweep reaches it and freed after it: T N² numbers in all.
    """
    end = len(system) if end is None else end
    with torch.no_grad():
        path = system.run()
        zero = path.states.new_zeros(path.states.shape[1], path.states.shape[1])
        by_state, arriving = [zero] * end, torch.eye(len(zero), dtype=zero.dtype, device=zero.device)
        for m in range(end, 0, -1):
            blocks = system.linearise(m, m, path)
            through = arriving @ blocks.through[m]
            by_state[m - 1] = by_state[m - 1] + arriving @ blocks.direct[m]
            for i, read in zip(system.supports[m - 1], blocks.reads[m], strict=True):
                by_state[i - 1] = by_state[i - 1] + through @ read
            arriving = by_state[m - 1] @ blocks.jump[m - 1] + through @ blocks.query[m]
    return by_state


def by_degree(blocks: Blocks, start: int, end: int, degree: int | None = None) -> Tensor:
    """Return ξ_{0:k}(s) of Proposition 1 for s = 0..degree (default T − t), shape (degree + 1, N, N).

    s counts the F factors, hence the Jacobians J, on a path: M_m(s) = Σ_j F(m,j) M_j(s−1), M_m(0) = E.
    """
    blocks.check(start, end)
    top = end - start if degree is None else degree
    check_min(0, degree=top)
    terms: dict[int, Tensor] = {}
    for m in range(start, end + 1):
        first = blocks.enter(start, m)
        term = first.new_zeros(top + 1, *first.shape)
        term[0] = first
        for j in blocks.sources(m, start):
            term[1:] += blocks.edge(m, j) @ terms[j][:-1]
        terms[m] = term
    return terms[end]


def by_hops(blocks: Blocks, start: int, end: int, most: int | None = None) -> Tensor:
    """Split the derivative by the number of attention edges on a path, shape (most + 2, N, N).

    Entry 0: recurrent edges alone; entry a: exactly a attention edges; the last entry: more than `most`
    of them. The sum is the whole derivative. An edge F = α D + 1[j=m−1] R is split as Proposition 2 does.
    """
    blocks.check(start, end)
    top = end - start + 1 if most is None else most
    check_min(0, most=top)
    terms: dict[int, Tensor] = {}
    for m in range(start, end + 1):
        attended = blocks.attention(m, start)
        term = attended.new_zeros(top + 2, *attended.shape)
        term[1] += attended
        if m == start:
            term[0] += blocks.direct[m]
        for j in blocks.sources(m, start):
            if j + 1 in blocks.supports[m - 1]:
                _hop(term, blocks.attention(m, j + 1) @ blocks.jump[j] @ terms[j])
            if j == m - 1:
                term += blocks.recurrent(m) @ terms[j]
        terms[m] = term
    return terms[end]


def _hop(term: Tensor, carried: Tensor) -> None:
    """Add paths that took one more attention edge; the last bin collects the overflow."""
    term[1:] += carried[:-1]
    term[-1] += carried[-1]


@dataclass(frozen=True)
class Breakdown:
    """Derivative ds_T/dh_t, split by the number of attention edges on its paths.

    `norm[a]` is the Frobenius norm of the part with a attention edges. `share[a]` is the share of the whole
    that this part explains, ⟨part, whole⟩/‖whole‖²: shares sum to 1, and one is negative where a part cancels
    others. The last entry holds all paths with more edges than the largest number requested.
    """

    total: Tensor
    parts: Tensor
    norm: Tensor
    share: Tensor

    @property
    def recurrent_share(self) -> float:
        """Share of the paths without an attention edge."""
        return float(self.share[0])

    @property
    def attention_share(self) -> float:
        """Share of the paths with at least one attention edge."""
        return float(self.share[1:].sum())


def breakdown(
    blocks: Blocks, start: int, end: int, most: int | None = None, size: int | None = None
) -> Breakdown:
    """Split ds_T/dh_t by attention edges; `size` keeps the leading rows and columns (h of an LSTM's pair)."""
    size = blocks.width if size is None else size
    return taken_apart(by_hops(blocks, start, end, most)[:, :size, :size], f"ds_{end}/dh_{start}")


def taken_apart(parts: Tensor, name: str) -> Breakdown:
    """Return a breakdown, with norms and shares, from the parts (count, N, N) of one derivative."""
    total = parts.sum(0)
    square = (total * total).sum()
    if not float(square) > 0:
        raise ConfigError(f"{name} is zero: there is nothing to break down")
    return Breakdown(total, parts, parts.flatten(1).norm(dim=1), (parts * total).sum((1, 2)) / square)
