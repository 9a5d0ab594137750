"""Recipe `eviction`: scores learn through the bounded cache itself, to change the model's output least."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import kl_div, nll_loss, pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from plait.hf import Adapter, Scores
from plait.hf.layer import Limits
from plait.hf.policies import Token
from plait.hf.tapped import TappedCache
from plait.lab.caches.future_use import UsageRecipe
from plait.lab.caches.rank_gradient import rank_gradient
from plait.ops.bounded_attention import bounded_attention
from plait.ops.lifetimes import lifetimes

__all__ = ["EvictionRecipe", "FullRecipe", "straight_through_attention"]


class EvictionRecipe:
    """Training through eviction: forward exactly what a bounded cache computes, backward straight through.

    The loss is KL(p ‖ q), with p the next tokens' distribution of the model with its full cache and q that of
    the model with the bounded one, over the steps at which something has been dropped. A token of an answer
    counts `answer_weight` times. With an adapter, p is the model's without it, and the loss of the next token
    is added, so that the model itself learns to live with the bounded cache.
    """

    name = "eviction"
    score = "agreement"
    lr = 5e-4

    def __init__(
        self, model: Any, limits: Limits, answer_weight: float = 1.0, adapter: Adapter | None = None
    ) -> None:
        self.model, self.limits, self.answer_weight = model, limits, answer_weight
        self.adapter = adapter

    def calibrate(self, scores: Scores, ids: Tensor) -> None:
        """Set the standardisation of features from a batch of texts."""
        UsageRecipe(self.model, self.limits).calibrate(scores, ids)

    def update(
        self, scores: Scores, optimizer: torch.optim.Optimizer, ids: Tensor, answers: Tensor | None = None
    ) -> dict[str, float]:
        """Take one optimizer step on a batch (B, T) of texts; return the figures of the update."""
        loss, agreement, _ = self._compare(ids, answers, self._training_cache(scores))
        optimizer.zero_grad()
        loss.backward()
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        figures = torch.stack([loss.detach(), agreement, norm]).tolist()
        return dict(zip(("loss", "score", "gradient_norm"), figures, strict=True))

    def _training_cache(self, scores: Scores) -> TappedCache:
        def attention(query: Tensor, token: Token) -> Tensor:
            # The features are constants: ranks do not change the states of the layers below them.
            hidden = None if token.hidden is None else token.hidden.detach()
            fixed = replace(token, key=token.key.detach(), value=token.value.detach(), hidden=hidden)
            ranks = scores(fixed)
            return straight_through_attention(query, token.key, token.value, ranks, self.limits)

        return TappedCache(self.model, attention)

    @torch.no_grad()
    def evaluate(self, scores: Scores, ids: Tensor, answers: Tensor | None = None) -> dict[str, float]:
        """Return loss and score on a batch of texts, and the divergence at answers alone."""
        figures = torch.stack(self._compare(ids, answers, self._cache(scores))).tolist()
        return dict(zip(("loss", "score", "answers"), figures, strict=True))

    def _cache(self, scores: Scores) -> TappedCache:
        def attention(query: Tensor, token: Token) -> Tensor:
            sizes = self.limits._asdict()
            ranks = scores(token)
            deaths = lifetimes(ranks, **sizes).deaths
            return bounded_attention(query, token.key, token.value, deaths, **sizes)

        return TappedCache(self.model, attention)

    def _compare(
        self, ids: Tensor, answers: Tensor | None, cache: TappedCache
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the divergence from the full cache, the share of equal top tokens, and that at answers."""
        begin = self.limits.slots
        steps = ids.shape[1] - begin
        wanted = torch.zeros(len(ids), steps, device=ids.device)
        if answers is not None:  # the logits of a step are those of the next token
            wanted[:, :-1] = answers[:, begin + 1 :]
        weights = 1 + (self.answer_weight - 1) * wanted
        with torch.no_grad(), contextlib.nullcontext() if self.adapter is None else self.adapter.off():
            full = self.model(ids, use_cache=False, logits_to_keep=steps).logits
        own = self.model(ids, past_key_values=cache, logits_to_keep=steps).logits
        # A row's distributions take more memory than its other activations and are computed twice instead.
        following = ids[:, begin + 1 :] if self.adapter is not None else [None] * len(ids)
        rows = [
            checkpoint(_loss, own_row, full_row, next_row, use_reentrant=False)
            for own_row, full_row, next_row in zip(own, full, following, strict=True)
        ]
        agreement = (own.argmax(dim=-1) == full.argmax(dim=-1)).float().mean()
        divergence = torch.stack(rows)
        at_answers = (divergence.detach() * wanted).sum() / wanted.sum().clamp_min(1)
        return (divergence * weights).mean(), agreement, at_answers


class FullRecipe(EvictionRecipe):
    """Control of a tuned model: the same loss and the same updates with the full cache, nothing evicted."""

    name = "full"

    def _training_cache(self, scores: Scores) -> TappedCache:
        def attention(query: Tensor, token: Token) -> Tensor:
            return scaled_dot_product_attention(
                query, token.key, token.value, is_causal=True, enable_gqa=True
            )

        return TappedCache(self.model, attention)

    _cache = _training_cache


def _loss(own: Tensor, full: Tensor, following: Tensor | None) -> Tensor:
    """Return each step's divergence (T,) from logits (T, vocabulary), plus the loss of T − 1 next tokens."""
    own, full = own.float().log_softmax(dim=-1), full.float().log_softmax(dim=-1)
    loss = kl_div(own, full, reduction="none", log_target=True).sum(dim=-1)
    if following is not None:
        loss = loss + pad(nll_loss(own[:-1], following, reduction="none"), (0, 1))
    return loss


def straight_through_attention(
    query: Tensor, key: Tensor, value: Tensor, ranks: Tensor, limits: Limits
) -> Tensor:
    r"""Return what a bounded cache reads, with a gradient for the ranks.

    $o_t = \sum_j g_{tj} e^{e_{tj}} v_j / \sum_j g_{tj} e^{e_{tj}}$ with gates g of 0 and 1 by `lifetimes`.
    Backward, the gate of an older state has the derivative of $σ((r_j - θ_t)/τ)$, where θ_t is the lowest
    rank kept at t. So a state of a rank near to θ_t learns what its gate changes: one that is kept by the
    derivative, $a_{tj} (v_j - o_t)$ with a its attention, an evicted one by the whole difference that keeping
    it would make, whose weight is less than 1 however strongly it would be read.

    Args:
        query: (B, heads, T, D), heads a multiple of H.
        key: (B, H, T, D).
        value: (B, H, T, D).
        ranks: (B, H, T).
        limits: window, capacity and sinks.
    """
    deaths = lifetimes(ranks, **limits._asdict()).deaths
    output = bounded_attention(query, key, value, deaths, **limits._asdict())
    states = (x.detach() for x in (query, key, value))
    result: Tensor = _RankGradient.apply(output, ranks, *states, deaths, limits)
    return result


class _RankGradient(torch.autograd.Function):
    """Identity of the output whose backward pass adds the gradient of the ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        ranks: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        deaths: Tensor,
        limits: Limits,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, output, ranks, deaths)
        ctx.limits = limits
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, ranks, deaths = ctx.saved_tensors
        d_ranks = rank_gradient(d_output, query, key, value, output, ranks, deaths, ctx.limits)
        return d_output, d_ranks, None, None, None, None, None
