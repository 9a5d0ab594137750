"""Requests to stop: by a signal, by a time limit, or by a function called after every update."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from plait.errors import ConfigError

__all__ = ["CutShort", "Stop"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SOON = 0.5  # seconds within which most updates end, so that no message is needed
_AT_ONCE = 1.0  # seconds an interrupted computation may take to unwind
_PATIENCE = 2.0  # seconds within which most updates end; longer work may be aborted


class CutShort(Exception):
    """An update aborted because a stop was overdue; the state to save is that before the update."""


class Stop(contextlib.AbstractContextManager["Stop"]):
    """Context manager that turns the first SIGINT, SIGTERM or SIGHUP into a request to stop.

    The first signal only sets `requested`, with a message if stopping takes a while; a second one interrupts.
    A SIGHUP that is ignored, as under nohup, stays ignored. Python runs signal handlers between two of its
    own instructions, and an update can spend minutes in one, so a thread watches for signals as well.

    Args:
        max_minutes: request a stop after this many minutes.
        signals: False leaves the signal handlers unchanged.
        also: another condition, checked after every update.
        last_words: advice printed if the second signal has to end the process before Python can handle it;
            without it, the signal waits to be handled.
    """

    def __init__(
        self,
        max_minutes: float | None = None,
        signals: bool = True,
        also: Callable[[], bool] | None = None,
        last_words: str = "",
    ) -> None:
        if max_minutes is not None and (isinstance(max_minutes, bool) or not max_minutes > 0):
            raise ConfigError(f"max_minutes: expected a number above 0, got {max_minutes}")
        self._end = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        # Python handles signals only in its main thread.
        self._signals = signals and threading.current_thread() is threading.main_thread()
        self._also, self._last_words = also, last_words
        self._before: dict[signal.Signals, Any] = {}
        self._listening = contextlib.ExitStack()
        self.signal: signal.Signals | None = None
        self._since = math.inf  # time of the first signal

    def __enter__(self) -> Stop:
        if self._signals:
            for number in _SIGNALS:
                if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
            self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._listening.close()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal, self._since = signal.Signals(number), time.monotonic()

    def _listen(self) -> None:
        """Have the number of every signal written to a pipe, and start a thread that reads it."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        thread = threading.Thread(target=self._wait, args=(reading,), name="plait-stop", daemon=True)
        thread.start()
        self._listening.callback(os.close, reading)
        self._listening.callback(thread.join)
        self._listening.callback(os.close, writing)  # ends the thread
        self._listening.callback(signal.set_wakeup_fd, before)

    def _wait(self, pipe: int) -> None:
        if _number(pipe) is None:
            return
        number = _number(pipe, _SOON)
        if number == 0:
            _say(
                "stopping: the current computation is finished or dropped, then saved; "
                "Ctrl-C again stops at once"
            )
            number = _number(pipe)
        if number is not None and self._last_words and _number(pipe, _AT_ONCE) == 0:
            _say(f"plait: stopped at once; {self._last_words}")
            os._exit(128 + number)

    @property
    def requested(self) -> bool:
        return self.signal is not None or self._late or (self._also is not None and self._also())

    @property
    def overdue(self) -> bool:
        """Return whether a signal or the time limit came so long ago that long work should be aborted."""
        since = self._since if self._end is None else min(self._since, self._end)
        return time.monotonic() >= since + _PATIENCE

    @property
    def _late(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    @property
    def reason(self) -> str:
        if self.signal is not None:
            return self.signal.name
        return "max-minutes" if self._late else "asked to"

    def pass_on(self) -> None:
        """Raise what the signal would have raised, once all is saved: exit codes 130, 143 and 129."""
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


def _number(pipe: int, seconds: float | None = None) -> int | None:
    """Return the next stop signal; 0 if none comes in that time, None once the pipe is closed."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([pipe], [], [], left)[0]:
            return 0
        numbers = os.read(pipe, 1)
        if not numbers:
            return None
        if numbers[0] in _SIGNALS:  # other signals may have handlers too
            return numbers[0]


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr is closed
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
