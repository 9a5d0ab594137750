"""A sample of a regression's held-out targets with their predictions."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["SEQUENCES", "sample_of"]

SEQUENCES = 400  # held-out sequences that a sample is drawn from
_MOST = 200  # pairs of a sample


def sample_of(parts: Iterable[tuple[Tensor, Tensor]]) -> dict[str, list[float]]:
    """Return at most 200 targets with their predictions, evenly spread, to six digits.

    Args:
        parts: predictions and targets of equal shape; a target that is nan is left out.

    >>> sample_of([(torch.tensor([1.0, 2.0]), torch.tensor([1.5, torch.nan]))])
    {'target': [1.5], 'predicted': [1.0]}
    """
    pairs = torch.cat([torch.stack([t.flatten(), p.flatten()], 1).cpu().double() for p, t in parts])
    pairs = pairs[pairs.isfinite().all(1)]
    pairs = pairs[:: max(1, -(-len(pairs) // _MOST))]
    columns = [[float(f"{value:.6g}") for value in column] for column in pairs.T.tolist()]
    return dict(zip(("target", "predicted"), columns, strict=True))
