"""Recipe `choice`: scores learn which states an oracle would keep, weighted by what a mistake costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from plait.hf import Scores
from plait.hf.layer import Limits
from plait.lab.caches.future_use import Observed, UsageRecipe, decision_steps, observe

__all__ = ["ChoiceRecipe"]

_POWER = 0.5  # a mistake costs the difference of attentions to this power: 1 sees only what is read most


class ChoiceRecipe:
    r"""Classification of older states into those an oracle keeps and those it drops.

    At a step the oracle keeps the `capacity` older states that later queries read most, by the attention
    u_j of recipe `usage`. The loss is $\sum_j |\sqrt{u_j} - \sqrt{v}| \log(1 + e^{∓(r_j - θ)})$, where v is
    the use at the oracle's threshold and θ the rank at the scores' own. So states that are never read need
    not be distinguished, and those far above the threshold count most.
    """

    name = "choice"
    score = "share of the oracle's use"
    lr = 2e-3

    def __init__(self, model: Any, limits: Limits) -> None:
        self.model, self.limits = model, limits

    def calibrate(self, scores: Scores, ids: Tensor) -> None:
        """Set the standardisation of features from a batch of texts."""
        UsageRecipe(self.model, self.limits).calibrate(scores, ids)

    def update(
        self, scores: Scores, optimizer: torch.optim.Optimizer, ids: Tensor, answers: Tensor | None = None
    ) -> dict[str, float]:
        """Take an optimizer step for each decision of a batch (B, T) of texts; return the figures."""
        layers = observe(self.model, ids, self.limits)
        figures: list[Tensor] = []
        for decision in range(len(decision_steps(ids.shape[1], self.limits))):
            loss, share = self._losses(scores, layers, decision)
            optimizer.zero_grad()
            loss.sum().backward()
            norm = nn.utils.get_total_norm([p.grad for p in scores.parameters() if p.grad is not None])
            optimizer.step()
            figures.append(torch.stack([loss.detach().mean(), share.mean(), norm]))
        loss, share, norm = torch.stack(figures).mean(dim=0).tolist()
        return {"loss": loss, "score": share, "gradient_norm": norm}

    @torch.no_grad()
    def evaluate(self, scores: Scores, ids: Tensor, answers: Tensor | None = None) -> dict[str, float]:
        """Return loss and score on a batch of texts."""
        layers = observe(self.model, ids, self.limits)
        decisions = range(len(decision_steps(ids.shape[1], self.limits)))
        parts = [torch.stack(self._losses(scores, layers, decision)) for decision in decisions]
        loss, share = torch.stack(parts).mean(dim=(0, 2)).tolist()
        return {"loss": loss, "score": share}

    def _losses(self, scores: Scores, layers: list[Observed], decision: int) -> tuple[Tensor, Tensor]:
        """Return each layer's loss at one decision, and the kept states' share of the best usage."""
        window, capacity, sinks = self.limits
        losses, shares = [], []
        for token, log_use in layers:
            step = decision_steps(log_use.shape[3], self.limits)[decision]
            older = slice(sinks, step - window + 1)
            use, ranks = log_use[:, :, decision, older].exp(), scores(token[:, older])
            best, level = _threshold(use, capacity)
            kept, threshold = _threshold(ranks.detach(), capacity)
            cost = use**_POWER - level**_POWER
            losses.append((cost.abs() * softplus(-cost.sign() * (ranks - threshold))).sum(dim=2).mean())
            shares.append(use.gather(2, kept).sum() / use.gather(2, best).sum().clamp_min(1e-12))
        return torch.stack(losses), torch.stack(shares)


def _threshold(values: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the largest `capacity` of (B, H, n), n > capacity, and the threshold."""
    top = values.topk(capacity + 1, dim=2)
    return top.indices[..., :capacity], top.values[..., -2:].mean(dim=2, keepdim=True)
