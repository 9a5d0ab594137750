"""Who looks on while a model is trained: a progress display, TensorBoard, or your own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.training.learner import Step

__all__ = ["Everyone", "Watcher"]


class Watcher:
    """Is told what happens and changes nothing. Every method may be left as it is."""

    def began(self, run: str, update: int, updates: int) -> None:
        """A session begins after `update` of `updates` updates."""

    def updated(self, update: int, step: Step) -> None:
        """An update was made."""

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        """The network was scored on held-out sequences."""

    def noted(self, text: str) -> None:
        """Something a person should know."""

    def ended(self, summary: dict[str, Any]) -> None:
        """The session ends; called whatever the reason."""


class Everyone(Watcher):
    """Passes everything on to several watchers."""

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        self.watchers = tuple(watchers)

    def began(self, run: str, update: int, updates: int) -> None:
        for watcher in self.watchers:
            watcher.began(run, update, updates)

    def updated(self, update: int, step: Step) -> None:
        for watcher in self.watchers:
            watcher.updated(update, step)

    def evaluated(self, update: int, results: dict[str, dict[str, float]]) -> None:
        for watcher in self.watchers:
            watcher.evaluated(update, results)

    def noted(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.noted(text)

    def ended(self, summary: dict[str, Any]) -> None:
        for watcher in self.watchers:
            watcher.ended(summary)
