"""Recipe `eviction`: scores learn through the bounded cache itself, to change the model's output least."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div
from torch.utils.checkpoint import checkpoint

from plait.hf import Scores
from plait.hf.layer import Limits
from plait.hf.policies import Token
from plait.hf.tapped import TappedCache
from plait.lab.caches.future_use import UsageRecipe
from plait.ops.bounded_attention import bounded_attention
from plait.ops.lifetimes import lifetimes

__all__ = ["EvictionRecipe", "straight_through_attention"]

_TEMPERATURE = 0.5  # width, in scores, of the band around the threshold in which a state gets a gradient
_LARGEST = 10.0  # energy of an evicted state above the largest kept one, at most, in its gradient


class EvictionRecipe:
    """Training through eviction: forward exactly what a bounded cache computes, backward straight through.

    The loss is KL(p ‖ q), with p the next tokens' distribution of the model with its full cache and q that of
    the model with the bounded one, over the steps at which something has been dropped.
    """

    name = "eviction"
    score = "agreement"
    lr = 5e-4

    def __init__(self, model: Any, limits: Limits) -> None:
        self.model, self.limits = model, limits

    def calibrate(self, scores: Scores, ids: Tensor) -> None:
        """Set the standardisation of features from a batch of texts."""
        UsageRecipe(self.model, self.limits).calibrate(scores, ids)

    def update(self, scores: Scores, optimizer: torch.optim.Optimizer, ids: Tensor) -> dict[str, float]:
        """Take one optimizer step on a batch (B, T) of texts; return the figures of the update."""

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            ranks = scores(Token(key, value, number, layer))
            output: Tensor = checkpoint(
                straight_through_attention, query, key, value, ranks, self.limits, use_reentrant=False
            )
            return output

        number = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        loss, agreement = self._compare(ids, TappedCache(self.model, attention))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(scores.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.item(), "score": agreement, "gradient_norm": norm.item()}

    @torch.no_grad()
    def evaluate(self, scores: Scores, ids: Tensor) -> dict[str, float]:
        """Return loss and score on a batch of texts."""

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            sizes = self.limits._asdict()
            deaths = lifetimes(scores(Token(key, value, number, layer)), **sizes).deaths
            return bounded_attention(query, key, value, deaths, **sizes)

        number = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        loss, agreement = self._compare(ids, TappedCache(self.model, attention))
        return {"loss": loss.item(), "score": agreement}

    def _compare(self, ids: Tensor, cache: TappedCache) -> tuple[Tensor, float]:
        """Return the divergence from the full cache, and the share of steps with one most likely token."""
        begin = self.limits.slots
        with torch.no_grad():
            full = self.model(ids, use_cache=False).logits[:, begin:].float().log_softmax(dim=-1)
        own = self.model(ids, past_key_values=cache).logits[:, begin:].float().log_softmax(dim=-1)
        divergence = kl_div(own, full, reduction="none", log_target=True).sum(dim=-1).mean()
        agreement = (own.argmax(dim=-1) == full.argmax(dim=-1)).float().mean().item()
        return divergence, agreement


def straight_through_attention(
    query: Tensor, key: Tensor, value: Tensor, ranks: Tensor, limits: Limits
) -> Tensor:
    r"""Return what a bounded cache reads, with a gradient for the ranks.

    $o_t = \sum_j g_{tj} e^{e_{tj}} v_j / \sum_j g_{tj} e^{e_{tj}}$ with gates g of 0 and 1 by `lifetimes`.
    Backward, the gate of an older state has the derivative of $σ((r_j - θ_t)/τ)$, where θ_t is the lowest
    rank kept at t. So an evicted state of a rank near to θ_t learns what it would have changed if kept, and
    one that was kept what its eviction would have.

    Args:
        query: (B, heads, T, D), heads a multiple of H.
        key: (B, H, T, D).
        value: (B, H, T, D).
        ranks: (B, H, T).
        limits: window, capacity and sinks.
    """
    window, _, sinks = limits
    sizes = limits._asdict()
    deaths = lifetimes(ranks, **sizes).deaths.unsqueeze(2)
    born = torch.arange(key.shape[2], device=key.device)
    age = born.unsqueeze(1) - born
    kept = (age >= 0) & (born.unsqueeze(1) < deaths)  # (B, H, T, T): query, state
    older = (age >= window) & (born >= sinks)
    scores = ranks.unsqueeze(2)
    level = scores.detach().masked_fill(~(kept & older), torch.inf).amin(dim=-1, keepdim=True)
    dropped = (older & ~kept).any(dim=-1, keepdim=True)
    soft = ((scores - level.masked_fill(~dropped, 0)) / _TEMPERATURE).sigmoid() * (older & dropped)
    gates = (kept + (soft - soft.detach())).unsqueeze(2)
    energies = query.float().unflatten(1, (key.shape[1], -1)) @ key.float().unsqueeze(2).mT
    energies = (energies * query.shape[3] ** -0.5).masked_fill(age < 0, -torch.inf)
    largest = energies.detach().masked_fill(~kept.unsqueeze(2), -torch.inf).amax(dim=-1, keepdim=True)
    weights = (energies - largest).clamp_max(_LARGEST).exp() * gates
    output: Tensor = (weights / weights.sum(dim=-1, keepdim=True)) @ value.float().unsqueeze(2)
    return output.flatten(1, 2).to(query.dtype)
