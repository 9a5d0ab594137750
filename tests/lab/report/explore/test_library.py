"""The explorer looks at its folder once for all who ask at the same time, and makes an answer once."""

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")

from plait.lab.report.explore import library as module
from plait.lab.report.explore.library import Library


def test_waiting_requests_use_the_latest_check(bench, monkeypatch):
    folder, many = bench.run().parent, 8
    library, looks, asked, going = Library(folder), [], threading.Semaphore(0), threading.Event()
    state = module._state

    def slow(where):
        looks.append(where)
        going.wait(60)
        return state(where)

    def clock():
        now = time.monotonic()
        asked.release()  # each reader asks for the time before it waits, and who looks asks once more
        return now

    monkeypatch.setattr(module, "_state", slow)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    readers = [threading.Thread(target=library.groups) for _ in range(many)]
    for number, reader in enumerate(readers):
        reader.start()
        for _ in range(2 if number == 0 else 1):
            assert asked.acquire(timeout=60)
    going.set()
    for reader in readers:
        reader.join()
    assert len(looks) == 2, "the first looks, and one for all who came while it did"
    library.groups()
    assert len(looks) == 3, "who comes later looks again"


def test_an_answer_is_made_once_until_something_changes(bench):
    folder = bench.run().parent
    library, made = Library(folder), []
    for _ in range(3):
        library.once("a", lambda: made.append(1))
    assert len(made) == 1
    bench.run(seed=5)
    library.once("a", lambda: made.append(1))
    assert len(made) == 2


def test_not_without_end(bench):
    library = Library(bench.run().parent)
    for number in range(3 * module.MOST_KEPT):
        library.once(number, int)
    assert len(library._cache) <= module.MOST_KEPT
