"""Several processes, forked from one warm process, that share a list of work."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


def side_by_side(count: int, work: Callable[[int], None]) -> None:
    """Run work(0), …, work(count - 1), each in a process of its own; raise if one of them fails."""
    if count == 1:
        work(0)
        return
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(number,), daemon=True) for number in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a library's idle threads
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join()
    if failed := [number for number, worker in enumerate(workers) if worker.exitcode]:
        raise RuntimeError(f"workers {failed} of {count} failed; their errors stand above")


class Queue(Generic[Item]):
    """Items of which every process takes the next."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items, self.taken = items, multiprocessing.get_context("fork").Value("i", 0)

    def __iter__(self) -> Iterator[Item]:
        while True:
            with self.taken.get_lock():
                number = self.taken.value
                self.taken.value += 1
            if number >= len(self.items):
                return
            yield self.items[number]
