"""Where the tasks of a cluster leave word of how they get on. An actor of its own, so it imports nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["Mailbox"]


class Mailbox:
    """Letters in the order they came.

    >>> box = Mailbox()
    >>> box.put({"event": "began"})
    >>> box.take(), box.take()
    ([{'event': 'began'}], [])
    """

    def __init__(self) -> None:
        self.letters: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any]) -> None:
        self.letters.append(message)

    def take(self) -> list[dict[str, Any]]:
        """Everything since the last time."""
        taken, self.letters = self.letters, []
        return taken
