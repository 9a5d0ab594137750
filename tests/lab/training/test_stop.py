"""What asks to stop is heard even while compiled code is at work, which Python's own handlers are not."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from plait.lab.training import stop as stop_module
from plait.lab.training.stop import Stop

# It spends minutes in one call that lets other threads run, as a scan of a huge batch does.
DEAF = """
import hashlib
from plait.lab.training.stop import Stop
with Stop(last_words="the run is safe"):
    print("at work", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**8)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_what_does_not_hear(number, code):
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "at work\n"
            process.send_signal(number)
            assert process.stderr.readline().startswith(
                "stopping: the current computation is finished or dropped"
            )
            process.send_signal(number)
            assert process.wait(timeout=20) == code
            assert process.stderr.read() == "plait: stopped at once; the run is safe\n"
        finally:
            process.kill()


def test_what_hears_at_once_is_left_to_end_by_itself(capfd):
    """Nothing is said of a wait there is none of, and signals are again what they were."""
    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with Stop(last_words="never said") as stop:
        signal.raise_signal(signal.SIGINT)
        assert (stop.requested, stop.reason) == (True, "SIGINT")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == ""
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before
    assert "plait-stop" not in {thread.name for thread in threading.enumerate()}


def test_other_signals_are_none_of_its_business(capfd):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with Stop(last_words="never said") as stop:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGUSR1)
            assert (heard, stop.requested) == ([1, 1, 1], False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert capfd.readouterr().err == ""


def test_a_stop_is_overdue_only_after_a_while(monkeypatch):
    """What ends soon is finished and kept; who asks after every update is not asked in between."""
    now = [100.0]
    monkeypatch.setattr(stop_module.time, "monotonic", lambda: now[0])
    clocked, asking = Stop(max_minutes=1, signals=False), Stop(signals=False, also=lambda: True)
    with Stop() as signalled:
        signal.raise_signal(signal.SIGINT)
        found = []
        for now[0] in (101.0, 103.0, 161.0, 163.0):
            found.append((clocked.requested, clocked.overdue, signalled.overdue, asking.overdue))
    assert found == [
        (False, False, False, False),
        (False, False, True, False),
        (True, False, True, False),
        (True, True, True, False),
    ]
