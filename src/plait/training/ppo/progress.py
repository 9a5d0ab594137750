"""How a run of PPO goes: a live bar on a terminal, plain lines elsewhere, counted in steps of the worlds."""

from __future__ import annotations

import time
from typing import Any, TextIO

from plait.training.progress import Bar, Clock, Lines, display
from plait.training.watch import Watcher

__all__ = ["PolicyBar", "PolicyLines", "policy_display"]

Results = dict[str, dict[str, float]]


def policy_display(wanted: bool, stream: TextIO | None = None) -> list[Watcher]:
    """The display that fits the stream; none if none is wanted."""
    return display(wanted, stream, PolicyBar, PolicyLines)


def playing(line: dict[str, Any]) -> str:
    """Return and success of the episodes that ended lately.

    >>> playing({"return": 0.5, "success": 0.75})
    'return 0.500  success 75%'
    """
    if line["return"] is None:
        return "no episode ended yet"
    return f"return {line['return']:.3f}  success {line['success']:.0%}"


def held_out(results: Results) -> str:
    """The same of held-out episodes, world by world.

    >>> held_out({"DoorKey-5x5": {"score": 0.9, "success": 1.0, "length": 20.0}})
    'DoorKey-5x5 return 0.900  success 100%  20 steps'
    """
    return "; ".join(
        f"{name} return {one['score']:.3f}  success {one['success']:.0%}  {one['length']:.0f} steps"
        for name, one in results.items()
    )


class PolicyLines(Lines):
    """One line at the beginning, at each look at held-out episodes, every `seconds` between, at the end."""

    def began(self, run: str, update: int, updates: int) -> None:
        self.clock = Clock(update, updates)
        self.noted(f"{run}: {updates:,} steps" + (f", going on after {update:,}" if update else ""))

    def updated(self, update: int, step: Any) -> None:
        if time.monotonic() - self.last_line >= self.seconds:
            self.noted(f"{self._where(update)}  {playing(step)}")

    def evaluated(self, update: int, results: Results) -> None:
        self.noted(f"{self._where(update)}  held out: {held_out(results)}")

    def ended(self, summary: dict[str, Any]) -> None:
        reason = f" ({summary['reason']})" if summary["reason"] else ""
        self.noted(
            f"{summary['status']}{reason} after {summary['steps']:,} steps, {summary['seconds']:.1f} s"
        )

    def _where(self, steps: int) -> str:
        clock = self.clock
        return f"{steps:,}/{clock.updates:,} steps  {clock.speed(steps):,.0f}/s  {clock.left(steps)} left"


class PolicyBar(Bar):
    """A live line: steps, steps a second, return, success, time left."""

    shows_count = False  # millions of steps read better with commas, among the figures

    def updated(self, update: int, step: Any) -> None:
        figures = (
            f"{update:,}/{self.clock.updates:,} steps  {playing(step)}  "
            f"{self.clock.speed(update):,.0f}/s  {self.clock.left(update)} left"
        )
        self.bar.update(self.job, completed=update, figures=figures)

    def evaluated(self, update: int, results: Results) -> None:
        self.noted(f"{update:,} steps, held out: {held_out(results)}")
