"""The table of docs/results.md: what was measured, in a line for each task."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from archive_tables import like_for_like
from archive_tables.agents import grid_worlds_by_cell
from archive_tables.bench import measured, ratio
from archive_tables.bounded import copy_cells as bounded_cells
from archive_tables.memory import planned_runs
from archive_tables.records import Attempt, attempts, by, ended, groups, median_updates, percent, table, whole
from archive_tables.untangling import (
    FIRST_RELLSTM,
    HEADS,
    UNGUARDED,
    best_on_images,
    copy_cells,
    denoise_cells,
    held_out,
)


def overview() -> str:
    rows = [
        *_copy(),
        _transfer(),
        *_denoise(),
        _keys(),
        *_lead_ins(),
        *_bounded(),
        *_images(),
        _text(),
        *_worlds(),
        *_speed(),
    ]
    return table(["", "a bounded memory", "beside it", "published"], rows)


def _reached(model: str, runs: Sequence[Attempt]) -> str:
    """Return a model's median updates to 99%, or where its runs ended if none reached it."""
    name = model.removesuffix(", plait")
    if not runs:
        return f"{name} not run"
    known, cut = ended(runs), [run for run in runs if run.cut_short]
    reached = sum(run.reached is not None for run in known)
    if not reached:
        ends = {"diverged": " when it diverged", "stopped": " when stopped"}
        scores = (
            "diverged before its first evaluation"
            if run.run.score is None
            else f"{percent(run.run.score)}%{ends.get(run.run.status, '')}"
            for run in runs
        )
        return f"{name} {', '.join(dict.fromkeys(scores))}"
    count = len(known) + len(cut)
    share = "" if reached == count else f" ({reached} of {count} runs)"
    middle = median_updates(runs)
    return f"{name} {'at 99% in less than half' if middle is None else whole(middle)}{share}"


def _copy() -> list[list[str]]:
    cells = copy_cells()
    planned = {(cell.row, cell.column): cell.published for cell in groups("untangling/table5")[0].cells}
    beside = ("MemRNN", "orth-RNN", "expRNN", "LSTM")
    sides = {
        "plait": (("RelRNN, plait", UNGUARDED, "RelLSTM, plait"), tuple(f"{name}, plait" for name in beside)),
        "published": (("RelRNN", FIRST_RELLSTM), beside),
    }
    rows = []
    for recipe, models in sides.items():
        for head in HEADS:
            whose = "our" if recipe == "plait" else "the published"
            title = f"copy over {head[4:]} steps, {whose} recipe: updates to 99%"
            parts = [
                "; ".join(_reached(name, cells[recipe].get((head, name), [])) for name in side)
                for side in models
            ]
            known = [(name, planned.get((head, name))) for name in ("RelRNN", "RelLSTM", *beside)]
            values = "; ".join(f"{name} {percent(value)}" for name, value in known if value is not None)
            rows.append([title, *parts, f"accuracy, %: {values}" if recipe == "published" else "–"])
    return rows


def _transfer() -> list[str]:
    runs = by(attempts("untangling/transfer"), lambda run: run.column)

    def shown(model: str) -> str:
        scores = (run.run.marks[-1].results["delay 5000"]["score"] for run in runs[model])
        return f"{model} {', '.join(map(percent, scores))}"

    return [
        "copy trained at 100 steps, tested at 5,000: accuracy by seed, %",
        shown("RelRNN"),
        "; ".join(map(shown, ("MemRNN", "expRNN", "orth-RNN"))),
        "–",
    ]


def _denoise() -> list[list[str]]:
    cells = denoise_cells()

    def count(model: str, settings: Sequence[str]) -> str:
        runs = ended(
            [run for s in settings for head in HEADS for run in cells.get((s, model), {}).get(head, [])]
        )
        return f"{model} {sum(run.reached is not None for run in runs)} of {len(runs)}"

    ours = ("ours", "ours, without the guard")
    return [
        [
            "denoise over 100 to 2,000 steps, our recipe: runs at 99% within 10,000 updates",
            "; ".join(count(model, ours) for model in ("RelRNN", "RelLSTM")),
            "; ".join(count(model, ours) for model in ("LSTM", "MemRNN", "GORU", "orth-RNN", "expRNN")),
            "–",
        ],
        [
            "the same to 500 steps by the published recipe, 20,000 updates",
            "; ".join(count(model, ("published",)) for model in ("RelRNN", "RelLSTM")),
            "; ".join(count(model, ("published",)) for model in ("LSTM", "GORU", "orth-RNN", "expRNN")),
            "–",
        ],
    ]


def _keys() -> list[str]:
    runs = [r for r in attempts("memory/mqar") if r.row == "mqar 128, 8 pairs"]
    ends = {run.column: percent(run.run.score, 1) for run in runs}
    return [
        "eight values by their keys in 128 steps (`mqar`), one seed: accuracy, %",
        f"RelLSTM {ends['RelLSTM learned']}",
        f"LSTM {ends['LSTM chrono']}; a Transformer {ends['Transformer']}",
        "–",
    ]


def _lead_ins() -> list[list[str]]:
    cells = planned_runs()

    def count(model: str) -> str:
        runs = [run for n in (20, 60, 200) for run in ended(cells.get((model, n), []))]
        return f"{model} {sum(run.reached is not None for run in runs)} of {len(runs)}"

    title = "copy after 20, 60 and 200 blanks: runs at 99% within 6,000 updates"
    ours = ("RelRNN learned", "RelRNN earned", "RelLSTM learned", "RelLSTM earned")
    beside = ("MemRNN", "MemLSTM", "LSTM chrono", "Transformer")
    return [
        [title, "; ".join(map(count, ours)), "; ".join(map(count, beside)), "–"],
        like_for_like.overview_row(),
    ]


def _bounded() -> list[list[str]]:
    cells = bounded_cells()
    return [
        [
            f"copy after {row.split()[-1]} blanks, a Transformer that reads 25 states: updates to 99%",
            _reached("learned", cells["learned"][row]),
            "; ".join(
                _reached(name, cells[name][row])
                for name in ("all states", "window", "first 15")
                if row in cells.get(name, {})
            ),
            "–",
        ]
        for row in ("lead-in 0", "lead-in 60", "lead-in 200")
    ]


def _images() -> list[list[str]]:
    def shown(task: str, model: str) -> str:
        return (
            f"{model} {', '.join(percent(held_out(run, 'test'), 1) for run in best_on_images(task, model))}"
        )

    rows = []
    for task, name in (("permuted", "permuted"), ("sequential", "sequential")):
        rows.append(
            [
                f"{name} MNIST, our recipe: test accuracy by seed, %",
                "; ".join(shown(task, model) for model in ("RelLSTM", "RelRNN")),
                "; ".join(shown(task, model) for model in ("LSTM", "orth-RNN", "expRNN")),
                "curves, in which RelRNN leads" if task == "permuted" else "–",
            ]
        )
    return rows


def _text() -> list[str]:
    ends = {
        run.column.removesuffix(
            ", plait"
        ): f"{held_out(run, 'test', 'bits_per_character'):.3f} in {whole(run.run.seconds)} s"
        for run in attempts("untangling/table9")
        if run.column.endswith(", plait")
    }
    title = "Penn Treebank, 5 million parameters, one seed: bits per character"
    return [title, f"RelLSTM {ends['RelLSTM']}", f"LSTM {ends['LSTM']}", "–"]


def _worlds() -> list[list[str]]:
    cells = grid_worlds_by_cell("rl/table4")
    trained = [row for row, column in cells if row.endswith("trained") and column == "RelLSTM"]

    def across(model: str) -> str:
        means = [statistics.mean(cells[row, model][0]) for row in trained]
        return f"{model} {min(means):.2f} to {max(means):.2f}"

    def published(model: str, rows: Sequence[str]) -> str:
        values = [cells[row, model][1] for row in rows]
        return f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"

    def one(model: str) -> str:
        scores = cells[far, model][0]
        return f"{model} {statistics.mean(scores):.2f} ({', '.join(f'{score:.2f}' for score in scores)})"

    far = "DoorKey-16x16, tested"
    return [
        [
            f"mean return in {len(trained)} grid worlds",
            across("RelLSTM"),
            across("MemLSTM"),
            "; ".join(f"{model} {published(model, trained)}" for model in ("RelLSTM", "MemLSTM")),
        ],
        [
            "trained in DoorKey-5x5, tested in DoorKey-16x16, by seed",
            one("RelLSTM"),
            one("MemLSTM"),
            "; ".join(f"{model} {published(model, [far])}" for model in ("RelLSTM", "MemLSTM")),
        ],
    ]


def _speed() -> list[list[str]]:
    rows = []
    for name, where, shape in (
        ("bench/h200-cluster-fourth", "on an H200, 120 steps, batch 100", (120, 100)),
        ("bench/h200-cluster-fourth", "on an H200, 1,020 steps, batch 10", (1020, 10)),
        ("bench/cpu-2-cores", "on two CPU cores, 120 steps, batch 100", (120, 100)),
    ):
        kinds = [f"{layer}{rule}" for rule in ("", ", learned") for layer in ("RelRNN", "RelLSTM", "RelGRU")]
        timed = [layer for layer in kinds if layer in measured(name, shape)]
        ours = "; ".join(f"{layer} {ratio(name, layer, shape)}" for layer in timed)
        beside = f"`torch.nn.RNN` {ratio(name, 'torch.nn.RNN', shape)}"
        rows.append([f"a training step in steps of `torch.nn.LSTM`, {where}", ours, beside, "–"])
    return rows


BLOCKS = {"overview": overview}
