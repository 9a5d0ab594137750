"""The queue of events from the tasks of a Ray cluster. It runs as an actor, so it imports nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["EventQueue"]


class EventQueue:
    """Messages in the order of their arrival.

    >>> queue = EventQueue()
    >>> queue.put({"event": "began"})
    >>> queue.take(), queue.take()
    ([{'event': 'began'}], [])
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def take(self) -> list[dict[str, Any]]:
        """Return the messages since the last call."""
        taken, self.messages = self.messages, []
        return taken
