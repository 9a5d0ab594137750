"""Returns: rewards divided by the standard deviation of the returns, and the best mean return."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.lab.training.ppo.rollout import Episode, Rollout

__all__ = ["BestMean", "ReturnScale"]

_LEAST = 1e-4  # smallest standard deviation that rewards are divided by


class ReturnScale:
    """Reward scaling: r_t / σ, σ² the variance of G_t = γ G_{t−1} + r_t over all steps of all environments.

    The critic's errors are then about 1 in any environment, and one learning rate fits. Reported returns are
    not scaled.

    Args:
        envs: number of environments.
        discount: γ.
    """

    def __init__(self, envs: int, discount: float) -> None:
        self.discount = discount
        self.running = torch.zeros(envs, dtype=torch.float64)  # G
        self.moments = torch.zeros(3, dtype=torch.float64)  # steps, mean and mean of squares of G

    def __call__(self, rollout: Rollout) -> Tensor:
        """Return the scaled rewards of a rollout, (T, B), after adding it to the statistics."""
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
        """Return the tensors a resume needs."""
        return {"running": self.running, "moments": self.moments}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        self.running, self.moments = saved["running"], saved["moments"]


class BestMean:
    """Maximum mean episodic reward (MMER): the largest mean return over one stretch of training.

    The mean is over the episodes that ended within the stretch, which is `STRETCH` steps or, if that is
    longer, one rollout.

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
        steps_done, ended, total, stretches, best = self.state.tolist()
        steps_done, ended = steps_done + steps, ended + len(episodes)
        total += sum(episode.reward for episode in episodes)
        if steps_done >= self.STRETCH and ended:
            best = max(best, total / ended) if stretches else total / ended
            steps_done, ended, total, stretches = 0.0, 0.0, 0.0, stretches + 1
        self.state = torch.tensor([steps_done, ended, total, stretches, best], dtype=torch.float64)

    @property
    def value(self) -> float | None:
        """The best mean; the mean so far during the first stretch, None before an episode ended."""
        _, ended, total, stretches, best = self.state.tolist()
        return float(best) if stretches else float(total / ended) if ended else None
