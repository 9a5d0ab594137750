"""Progress lines of training by PPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.lab.training.callbacks import ProgressFormat, Results
from plait.lab.training.learner import Step
from plait.table import percent

__all__ = ["PolicyProgressFormat"]


class PolicyProgressFormat(ProgressFormat):
    """Progress in environment steps, with thousands separators, and returns."""

    unit = "step"

    def began(self, done: int, total: int) -> str:
        return f"{total:,} steps" + (f", resuming after {done:,}" if done else "")

    def position(self, done: int, total: int) -> str:
        return f"{done:,}/{total:,} steps"

    def ended(self, summary: dict[str, Any]) -> str:
        return f"{summary['steps']:,} steps"

    def step(self, step: Step) -> str:
        """Return the mean return and success of the latest episodes.

        >>> PolicyProgressFormat().step(Step({"return": 0.5, "success": 0.75}))
        'return 0.500  success 75.0%'
        """
        if step.figures["return"] is None:
            return "no episode ended yet"
        return f"return {step.figures['return']:.3f}{_success(step.figures)}"

    def results(self, results: Results) -> str:
        """Return the mean return, success and length of held-out episodes, by environment.

        >>> PolicyProgressFormat().results({"DoorKey-5x5": {"score": 0.9, "success": 1.0, "length": 20.0}})
        'DoorKey-5x5 return 0.900  success 100.0%  20 steps'
        """
        return "; ".join(
            f"{name} return {result['score']:.3f}{_success(result)}  {result['length']:.0f} steps"
            for name, result in results.items()
        )

    def bar(self, step: Step, last: Results) -> str:
        return self.step(step)


def _success(figures: Mapping[str, float | None]) -> str:
    """Return the share of successful episodes as text; empty if episodes cannot succeed."""
    share = figures.get("success")
    return "" if share is None else f"  success {percent(share)}"
