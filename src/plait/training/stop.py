"""When to stop: a signal, a clock, or whoever is asked after every update."""

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
_SOON = 0.5  # seconds within which most updates end, and nothing has to be said
_AT_ONCE = 1.0  # seconds that what was interrupted may take to leave
_PATIENCE = 2.0  # seconds within which most updates end; what takes longer may be left


class CutShort(Exception):
    """What was begun was left because a stop was overdue; what there is to save is from before it."""


class Stop(contextlib.AbstractContextManager["Stop"]):
    """Between `with` and its end the first SIGINT, SIGTERM or SIGHUP only sets `asked`, and where that takes
    a while, says so; a second one interrupts. A SIGHUP that is ignored, as under nohup, stays ignored.

    Python hears a signal between two of its own steps, and an update can spend minutes in one: so a thread
    listens beside.

    Args:
        max_minutes: ask to stop after this many minutes.
        signals: False leaves signals as they are.
        also: another reason, asked after every update.
        last_words: what is said where the second signal has to end the process without being heard; without
            them it waits to be heard.
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
        # Python hears signals in its main thread alone.
        self._signals = signals and threading.current_thread() is threading.main_thread()
        self._also, self._last_words = also, last_words
        self._before: dict[signal.Signals, Any] = {}
        self._listening = contextlib.ExitStack()
        self.signal: signal.Signals | None = None
        self._since = math.inf  # when it came

    def __enter__(self) -> Stop:
        if self._signals:
            for number in _SIGNALS:
                if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._heard)
            self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._listening.close()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _heard(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal, self._since = signal.Signals(number), time.monotonic()

    def _listen(self) -> None:
        """Have the number of every signal written to a pipe, and a thread that reads it."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        thread = threading.Thread(target=self._wait, args=(reading,), name="plait-stop", daemon=True)
        thread.start()
        self._listening.callback(os.close, reading)
        self._listening.callback(thread.join)
        self._listening.callback(os.close, writing)  # which ends the thread
        self._listening.callback(signal.set_wakeup_fd, before)

    def _wait(self, pipe: int) -> None:
        if _number(pipe) is None:
            return
        number = _number(pipe, _SOON)
        if number == 0:
            _say(
                "stopping: what is being computed is finished or left, then saved; Ctrl-C again ends at once"
            )
            number = _number(pipe)
        if number is not None and self._last_words and _number(pipe, _AT_ONCE) == 0:
            _say(f"plait: ended at once; {self._last_words}")
            os._exit(128 + number)

    @property
    def asked(self) -> bool:
        return self.signal is not None or self._late or (self._also is not None and self._also())

    @property
    def overdue(self) -> bool:
        """Whether a signal or the clock asked so long ago that what takes a while is to be left."""
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
        """What the signal would have done, once everything is saved: exit codes 130, 143 and 129."""
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


def _number(pipe: int, seconds: float | None = None) -> int | None:
    """The next signal that asks to stop; 0 if none comes in that time, None once nobody listens any more."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([pipe], [], [], left)[0]:
            return 0
        heard = os.read(pipe, 1)
        if not heard:
            return None
        if heard[0] in _SIGNALS:  # others have handlers too
            return heard[0]


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
