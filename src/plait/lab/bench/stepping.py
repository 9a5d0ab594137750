"""Time of one step with a carried state, against `torch.nn.LSTM`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from plait.lab.bench import parity
from plait.lab.bench.entries import BASELINE, Entry
from plait.lab.bench.layer_config import BOUNDED, LayerConfig
from plait.lab.bench.timing import Times, take_turns

__all__ = ["measured_streams", "stream_sizes"]

_ROWS = (1, 16, 64)  # one stream, an agent's environments, many


def stream_sizes(widths: list[int]) -> list[tuple[int, int]]:
    """Return the sizes (hidden, rows) at which steps are timed, of the usual hidden sizes by default.

    >>> stream_sizes([32])
    [(32, 1), (32, 16), (32, 64)]
    """
    return [(hidden, rows) for hidden in widths or (64, 128, 512) for rows in _ROWS]


def measured_streams(
    first: LayerConfig,
    names: list[str],
    wanted: list[str],
    sizes: list[tuple[int, int]],
    turns: dict[str, Any],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each bounded layer and size, and the parity failures; the default backend is auto."""
    rows, failures = [], []
    for hidden, number in sizes:
        sized = replace(first, hidden=hidden, rows=number)
        entries = [*_entries(sized, [name for name in names if name in BOUNDED], wanted or ["auto"])]
        sound = {entry.key: entry.config.stream() for entry in entries if not entry.wrong}
        times = take_turns(sound, first.device, **turns)
        rows += [_row(entry, times.get(entry.key), times[entries[0].key]) for entry in entries]
        failures += [line for entry in entries for line in entry.failures]
    return rows, failures


def _entries(sized: LayerConfig, names: list[str], backends: list[str]) -> Iterator[Entry]:
    peer = replace(sized, layer=BASELINE)
    yield Entry(peer, peer.backend_that_ran())
    for name in names:
        for backend in backends:
            entry = replace(sized, layer=name, backend=backend)
            wrong = parity.check_stream(entry)
            yield Entry(entry, entry.backend_that_ran(), parity.tolerance(entry), tuple(wrong))


def _row(entry: Entry, times: Times | None, baseline: Times) -> dict[str, Any]:
    return {
        "layer": entry.config.title,
        "backend": entry.backend,
        "hidden": entry.config.hidden,
        "B": entry.config.rows,
        "µs": None if times is None else times.median * 1e6,
        "spread µs": None if times is None else times.spread * 1e6,
        "rounds": 0 if times is None else len(times.rounds),
        "parity": entry.verdict,
        "ratio": None if times is None else times.ratio_to(baseline),
    }
