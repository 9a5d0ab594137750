"""Tables of results/bounded: Transformers whose heads read a bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from archive_tables.plans import not_run, planned_cells, settings
from archive_tables.records import (
    DASH,
    Attempt,
    archive_table,
    archives,
    attempts,
    by,
    last_scores,
    lines,
    percent,
    table,
    updates_cell,
    whole,
)

EXPERIMENTS = (
    "bounded-transformer",
    "bounded-delays",
    "bounded-settings",
    "bounded-mqar",
    "bounded-denoise",
    "bounded-text",
)
DELAYS, TRIED = "bounded/bounded-delays", "bounded-delays-tried"

Cells = dict[str, dict[str, list[Attempt]]]


@cache
def copy_cells() -> Cells:
    """Return the runs of copy by what a head reads and by lead-in, in the order of their lengths."""
    cells: Cells = {}
    planned = planned_cells("bounded-transformer", "published", *archives("bounded"))
    for (row, column), runs in sorted(planned.items(), key=lambda cell: int(cell[0][0].split()[-1])):
        cells.setdefault(column, {})[row] = runs
    plan = dict.fromkeys(column for _, column in settings("bounded-transformer").values())
    return {column: cells[column] for column in plan if column in cells}


def _by_row(cells: Cells, show: Callable[[Sequence[Attempt]], str]) -> str:
    rows = list(dict.fromkeys(row for of in cells.values() for row in of))
    body = [[column, *(show(of.get(row, [])) for row in rows)] for column, of in cells.items()]
    return table(["what a head reads", *rows], body)


def copy() -> str:
    return _by_row(copy_cells(), updates_cell)


def copy_others() -> str:
    """Return the accuracy of the runs that did not reach 99 %, and after how many updates."""

    def others(runs: Sequence[Attempt]) -> str:
        late = [run for run in runs if run.reached is None]
        if not late:
            return DASH
        return (
            f"{last_scores(late)} at {'/'.join(whole(n) for n in sorted({run.run.updates for run in late}))}"
        )

    cells = {
        column: of
        for column, of in copy_cells().items()
        if any(run.reached is None for runs in of.values() for run in runs)
    }
    return _by_row(cells, others)


def copy_by_seed() -> str:
    """Return the updates to 99 % of every seed, learned and full attention side by side."""
    cells = copy_cells()
    learned, full = cells["learned"], cells["all states"]
    seeds = sorted({run.run.seed for runs in learned.values() for run in runs})

    def pair(row: str, seed: int) -> str:
        sides = [[run.reached for run in of[row] if run.run.seed == seed] for of in (learned, full)]
        return " / ".join(whole(side[0]) if side else DASH for side in sides)

    body = [[row, *(pair(row, seed) for seed in seeds)] for row in learned]
    return table(["learned / all states", *(f"seed {seed}" for seed in seeds)], body)


def _most_states(run: Attempt) -> int | None:
    results = (result for mark in run.run.marks for result in mark.results.values())
    return max((int(result["states_read"]) for result in results if "states_read" in result), default=None)


def states_read() -> str:
    """Return the most states that a head read in any evaluation, by archive and column."""
    body = []
    for name in archives("bounded"):
        for column, every in by(attempts(name), lambda run: run.column).items():
            most = [states for run in every if (states := _most_states(run)) is not None]
            body.append([f"`{name.partition('/')[2]}`", column, len(_once(every)), max(most, default=DASH)])
    return table(["archive", "what a head reads", "runs", "most states read"], body)


def delays() -> str:
    """Return the last accuracy at every delay, in per cent by seed."""
    heads, body = ["delay 100", "delay 1000", "delay 5000"], []
    every = [run for name in archives("bounded") if name.startswith(DELAYS) for run in attempts(name)]
    for (trained, column), runs in by(every, _trained).items():
        evaluated = sorted((run for run in runs if run.run.marks), key=lambda run: run.run.seed)
        seeds = ", ".join(f"{run.run.seed} ({whole(run.run.updates)})" for run in _once(evaluated))
        scores = (", ".join(_last(run, head) for run in evaluated if _has(run, head)) for head in heads)
        body.append([trained, column, seeds, *scores])
    return table(["delays in training", "what a head reads", "seeds (updates)", *heads], body)


def _trained(run: Attempt) -> tuple[str, str]:
    """Return the delays that a run was trained at, and its column with a rate that is not the plan's."""
    shortest, rate = run.value("task", "shortest_delay", 100), run.value("recipe", "lr")
    column = "learned, clamped, torch's initial weights" if run.archive == TRIED else run.column
    return f"{shortest} to 100" if shortest < 100 else "100", column + f", lr {rate:g}" * (rate != 2e-3)


def _cells(name: str) -> Cells:
    """Return the attempts of an experiment by column and row, in the order of its plan."""
    planned = planned_cells(name, "published", *archives("bounded"))
    cells: Cells = {}
    for row, column in settings(name).values():
        if every := planned.get((row, column)):
            cells.setdefault(column, {})[row] = _once(every)
    return cells


def denoise() -> str:
    """Return the updates to 99 % and the last accuracies of denoise."""
    body = [
        [column, updates_cell(runs), last_scores(runs), _updates(runs)]
        for column, of in _cells("bounded-denoise").items()
        for runs in of.values()
    ]
    return table(["what a head reads", "updates to 99 %", "last accuracy, %", "updates made"], body)


def _updates(runs: Sequence[Attempt]) -> str:
    return ", ".join(whole(run.run.updates) for run in runs)


def mqar() -> str:
    """Return accuracy beside bytes of state, by task."""
    body = []
    for column, of in _cells("bounded-mqar").items():
        for row, runs in of.items():
            cells = [row, column, f"{_bytes_of_state(runs[0]):,}", updates_cell(runs), last_scores(runs)]
            body.append([*cells, _updates(runs)])
    heads = ["task", "model", "bytes of state", "updates to 99 %", "last accuracy, %", "updates made"]
    return table(heads, sorted(body, key=lambda line: line[0]))


def _bytes_of_state(run: Attempt) -> int:
    """Return the bytes of the state after the last step, each number of it in 32 bits."""
    model, task = run.run.description["model"], run.run.description["task"]
    hidden, layers, heads = model["hidden_size"], model.get("num_layers", 1), model.get("heads", 1)
    slots = sum(model.get(part, 0) for part in ("sinks", "window", "capacity"))
    if model["name"] != "transformer":  # h, c and the states kept
        return int(4 * layers * hidden * (2 + slots))
    if "memory" not in model:
        return int(4 * layers * 2 * hidden * (task["length"] + task.get("lead_in", 0)))
    # key, value, score, rank and birth of every slot
    return int(4 * layers * heads * slots * (2 * hidden // heads + 3))


def settings_tried() -> str:
    """Return the updates to 99 % by noise, and by variant of the rule."""
    cells = dict(_cells("bounded-settings"))
    prefix = "variants:"
    variants = [
        run for run in attempts(*archives("bounded")) if run.value("model", "name", "").startswith(prefix)
    ]
    for name, every in by(variants, lambda run: run.value("model", "name")).items():
        by_lead_in = by(_once(every), lambda run: f"lead-in {run.value('task', 'lead_in', 0)}")
        cells[f"`{name.removeprefix(prefix)}`"] = by_lead_in
    return _by_row(cells, updates_cell)


def text() -> str:
    """Return bits per character on the validation part after the last update."""
    body = []
    for column, of in _cells("bounded-text").items():
        for runs in of.values():
            marks = [run.run.marks[-1].results["validation"] for run in runs if run.run.marks]
            bits = ", ".join(f"{mark['bits_per_character']:.3f}" for mark in marks) or DASH
            body.append([column, ", ".join(str(run.run.seed) for run in runs), _updates(runs), bits])
    return table(["what a head reads", "seeds", "updates", "bits per character"], body)


def _has(run: Attempt, held_out: str) -> bool:
    return held_out in run.run.marks[-1].results


def _last(run: Attempt, held_out: str) -> str:
    return percent(run.run.marks[-1].results[held_out]["score"], 1)


def _once(runs: Sequence[Attempt]) -> list[Attempt]:
    """Return each run once, whatever rows it is in."""
    return list({run.run.name: run for run in runs}.values())


def positions() -> str:
    """Return the curves of positions.jsonl: accuracy in per cent after so many updates."""
    records = lines("bounded/positions.jsonl")
    updates = [update for update, _ in records[0]["curve"]]
    body = [
        [record["initial_weights"], f"{record['noise']:g}", *(percent(score) for _, score in record["curve"])]
        for record in records
    ]
    return table(["initial weights", "noise", *(f"{update}" for update in updates)], body)


BLOCKS: dict[str, Callable[[], str]] = {
    "archives": lambda: archive_table("bounded"),
    "copy": copy,
    "copy, by seed": copy_by_seed,
    "copy, the others": copy_others,
    "states read": states_read,
    "delays": delays,
    "positions": positions,
    "mqar": mqar,
    "denoise": denoise,
    "text": text,
    "settings": settings_tried,
    "not run": lambda: not_run([(name, "published") for name in EXPERIMENTS]),
}
