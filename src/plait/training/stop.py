"""Reasons to stop early: Ctrl-C, SIGTERM, and time that is up. The loop asks; nothing is torn apart."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from plait.errors import ConfigError

__all__ = ["Stop"]


class Stop(contextlib.AbstractContextManager["Stop"]):
    """Between `with` and its end the first SIGINT or SIGTERM only sets `asked`; a second one interrupts.

    Args:
        max_minutes: ask to stop after so long.
        signals: False leaves signals as they are.
        also: another reason, asked after every update.
    """

    def __init__(
        self,
        max_minutes: float | None = None,
        signals: bool = True,
        also: Callable[[], bool] | None = None,
    ) -> None:
        if max_minutes is not None and (isinstance(max_minutes, bool) or not max_minutes > 0):
            raise ConfigError(f"max_minutes: expected a number above 0, got {max_minutes}")
        self._end = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        # Python hears signals in its main thread alone.
        self._signals = signals and threading.current_thread() is threading.main_thread()
        self._also = also
        self._before: dict[signal.Signals, Any] = {}
        self.signal: signal.Signals | None = None

    def __enter__(self) -> Stop:
        if self._signals:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _heard(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)

    @property
    def asked(self) -> bool:
        return self.signal is not None or self._late or (self._also is not None and self._also())

    @property
    def _late(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    @property
    def reason(self) -> str:
        if self.signal is not None:
            return self.signal.name
        return "max-minutes" if self._late else "asked to"

    def pass_on(self) -> None:
        """What the signal would have done, once everything is saved: exit codes 130 and 143."""
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
