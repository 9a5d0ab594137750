"""`plait bench layers`: training steps of the attentive layers against `torch.nn.LSTM` and `torch.nn.RNN`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from plait.bench import parity
from plait.bench.contestants import LAYERS, PEERS, PRECISIONS, Contestant, backends_here
from plait.bench.machine import check_folder, circumstances, describe
from plait.bench.peak import peak_megabytes
from plait.bench.sizes import MOST_ROUNDS, default_shapes, parse_names, parse_shapes
from plait.bench.timing import Times, limit_threads, take_turns
from plait.errors import known, whole
from plait.ops.scan import BACKENDS
from plait.result import CommandResult, Table
from plait.runs.folder import write_json
from plait.training.process import device_named

__all__ = ["bench_layers"]

_BASELINE = "torch.nn.LSTM"
# a loop of autograd steps is timed up to this many steps × rows; it would take minutes beyond
_LARGEST_REFERENCE = 120 * 10
# attention over everything grows with T²
_LONGEST_FULL_MEMORY = {"cpu": 200, "cuda": 2048}


@dataclass(frozen=True)
class _Entry:
    """A contestant, what really runs it, and what parity found (`agreed` None: nothing to compare)."""

    contestant: Contestant
    backend: str
    agreed: float | None = None
    wrong: tuple[str, ...] = ()

    @property
    def verdict(self) -> str | None:
        if self.wrong:
            return f"failed: {self.wrong[0]}"
        return None if self.agreed is None else f"≤ {self.agreed:.0e}"

    def fits(self, steps: int, rows: int) -> bool:
        """Whether this layer is worth timing in such a shape."""
        if self.backend == "reference" and steps * rows > _LARGEST_REFERENCE:
            return False
        is_full = self.contestant.layer.startswith("mem")
        return not is_full or steps <= _LONGEST_FULL_MEMORY[self.contestant.device.type]


def bench_layers(
    shapes: str = "",
    hidden: int = 128,
    layers: str = ",".join(LAYERS),
    backends: str = "",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["fp32", "bf16"] = "fp32",
    tf32: bool = False,
    input_size: int = 10,
    threads: int | None = None,
    repeats: int = 20,
    quick: bool = False,
    full: bool = False,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Time and peak memory of forward + backward, each layer and backend against torch.nn, parity first.

    Contestants take turns, so that the ratio to torch.nn.LSTM (last column, the median of the ratios within
    the rounds) is fair on a machine with other work on it. Spread is the interquartile range. A backend
    whose numbers differ from the reference is not timed; the command then exits with 2.

    Args:
        shapes: steps x rows, as 120x10,120x100; by default some of each kind.
        hidden: features of the hidden state; 512 and more have a language model's shape by default.
        layers: which, between commas.
        backends: only these, between commas; by default each that runs here.
        device: where to compute.
        precision: of weights and inputs.
        tf32: let float32 matrix products outside the kernels round to tf32 on a GPU.
        input_size: features of the input.
        threads: of the CPU; by default as many as torch takes.
        repeats: rounds.
        quick: one small shape, few rounds.
        full: the largest shape on a CPU too.
        commit: what to record where the source is no git checkout.
        out: write the JSON here.
    """
    check_folder(out)
    whole(1, hidden=hidden, input_size=input_size)
    whole(1, MOST_ROUNDS, repeats=repeats)
    place = device_named(device)
    names = parse_names(layers, LAYERS, "layer")
    wanted = parse_names(backends, BACKENDS[1:], "backend") if backends else []
    dtype = PRECISIONS[known(precision, PRECISIONS, "precision")]
    sizes = parse_shapes(shapes) if shapes else default_shapes(hidden, full or place.type == "cuda", quick)
    first = Contestant(_BASELINE, "auto", place, hidden, dtype, input_size)
    turns = {"rounds": min(repeats, 5), "warm_up": 1, "most_seconds": 1.0} if quick else {"rounds": repeats}
    with limit_threads(threads) as used, parity.matmul_precision("high" if tf32 else "highest"):
        data: dict[str, Any] = circumstances(place, used, commit or None)
        entries = [*_peers(first), *_entries(first, names, wanted, tf32)]
        rows = [row for size in sizes for row in _measured(entries, *size, turns)]
        data |= {"unit": "forward + backward", "input_size": input_size, "rounds": turns["rounds"]}
        data |= {"auto": _auto(first, names), "rows": rows}
    if out:
        write_json(out, data)
    failed = [f"{e.contestant.title} × {e.backend}: {line}" for e in entries for line in e.wrong]
    return CommandResult(data, (_table(data),), "parity failed: " + "; ".join(failed) if failed else "")


def _peers(first: Contestant) -> Iterator[_Entry]:
    for name in PEERS:
        peer = replace(first, layer=name)
        yield _Entry(peer, peer.backend_that_ran())


def _entries(first: Contestant, names: list[str], wanted: list[str], tf32: bool) -> Iterator[_Entry]:
    """Every layer with every backend that runs here, compared with the reference."""
    for name in names:
        for backend in backends_here(replace(first, layer=name), wanted):
            entry = replace(first, layer=name, backend=backend)
            ran = entry.backend_that_ran()
            if ran == "reference":
                yield _Entry(entry, ran)
                continue
            wrong = parity.check(entry, tf32)
            yield _Entry(entry, ran, parity.tolerance(entry, tf32), tuple(wrong))


def _auto(first: Contestant, names: list[str]) -> dict[str, str]:
    auto = {name: replace(first, layer=name, backend="auto") for name in names}
    return {contestant.title: contestant.backend_that_ran() for contestant in auto.values()}


def _measured(entries: list[_Entry], steps: int, rows: int, turns: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each entry in one shape; those that parity refused have no numbers."""
    there = [
        replace(entry, contestant=replace(entry.contestant, steps=steps, rows=rows))
        for entry in entries
        if entry.fits(steps, rows)
    ]
    sound = {f"{e.contestant.layer} {e.backend}": e.contestant for e in there if not e.wrong}
    device = there[0].contestant.device
    times = take_turns({key: c.training_step() for key, c in sound.items()}, device, **turns)
    peaks = {key: peak_megabytes(c.training_step, device) for key, c in sound.items()}
    baseline = next(times[key] for key, c in sound.items() if c.layer == _BASELINE)
    return [
        _row(entry, times.get(key), peaks.get(key), baseline)
        for entry in there
        for key in [f"{entry.contestant.layer} {entry.backend}"]
    ]


def _row(entry: _Entry, times: Times | None, peak: float | None, baseline: Times) -> dict[str, Any]:
    contestant = entry.contestant
    return {
        "layer": contestant.title,
        "backend": entry.backend,
        "T": contestant.steps,
        "B": contestant.rows,
        "hidden": contestant.hidden,
        "precision": next(name for name, dtype in PRECISIONS.items() if dtype == contestant.dtype),
        "ms": None if times is None else times.median * 1e3,
        "spread ms": None if times is None else times.spread * 1e3,
        "rounds": 0 if times is None else len(times.rounds),
        "peak MB": peak,
        "parity": entry.verdict,
        "ratio": None if times is None else times.ratio_to(baseline),
    }


def _table(data: dict[str, Any]) -> Table:
    rows = data["rows"]
    auto = ", ".join(f"{layer}: {backend}" for layer, backend in data["auto"].items())
    notes = [
        f"ratio: to {_BASELINE} of the same shape; parity: agreement with the reference; auto runs {auto}",
        describe(data),
    ]
    title = f"forward + backward, input {data['input_size']}, {data['rounds']} rounds"
    return Table(list(rows[0]), [list(row.values()) for row in rows], title, notes)
