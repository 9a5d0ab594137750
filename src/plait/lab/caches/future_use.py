"""Recipe `usage`: scores learn to predict how strongly later queries will read a state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from plait.hf import Scores
from plait.hf.layer import Limits
from plait.hf.policies import Token
from plait.hf.tapped import TappedCache

__all__ = ["Observed", "UsageRecipe", "decision_steps", "later_use", "observe"]

_DECISIONS = 8  # steps of a text at which older states are compared
_MINIBATCHES = 8  # optimizer steps on the states of one batch of texts, which one forward pass observes
_NEGLIGIBLE = 1e-3  # attention weight below which a state is as good as unread
_MOST = 1 << 28  # attention weights computed at once


class Observed(NamedTuple):
    """States of one layer, and log attention (B, H, decisions, T) that later queries pay to each."""

    token: Token
    log_use: Tensor


class UsageRecipe:
    """Regression of the logarithm of the largest attention that any later query pays to a state.

    At several steps t of a text the cache has to choose among the states that have left the window. The
    better choice is the one that queries from t on read most, in a model with its full cache: u_j(t), the
    largest weight of all queries of the group. The loss is the squared error between r_j and log u_j(t),
    each less its mean over the states compared, because only the order at one step matters. A head's rate of
    ageing is learned as well, from t: the same state is worth less later on.
    """

    name = "usage"
    score = "explained variance"
    lr = 2e-3

    def __init__(self, model: Any, limits: Limits) -> None:
        self.model, self.limits = model, limits

    def calibrate(self, scores: Scores, ids: Tensor) -> None:
        """Set the standardisation of features from a batch of texts."""
        scores.calibrate([observed.token for observed in observe(self.model, ids, self.limits)])

    def update(
        self, scores: Scores, optimizer: torch.optim.Optimizer, ids: Tensor, answers: Tensor | None = None
    ) -> dict[str, float]:
        """Take several optimizer steps on a batch (B, T) of texts; return the figures of the update.

        Queries at answers count like all others: the largest attention finds them.
        """
        layers = observe(self.model, ids, self.limits)
        errors: list[Tensor] = []
        spreads: list[Tensor] = []
        norms: list[Tensor] = []
        for part in range(_MINIBATCHES):
            error, spread = self._errors(scores, layers, slice(part, None, _MINIBATCHES))
            optimizer.zero_grad()
            error.sum().backward()
            norms.append(nn.utils.get_total_norm([p.grad for p in scores.parameters() if p.grad is not None]))
            optimizer.step()
            errors.append(error.detach().mean())
            spreads.append(spread.mean())
        loss, variance, norm = (torch.stack(x).mean().item() for x in (errors, spreads, norms))
        return {"loss": loss, "score": 1 - loss / max(variance, 1e-12), "gradient_norm": norm}

    @torch.no_grad()
    def evaluate(self, scores: Scores, ids: Tensor, answers: Tensor | None = None) -> dict[str, float]:
        """Return loss and score on a batch of texts."""
        layers = observe(self.model, ids, self.limits)
        error, spread = self._errors(scores, layers, slice(None))
        loss = error.mean().item()
        return {"loss": loss, "score": 1 - loss / max(spread.mean().item(), 1e-12)}

    def _errors(self, scores: Scores, layers: list[Observed], part: slice) -> tuple[Tensor, Tensor]:
        """Return the mean squared error and the variance of the target of each layer, for some states."""
        window, _, sinks = self.limits
        errors, spreads = [], []
        for token, log_use in layers:
            kept = token[:, part]
            target, born = log_use[..., part], kept.number[0]
            steps = torch.tensor(decision_steps(log_use.shape[3], self.limits), device=born.device)
            older = (born >= sinks) & (born <= steps.unsqueeze(1) - window)
            weight = older / older.sum(dim=1, keepdim=True).clamp_min(1) / max(len(steps), 1)
            error = _centred(scores(kept).unsqueeze(2) - target, older)
            errors.append((error.square() * weight).sum(dim=(2, 3)).mean())
            spreads.append((_centred(target, older).square() * weight).sum(dim=(2, 3)).mean())
        return torch.stack(errors), torch.stack(spreads)


@torch.no_grad()
def observe(model: Any, ids: Tensor, limits: Limits, power: float = math.inf) -> list[Observed]:
    """Return the states of every layer and the attention later queries pay to them, in one forward pass."""
    layers: list[Observed] = []
    steps = decision_steps(ids.shape[1], limits)

    def attention(query: Tensor, token: Token) -> Tensor:
        use = later_use(query, token.key, steps, power)
        layers.append(Observed(token, (use + _NEGLIGIBLE).log()))
        return scaled_dot_product_attention(query, token.key, token.value, is_causal=True, enable_gqa=True)

    model(ids, past_key_values=TappedCache(model, attention), logits_to_keep=1)
    return layers


def decision_steps(length: int, limits: Limits) -> list[int]:
    """Return the steps at which states are compared, evenly spaced from the first with a full cache.

    >>> decision_steps(1024, Limits(window=64, capacity=60, sinks=4))
    [128, 240, 352, 464, 576, 688, 800, 912]
    """
    free = length - limits.slots
    return [limits.slots + i * free // _DECISIONS for i in range(_DECISIONS)]


def later_use(query: Tensor, key: Tensor, steps: list[int], power: float = math.inf) -> Tensor:
    r"""Return (B, H, len(steps), T): the attention that queries at each step or after pay to a state.

    It is $(\sum_q a_q^p)^{1/p}$ over the weights of all later queries of the group: the largest for p = ∞,
    their sum for 1.

    Args:
        query: (B, heads, T, D), heads a multiple of H.
        key: (B, H, T, D).
        steps: increasing.
        power: p.

    >>> query = torch.tensor([[[[0.0], [0.0], [9.0]]]])
    >>> later_use(query, torch.tensor([[[[1.0], [0.0], [0.0]]]]), [1, 2])[0, 0, :, 0].tolist()
    [0.9997532963752747, 0.9997532963752747]
    """
    grouped = query.unflatten(1, (key.shape[1], -1)) * query.shape[3] ** -0.5
    states, length = key.unsqueeze(2), key.shape[2]
    born = torch.arange(length, device=key.device)
    size = max(1, _MOST // (query.shape[0] * query.shape[1] * length))
    total = key.new_zeros(*key.shape[:2], length, dtype=torch.float32)
    use: list[Tensor] = []
    for begin, end in reversed(list(zip(steps, [*steps[1:], length], strict=True))):
        for first in range(begin, end, size):
            last = min(first + size, end)  # no query before it reads a state born at `last` or after
            energies = (grouped[:, :, :, first:last] @ states[:, :, :, :last].mT).float()
            later = born[:last] > torch.arange(first, last, device=key.device).unsqueeze(1)
            weights = energies.masked_fill_(later, -torch.inf).softmax(dim=-1)
            known = total[..., :last]
            if power == math.inf:
                torch.maximum(known, weights.amax(dim=(2, 3)), out=known)
            else:
                known += weights.pow_(power).sum(dim=(2, 3))
        use.append(total if power == math.inf else total ** (1 / power))
        total = total.clone()
    return torch.stack(use[::-1], dim=2)


def _centred(values: Tensor, older: Tensor) -> Tensor:
    """Return (B, H, decisions, n) less its mean over the older states, 0 for all others."""
    values = values * older
    mean = values.sum(dim=-1, keepdim=True) / older.sum(dim=1, keepdim=True).clamp_min(1)
    return (values - mean) * older
