"""Statistics of returns: the scale by which rewards are divided, and the best mean return of training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.lab.training.ppo.rollout import Episode, Rollout

__all__ = ["BestMean", "RewardScaling"]

_MIN_STD = 1e-4  # smallest standard deviation that rewards are divided by


class RewardScaling:
    """Reward scaling: r_t / σ, σ² the variance of G_t = γ G_{t−1} + r_t over all steps of all environments.

    The critic's errors are then about 1 in any environment, and one learning rate fits. Reported returns are
    not scaled.

    Args:
        num_envs: number of environments.
        gamma: γ.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.returns = torch.zeros(num_envs, dtype=torch.float64)  # G
        self.moments = torch.zeros(3, dtype=torch.float64)  # steps, mean and mean of squares of G

    def __call__(self, rollout: Rollout) -> Tensor:
        """Return the scaled rewards of a rollout, (T, B), after adding it to the statistics."""
        history = []
        for reward, episode_start in zip(rollout.rewards.double(), rollout.episode_starts, strict=True):
            self.returns = self.returns.masked_fill(episode_start, 0) * self.gamma + reward
            history.append(self.returns)
        values = torch.stack(history)[rollout.valid]
        count, mean, squares = self.moments.tolist()
        total = count + values.numel()
        if values.numel():
            mean += (values.sum().item() - values.numel() * mean) / total
            squares += (values.square().sum().item() - values.numel() * squares) / total
        self.moments = torch.tensor([total, mean, squares], dtype=torch.float64)
        std = max(squares - mean * mean, 0.0) ** 0.5
        scaled: Tensor = rollout.rewards / max(std, _MIN_STD)
        return scaled

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors a resume needs."""
        return {"returns": self.returns, "moments": self.moments}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        self.returns, self.moments = saved["returns"], saved["moments"]


class BestMean:
    """Maximum mean episodic reward (MMER): the largest mean return over one segment of training.

    The mean is over the episodes that ended within the segment, which is `SEGMENT` steps or, if that is
    longer, one rollout.

    >>> best = BestMean()
    >>> best.add([Episode(0.5, 10), Episode(1.0, 10)], BestMean.SEGMENT)
    >>> best.add([Episode(0.25, 10)], BestMean.SEGMENT)
    >>> best.value
    0.75
    """

    SEGMENT = 65_536  # transitions of a batch in the published experiments

    def __init__(self) -> None:
        # Steps, episodes and sum of returns of the open segment; number of closed segments; best mean.
        self.state = torch.zeros(5, dtype=torch.float64)

    def add(self, episodes: Sequence[Episode], steps: int) -> None:
        """Count the episodes that ended within the latest `steps` steps."""
        steps_done, ended, total, segments, best = self.state.tolist()
        steps_done, ended = steps_done + steps, ended + len(episodes)
        total += sum(episode.reward for episode in episodes)
        if steps_done >= self.SEGMENT and ended:
            best = max(best, total / ended) if segments else total / ended
            steps_done, ended, total, segments = 0.0, 0.0, 0.0, segments + 1
        self.state = torch.tensor([steps_done, ended, total, segments, best], dtype=torch.float64)

    @property
    def value(self) -> float | None:
        """The best mean; the mean so far during the first segment, None before an episode ended."""
        _, ended, total, segments, best = self.state.tolist()
        return float(best) if segments else float(total / ended) if ended else None
