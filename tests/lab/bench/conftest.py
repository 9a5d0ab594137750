"""What the tests of the measurements share."""

import pytest

from plait.lab.bench import ppo_learners, timing


class Clock:
    """A clock that only its own naps move: a busy machine does not."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def nap(self, seconds):
        """Work that takes so long."""
        return lambda: self.sleep(seconds)


@pytest.fixture
def clock(monkeypatch):
    """The time of the modules that measure."""
    clock = Clock()
    for module in (ppo_learners, timing):
        monkeypatch.setattr(module, "time", clock)
    return clock
