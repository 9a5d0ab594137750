"""What is gained: rewards divided by the spread of the returns they make, and the best mean return."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.training.ppo.rollout import Episode, Rollout

__all__ = ["BestMean", "ReturnScale"]

_LEAST = 1e-4  # spread below which rewards are not blown up further


class ReturnScale:
    """r_t / σ, with σ² the variance of G_t = γ G_{t−1} + r_t over all steps played so far, of all worlds.

    A critic's errors are then about 1 in any world, and one learning rate fits. Returns that are shown stay
    as they are.

    Args:
        envs: worlds that are played.
        discount: γ.
    """

    def __init__(self, envs: int, discount: float) -> None:
        self.discount = discount
        self.running = torch.zeros(envs, dtype=torch.float64)  # G
        self.moments = torch.zeros(3, dtype=torch.float64)  # steps, mean and mean of squares of G

    def __call__(self, rollout: Rollout) -> Tensor:
        """The rewards of a rollout (T, B), by what was seen up to its end."""
        gathered = []
        for reward, begins in zip(rollout.rewards.double(), rollout.begins, strict=True):
            self.running = self.running.masked_fill(begins, 0) * self.discount + reward
            gathered.append(self.running)
        values = torch.stack(gathered)[rollout.counted]
        count, mean, squares = self.moments.tolist()
        total = count + values.numel()
        if values.numel():
            mean += (values.sum().item() - values.numel() * mean) / total
            squares += (values.square().sum().item() - values.numel() * squares) / total
        self.moments = torch.tensor([total, mean, squares], dtype=torch.float64)
        spread = max(squares - mean * mean, 0.0) ** 0.5
        scaled: Tensor = rollout.rewards / max(spread, _LEAST)
        return scaled

    def tensors(self) -> dict[str, Tensor]:
        """What a resume needs."""
        return {"running": self.running, "moments": self.moments}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Go on from there."""
        self.running, self.moments = saved["running"], saved["moments"]


class BestMean:
    """The largest mean return of the episodes that ended within one stretch of training (MMER: maximum mean
    episodic reward), over stretches of `STRETCH` steps or, where a rollout is longer, one rollout.

    >>> best = BestMean()
    >>> best.add([Episode(0.5, 10), Episode(1.0, 10)], BestMean.STRETCH)
    >>> best.add([Episode(0.25, 10)], BestMean.STRETCH)
    >>> best.value
    0.75
    """

    STRETCH = 65_536  # transitions of a batch in the published experiments

    def __init__(self) -> None:
        self.state = torch.zeros(5, dtype=torch.float64)  # stretch: steps, episodes, sum; stretches; best

    def add(self, episodes: Sequence[Episode], steps: int) -> None:
        """Count the episodes that ended within the latest `steps` steps."""
        lasted, ended, gained, stretches, best = self.state.tolist()
        lasted, ended = lasted + steps, ended + len(episodes)
        gained += sum(episode.reward for episode in episodes)
        if lasted >= self.STRETCH and ended:
            best = max(best, gained / ended) if stretches else gained / ended
            lasted, ended, gained, stretches = 0.0, 0.0, 0.0, stretches + 1
        self.state = torch.tensor([lasted, ended, gained, stretches, best], dtype=torch.float64)

    @property
    def value(self) -> float | None:
        """Before the first stretch is over, the mean so far; None before an episode ended."""
        _, ended, gained, stretches, best = self.state.tolist()
        return float(best) if stretches else float(gained / ended) if ended else None
