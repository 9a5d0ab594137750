"""Rows of `plait bench layers`: each layer with each backend, checked for parity before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from plait.lab.bench import parity
from plait.lab.bench.layer_config import BOUNDED, PEERS, PRECISIONS, LayerConfig, backends_here
from plait.lab.bench.peak import peak_megabytes
from plait.lab.bench.timing import Times, take_turns

__all__ = ["BASELINE", "Entry", "entries_of", "measured"]

BASELINE = "torch.nn.LSTM"
# largest steps × rows at which the reference is timed; it takes minutes beyond
_LARGEST_REFERENCE = 120 * 10
# largest T at which full attention is timed; its time grows with T²
_LONGEST_FULL_MEMORY = {"cpu": 200, "cuda": 2048}


@dataclass(frozen=True)
class Entry:
    """A layer, the backend that runs it, and the result of its parity check.

    `agreed` is the tolerance that was met, None if there was nothing to compare; `wrong` lists differences.
    """

    config: LayerConfig
    backend: str
    agreed: float | None = None
    wrong: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.config.title} {self.backend}"

    @property
    def verdict(self) -> str | None:
        if self.wrong:
            return f"failed: {self.wrong[0]}"
        return None if self.agreed is None else f"≤ {self.agreed:.0e}"

    @property
    def failures(self) -> list[str]:
        return [f"{self.config.title} × {self.backend}: {line}" for line in self.wrong]

    def fits(self, steps: int, rows: int) -> bool:
        """Return whether the layer can be timed at this size in reasonable time."""
        if self.backend == "reference" and steps * rows > _LARGEST_REFERENCE:
            return False
        is_full = self.config.layer.startswith("mem")
        return not is_full or steps <= _LONGEST_FULL_MEMORY[self.config.device.type]


def entries_of(
    first: LayerConfig, names: list[str], wanted: list[str], relevance: str, tf32: bool, graphed: bool = False
) -> Iterator[Entry]:
    """Yield torch's own layers, then every layer with every backend here, compared with the reference.

    With `graphed` each layer is followed by itself run by CUDA graphs.
    """
    for name in PEERS:
        peer = replace(first, layer=name)
        yield Entry(peer, peer.backend_that_ran())
    for name in names:
        kinds = ("earned", "learned") if relevance == "learned" and name in BOUNDED else ("earned",)
        for kind in kinds:
            for by_graph in (False, True) if graphed else (False,):
                config = replace(first, layer=name, relevance=kind, graphed=by_graph)
                yield from _entries(config, wanted, tf32)


def _entries(named: LayerConfig, wanted: list[str], tf32: bool) -> Iterator[Entry]:
    for backend in backends_here(named, wanted):
        entry = replace(named, backend=backend)
        ran = entry.backend_that_ran()
        if ran == "reference":
            yield Entry(entry, ran)
            continue
        wrong = parity.check(entry, tf32)
        yield Entry(entry, ran, parity.tolerance(entry, tf32), tuple(wrong))


def measured(entries: list[Entry], steps: int, rows: int, turns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each entry at one size; entries that failed the parity check have no times."""
    there = [
        replace(entry, config=replace(entry.config, steps=steps, rows=rows))
        for entry in entries
        if entry.fits(steps, rows)
    ]
    sound = {entry.key: entry.config for entry in there if not entry.wrong}
    device = there[0].config.device
    steps_of: dict[Any, Callable[[], object]] = {}
    steps_of |= {("both", key): c.training_step() for key, c in sound.items()}
    steps_of |= {("forward", key): c.forward_pass() for key, c in sound.items()}
    times = take_turns(steps_of, device, **turns)
    peaks = {key: peak_megabytes(c.training_step, device) for key, c in sound.items()}
    return [_row(entry, times, peaks.get(entry.key)) for entry in there]


def _row(entry: Entry, times: dict[Any, Times], peak: float | None) -> dict[str, Any]:
    config = entry.config
    both, forward = (times.get((part, entry.key)) for part in ("both", "forward"))
    baseline = replace(config, layer=BASELINE, relevance="earned", graphed=False)
    peer = Entry(baseline, baseline.backend_that_ran()).key
    return {
        "layer": config.title,
        "backend": entry.backend,
        "T": config.steps,
        "B": config.rows,
        "hidden": config.hidden,
        "precision": next(name for name, dtype in PRECISIONS.items() if dtype == config.dtype),
        "forward ms": None if forward is None else forward.median * 1e3,
        "forward ratio": None if forward is None else forward.ratio_to(times["forward", peer]),
        "ms": None if both is None else both.median * 1e3,
        "spread ms": None if both is None else both.spread * 1e3,
        "rounds": 0 if both is None else len(both.rounds),
        "peak MB": peak,
        "parity": entry.verdict,
        "ratio": None if both is None else both.ratio_to(times["both", peer]),
        **_to_earned(entry, times),
    }


def _to_earned(entry: Entry, times: dict[Any, Times]) -> dict[str, float]:
    """Return the time of a layer with learned relevance in ratio to the same layer with earned relevance."""
    earned = replace(entry, config=replace(entry.config, relevance="earned"))
    if entry.key == earned.key or ("both", entry.key) not in times or ("both", earned.key) not in times:
        return {}
    return {"to earned": times["both", entry.key].ratio_to(times["both", earned.key])}
