"""Tables of results/bench and results/rl: a row for each layer or learner of a measured file."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from archive_tables.records import DASH, RESULTS, by, lines, table, whole
from plait.lab.bench.sweep import memory_group


def _file(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return values


def _digits(value: float | None) -> str:
    """Format a measured time: four digits, thousands separated.

    >>> _digits(12.3456), _digits(1854.4)
    ('12.35', '1,854')
    """
    return DASH if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def origin(*names: str) -> str:
    """Return where each file was measured, by which commit and command."""
    rows = []
    for name in names:
        file = _file(name)
        machine, versions = file["machine"], file["versions"]
        where = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} of {machine['cores']} cores"
        rows.append(
            [
                f"`{name.partition('/')[2]}`",
                where,
                _digits(machine.get("load_average")),
                versions["torch"],
                str(file["commit"])[:7],
                str(file["date"])[:10],
                _command(str(file["command"])),
            ]
        )
    return table(["file", "machine", "load", "torch", "commit", "date", "command"], rows)


def _command(text: str) -> str:
    """Return a recorded command without what is no part of the measurement, or that a script ran it.

    >>> _command("python -m plait.bench tasks --tf32 --commit 81bea0b --out tasks.json")
    '`plait bench tasks --tf32`'
    >>> _command("final.py bench host")
    'a script, named in the file'
    """
    words = re.sub(r" --(out|commit) \S+", "", text)
    words = re.sub(r"^python -m plait[. ]", "plait ", words)
    return f"`{words}`" if words.startswith("plait ") else "a script, named in the file"


def layers(*names: str) -> str:
    """Return times and ratios to torch.nn.LSTM of layers, a column pair for each shape.

    In brackets is the ratio of forward alone, where it was measured.
    """
    rows = [row for name in names for row in _file(name)["rows"]]
    shapes = list(dict.fromkeys((row["T"], row["B"]) for row in rows))
    several = len({row["hidden"] for row in rows}) > 1 or len({row["precision"] for row in rows}) > 1
    found: dict[tuple[str, ...], dict[tuple[int, int], dict[str, Any]]] = {}
    for row in rows:
        key = (row["layer"], row["backend"], str(row["hidden"]), row["precision"])
        found.setdefault(key, {}).setdefault((row["T"], row["B"]), row)
    body = [
        [*(key if several else key[:2]), *(cell for shape in shapes for cell in _timed(cells.get(shape)))]
        for key, cells in found.items()
    ]
    heads = [text for t, b in shapes for text in (f"({t}, {b}), ms", "ratio")]
    parts = ["layer", "backend", "hidden", "precision"] if several else ["layer", "backend"]
    return table([*parts, *heads], body)


def _timed(row: dict[str, Any] | None) -> Sequence[str]:
    if row is None:
        return DASH, DASH
    forward = row.get("forward ratio")
    ratio = f"{row['ratio']:.2f}" + (f" ({forward:.2f})" if forward is not None and forward != 1 else "")
    spread = row.get("spread ms")
    return _digits(row["ms"]) + (f" ± {_digits(spread)}" if spread is not None else ""), ratio


def measured(name: str, shape: tuple[int, int]) -> set[str]:
    """Return the names of the layers in a file that were timed at a shape."""
    return {row["layer"] for row in _file(name)["rows"] if (row["T"], row["B"]) == shape}


def ratio(name: str, layer: str, shape: tuple[int, int]) -> str:
    """Return the time of a layer's forward and backward pass in those of torch.nn.LSTM."""
    rows = _file(name)["rows"]
    (row,) = (row for row in rows if row["layer"] == layer and (row["T"], row["B"]) == shape)
    return f"{row['ratio']:.2f}"


def to_earned(*names: str) -> str:
    """Return the time of learned relevance in times of the earned one."""
    rows = [row for name in names for row in _file(name)["rows"] if row.get("to earned") is not None]
    shapes = list(dict.fromkeys((row["T"], row["B"]) for row in rows))
    body = [
        [layer, *(f"{cells[shape]['to earned']:.2f}" if shape in cells else DASH for shape in shapes)]
        for layer, same in by(rows, lambda row: row["layer"]).items()
        for cells in [{(row["T"], row["B"]): row for row in same}]
    ]
    return table(["layer", *(f"({t}, {b})" for t, b in shapes)], body)


def host(name: str) -> str:
    """Return the milliseconds until Python returns and until the GPU is done, eagerly and by CUDA graphs."""
    rows = [
        [
            row["layer"],
            f"({row['T']}, {row['B']})",
            _digits(row["host ms"]),
            _digits(row["ms"]),
            f"{row['ratio']:.2f}",
            {True: "equal", False: "differ", None: DASH}[all(row["equal"]) if "equal" in row else None],
        ]
        for row in _file(name)["host"]
    ]
    return table(["layer", "(T, B)", "host, ms", "ms", "ratio", "bits of the eager call"], rows)


def kernels(name: str) -> str:
    """Return the microseconds of a layer's own kernels, of a forward and backward pass."""
    names = ("attentive_forward", "attentive_backward", "attentive_usage")
    rows = [
        [key, *(whole(times[kernel][1]) if kernel in times else DASH for kernel in names)]
        for key, times in _file(name)["device us by kernel"].items()
    ]
    return table(["layer", "forward, µs", "backward, µs", "usage, µs"], rows)


def sizes(name: str) -> str:
    """Return the cells of a sweep by kind of memory: failures, backends, ratios to torch.nn.LSTM."""
    groups = by(_file(name)["cells"], lambda record: memory_group(record["cell"]))
    body = []
    for group, records in sorted(groups.items()):
        ratios = [record["ratio"] for record in records if record.get("ratio")]
        ran = Counter(backend for record in records for backend in record["backends"])
        body.append(
            [
                group,
                len(records),
                sum(bool(record["failures"]) for record in records),
                ", ".join(f"{backend} {count}" for backend, count in ran.most_common()),
                len(ratios),
                f"{statistics.median(ratios):.2f}" if ratios else DASH,
                f"{max(ratios):.2f}" if ratios else DASH,
            ]
        )
    return table(["memory", "cells", "failed", "backends", "timed", "median ratio", "largest"], body)


def slowest(name: str, count: int = 8) -> str:
    """Return the slowest cells of a sweep."""
    timed = [record for record in _file(name)["cells"] if record.get("ratio")]
    body = [
        [r["title"], " + ".join(r["backends"]), _digits(r["ms"]), f"{r['ratio']:.2f}"]
        for r in sorted(timed, key=lambda record: -record["ratio"])[:count]
    ]
    return table(["cell", "backend", "ms", "ratio"], body)


def stream() -> str:
    rows = [
        [
            row["layer"],
            row["backend"],
            row["hidden"],
            row["B"],
            f"{_digits(row['µs'])} ± {_digits(row['spread µs'])}",
            f"{row['ratio']:.2f}",
        ]
        for row in _file("bench/cpu-stream")["stream"]
    ]
    return table(["layer", "backend", "hidden", "B", "µs", "ratio"], rows)


def memory(*names: str) -> str:
    rows = [
        [
            _file(name)["machine"].get("gpu") or "CPU",
            row["layer"],
            row["T"],
            row["B"],
            _digits(row["peak MB"]),
            _digits(row["torch.nn.LSTM MB"]),
            f"{row['ratio']:.2f}",
        ]
        for name in names
        for row in _file(name)["rows"]
    ]
    return table(["device", "layer", "T", "B", "peak MB", "torch.nn.LSTM MB", "ratio"], rows)


def streaming(*names: str) -> str:
    rows = [
        [
            row["layer"],
            row["backend"],
            whole(row["step"]),
            _digits(row["µs per step"]),
            f"{row['MB']:.1f}",
            f"{row['ratio']:.3f}",
        ]
        for name in names
        for row in _file(name)["rows"]
    ]
    return table(["layer", "backend", "step", "µs per step", "MB", "ratio"], rows)


def epochs(*names: str) -> str:
    rows = [
        [
            "tf32" if _file(name)["tf32"]["matmul"] else "float32",
            row["task"],
            row["layer"],
            row["hidden"],
            f"{row['s per epoch']:.2f}",
            f"{row['ratio']:.2f}",
        ]
        for name in names
        for row in _file(name)["rows"]
    ]
    return table(["matmul", "task", "layer", "hidden", "s per epoch", "ratio"], rows)


def learners() -> str:
    rows = [
        [
            row["learner"],
            row["worlds"],
            whole(row["collection"]),
            DASH if row["to lstm"] is None else f"{row['to lstm']:.2f}",
            whole(row["training"]),
            f"{row['to RecurrentPPO']:.2f}",
        ]
        for row in _file("rl/bench")["rows"]
    ]
    heads = ["collection, steps/s", "to `lstm`", "training, steps/s", "to RecurrentPPO"]
    return table(["learner", "environments", *heads], rows)


def updates() -> str:
    rows = []
    for line in lines("rl/update-h200.jsonl"):
        size = f"hidden {line['hidden']}, {line['envs']} environments, {line['rollout']} steps"
        setting = f"{line['world']}, {line['model']}, {size}"
        times = [
            f"{line[where]['ms an update']:.1f} ({line[where]['least']:.1f})" for where in ("cuda", "cpu")
        ]
        rows.append([setting, *times, f"{line['cpu over cuda']:.1f}"])
    return table(["setting", "H200, ms an update (least)", "one CPU thread, ms", "ratio"], rows)


def attention(*names: str) -> str:
    """Return times and ratios to full attention of bounded attention, a column pair for each file."""
    files = [_file(name)["times"] for name in names]
    body = []
    for rows in zip(*files, strict=True):
        cells = [x for row in rows for x in (_milliseconds(row), f"{row['ratio']:.2g}")]
        body.append([rows[0]["method"], f"{rows[0]['T']:,}", *cells])
    heads = [head for name in names for head in (f"`{name.partition('/')[2]}`, ms", "ratio")]
    return table(["method", "T", *heads], body)


def attention_by_length(*names: str) -> str:
    """Return times on a GPU, how many times as fast as full attention, and memory, by length."""
    body = [
        [
            f"{row['T']:,}",
            row["method"],
            _milliseconds(row),
            f"{1 / row['ratio']:.2f}",
            whole(row["peak MB"]),
        ]
        for name in names
        for row in _file(name)["times"]
    ]
    return table(["T", "method", "ms", "times as fast", "peak MB"], body)


def attention_parts() -> str:
    """Return the times of calls and kernels at 8,192 steps, in the first measurement and in the second."""
    times: dict[str, list[str]] = {}
    for column, name in enumerate(("first", "second")):
        for line in lines(f"bench/h200-attention-parts-{name}.jsonl"):
            part = f"`{line['kernel']}`" if "kernel" in line else line["part"]
            times.setdefault(part, [DASH, DASH])[column] = f"{line['ms']:.3f}"
    return table(["part", "first, ms", "second, ms"], [[part, *cells] for part, cells in times.items()])


def attention_tiles() -> str:
    """Return the times of the kernels of bounded attention by launch options."""
    body = [
        [line["kernel"], line["BS"], line.get("BQ", DASH), line["num_stages"], f"{line['ms']:.3f}"]
        for line in lines("bench/h200-attention-tiles.jsonl")
    ]
    return table(["kernel", "states of a tile", "queries at once", "stages", "ms"], body)


def _milliseconds(row: dict[str, Any]) -> str:
    return f"{_digits(row['ms'])} ± {_digits(row['spread ms'])}"


CLUSTER = [f"bench/h200-{name}" for name in ("graphed", "cluster-fifth", "cluster-full-fifth")]
EARLIER = [
    f"bench/h200-{name}"
    for name in (
        "cluster",
        "cluster-full",
        "cluster-learned",
        "host-first",
        "host-first-learned",
        "host",
        "cluster-rows",
        "cluster-third",
        "cluster-third-learned",
        "cluster-fourth",
        "cluster-full-messages",
    )
]
TRITON = [f"bench/h200-{name}" for name in ("hidden128", "scans", "hidden1024", "bf16")]
CPU = [f"bench/cpu-{name}" for name in ("2-cores", "1-thread")]
ATTENTION = [f"bench/cpu-attention-{name}" for name in ("1-thread", "1-thread-again")]
FLEX_H200 = [f"bench/h200-attention-first-{steps}" for steps in (8192, 32768)]

BLOCKS = {
    "cluster, files": lambda: origin(*CLUSTER),
    "cluster": lambda: layers("bench/h200-graphed"),
    "cluster, learned": lambda: to_earned("bench/h200-graphed"),
    "cluster, fifth": lambda: layers("bench/h200-cluster-fifth"),
    "host, files": lambda: origin("bench/h200-graphed-host"),
    "host": lambda: host("bench/h200-graphed-host"),
    "kernels": lambda: kernels("bench/h200-graphed-host"),
    "cluster, full": lambda: layers("bench/h200-cluster-full-fifth"),
    "sizes, files": lambda: origin("bench/h200-sizes"),
    "sizes": lambda: sizes("bench/h200-sizes"),
    "sizes, slowest": lambda: slowest("bench/h200-sizes"),
    "earlier, files": lambda: origin(*EARLIER),
    **{f"earlier, {name.partition('h200-')[2]}": (lambda name=name: layers(name)) for name in EARLIER},
    "triton, files": lambda: origin(*TRITON),
    **{f"triton, {name.partition('h200-')[2]}": (lambda name=name: layers(name)) for name in TRITON},
    "cpu sizes, files": lambda: origin("bench/cpu-sizes"),
    "cpu sizes": lambda: sizes("bench/cpu-sizes"),
    "cpu sizes, slowest": lambda: slowest("bench/cpu-sizes"),
    "epochs, files": lambda: origin("bench/h200-tasks", "bench/h200-tasks-tf32"),
    "epochs": lambda: epochs("bench/h200-tasks", "bench/h200-tasks-tf32"),
    "cpu, files": lambda: origin(*CPU),
    "cpu, two threads": lambda: layers("bench/cpu-2-cores"),
    "cpu, one thread": lambda: layers("bench/cpu-1-thread"),
    "attention, files": lambda: origin(*ATTENTION),
    "attention": lambda: attention(*ATTENTION),
    "attention, H200, files": lambda: origin(*FLEX_H200),
    "attention, H200": lambda: attention_by_length(*FLEX_H200),
    "attention, H200, parts": attention_parts,
    "attention, H200, tiles": attention_tiles,
    "stream, files": lambda: origin("bench/cpu-stream"),
    "stream": stream,
    "memory, files": lambda: origin("bench/cpu-memory", "bench/h200-memory"),
    "memory": lambda: memory("bench/cpu-memory", "bench/h200-memory"),
    "streaming, files": lambda: origin("bench/cpu-streaming", "bench/cpu-streaming-1e6"),
    "streaming": lambda: streaming("bench/cpu-streaming", "bench/cpu-streaming-1e6"),
}
