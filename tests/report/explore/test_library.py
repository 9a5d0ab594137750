"""The explorer looks at its folder once for all who ask at the same time, and makes an answer once."""

import threading

import pytest

pytest.importorskip("starlette")

from plait.report.explore import library as module
from plait.report.explore.library import Library


def test_who_waits_uses_what_was_seen_since(bench, monkeypatch):
    folder = bench.run().parent
    library, looks, going = Library(folder), [], threading.Event()
    state = module._state

    def slow(where):
        looks.append(where)
        going.wait(5)
        return state(where)

    monkeypatch.setattr(module, "_state", slow)
    readers = [threading.Thread(target=library.groups) for _ in range(8)]
    for reader in readers:
        reader.start()
    going.set()
    for reader in readers:
        reader.join()
    assert len(looks) <= 2, "the first looks, and one for all who came while it did"
    library.groups()
    assert len(looks) <= 3, "who comes later looks again"


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
    assert len(library._made) <= module.MOST_KEPT
