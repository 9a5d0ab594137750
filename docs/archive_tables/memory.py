"""Tables of results/memory: what a bounded memory keeps, by lead-in, model and setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from archive_tables import like_for_like
from archive_tables.plans import jobs, not_run
from archive_tables.records import (
    DASH,
    TARGET,
    Attempt,
    archive_table,
    archives,
    attempts,
    by,
    ended,
    interval,
    last_scores,
    lines,
    percent,
    setting_key,
    spread,
    table,
    updates_cell,
    whole,
)
from archive_tables.significance import fisher, shown

LEAD_INS = (0, 5, 20, 60, 200)
MODELS = (
    "RelRNN earned",
    "RelRNN learned",
    "MemRNN",
    "RelLSTM earned",
    "RelLSTM learned",
    "MemLSTM",
    "LSTM chrono",
    "Transformer",
)
SHORT = 6000


def _name(run: Attempt) -> str:
    """Return a run's model as `keeping` names it."""
    model = run.value("model", "name")
    names = {"relrnn": "RelRNN", "rellstm": "RelLSTM", "memrnn": "MemRNN", "memlstm": "MemLSTM"}
    if model in ("relrnn", "rellstm"):
        return f"{names[model]} {run.value('model', 'relevance', 'earned')}"
    return {**names, "lstm": "LSTM chrono", "transformer": "Transformer"}[model]


def _copy(run: Attempt) -> bool:
    """Return whether a run is one of copy at delay 100 alone, in at most 6,000 updates."""
    task = {name: value for name, value in run.run.description["task"].items() if value is not None}
    return (
        task.keys() <= {"name", "delay", "lead_in"}
        and (task["name"], task["delay"]) == ("copy", 100)
        and (run.value("recipe", "updates") == SHORT)
    )


def copy_runs(names: Iterable[str] | None = None) -> list[Attempt]:
    """Return the attempts at copy after a lead-in, each once."""
    every = attempts(*(names or archives("memory")))
    return [run for run in {(run.run.name, run.began): run for run in every}.values() if _copy(run)]


def _lead_in(run: Attempt) -> int:
    return int(run.value("task", "lead_in", 0))


def planned_runs() -> dict[tuple[str, int], list[Attempt]]:
    """Return the runs with the settings of `keeping`, in any archive, by model and lead-in."""
    planned = {_essential(job.spec.to_json()) for job in jobs("keeping", "published")}
    runs = [run for run in copy_runs() if _essential(run.run.description) in planned]
    return by(runs, lambda run: (_name(run), _lead_in(run)))


def _essential(description: dict[str, Any]) -> str:
    """Return a setting without the guard against non-finite gradients, which changes no finite update."""
    recipe = description["recipe"]
    if recipe.get("relative_clip") != 1e6:
        return setting_key(description)
    without = {name: value for name, value in recipe.items() if name != "relative_clip"}
    return setting_key({**description, "recipe": without})


def lead_ins() -> str:
    cells = planned_runs()
    rows = [[model, *(updates_cell(cells.get((model, n), [])) for n in LEAD_INS)] for model in MODELS]
    return table(["model", *(f"lead-in {n}" for n in LEAD_INS)], rows)


def others() -> str:
    """Return where the runs ended that did not reach 99%."""
    cells, rows = planned_runs(), []
    for model in MODELS:
        row = [model]
        for lead_in in LEAD_INS:
            runs = [run for run in cells.get((model, lead_in), []) if run.reached is None]
            row.append(last_scores(sorted(runs, key=lambda run: run.run.score or 0)) if runs else DASH)
        rows.append(row)
    return table(["model", *(f"lead-in {n}" for n in LEAD_INS)], rows)


def _count(runs: Sequence[Attempt]) -> tuple[int, int]:
    known = ended(runs)
    return sum(run.reached is not None for run in known), len(known)


def rules_tests() -> str:
    """Return learned beside earned relevance, and beside a memory of all states, by cell and lead-in."""
    cells, rows = planned_runs(), []
    for cell, full in (("RelRNN", "MemRNN"), ("RelLSTM", "MemLSTM")):
        for lead_in in LEAD_INS:
            learned = _count(cells.get((f"{cell} learned", lead_in), []))
            row = [cell, lead_in, interval(*learned) if learned[1] else "none finished"]
            for other in (f"{cell} earned", full):
                count = _count(cells.get((other, lead_in), []))
                row += (
                    [interval(*count), shown(fisher(learned, count))]
                    if count[1] and learned[1]
                    else [interval(*count) if count[1] else "none finished", DASH]
                )
            rows.append(row)
        for other in (f"{cell} earned", full):
            pairs = [
                (_count(cells.get((f"{cell} learned", n), [])), _count(cells.get((other, n), [])))
                for n in LEAD_INS
            ]
            both = [pair for pair in pairs if pair[0][1] and pair[1][1]]
            ours, theirs = (_summed([pair[side] for pair in both]) for side in (0, 1))
            row = [cell, "those of both", interval(*ours), DASH, DASH, DASH, DASH]
            place = 3 if other.endswith("earned") else 5
            row[place : place + 2] = [interval(*theirs), shown(fisher(ours, theirs))]
            rows.append(row)
    heads = ["earned at 99%", "Fisher's p", "all states at 99%", "Fisher's p "]
    return table(["cell", "lead-in", "learned at 99%", *heads], rows)


def _summed(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


_SHOWN = ("noise", "usage", "mix", "grad_limit", "forget_bias", "chrono", "num_layers")
_TRAINED = ("optimizer", "lr", "relative_clip", "schedule")
_PLAIN = {"num_layers": 1, "mix": 0.5}


def _setting(run: Attempt) -> str:
    model, recipe = run.run.description["model"], run.run.description["recipe"]
    parts = [
        f"{name.replace('_', ' ')} {model[name]:g}"
        for name in _SHOWN
        if model.get(name) is not None and model[name] != _PLAIN.get(name)
    ]
    parts += [
        f"{name.replace('_', ' ')} {_number(recipe[name])}"
        for name in _TRAINED
        if recipe.get(name) is not None
    ]
    return ", ".join(parts).replace("optimizer ", "").replace("schedule ", "")


def _number(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_number, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def every_setting() -> str:
    """Return every setting of copy after a lead-in, from all archives."""
    rows = []
    runs = sorted(copy_runs(), key=lambda run: (_lead_in(run), _name(run)))
    for same in by(runs, lambda run: setting_key(run.run.description)).values():
        first = same[0]
        files = ", ".join(dict.fromkeys(f"`{run.archive}`" for run in same))
        known = ended(same)
        count = interval(*_count(same)) if known else DASH
        failed = [run for run in same if run.reached is None]
        rows.append(
            [
                _lead_in(first),
                _name(first),
                _setting(first),
                files,
                count,
                updates_cell(same),
                last_scores(failed) if failed else DASH,
            ]
        )
    heads = ["reached 99%", "updates; of the runs not cut short", "the others, %"]
    return table(["lead-in", "model", "setting", "archives", *heads], rows)


def held() -> str:
    """Return what stays learned in copy at delay 100, from first reaching 99% on."""
    rows = []
    runs = attempts("memory/held-and-late", "memory/held-and-late-first", "memory/by-answers")
    held = [run for run in runs if run.row == "held for 20,000 updates"]
    for (archive, _), same in by(held, lambda run: (run.archive, setting_key(run.run.description))).items():
        lowest = [
            min(mark.score for mark in run.run.marks if mark.update >= run.reached)
            for run in same
            if run.reached is not None
        ]
        rows.append(
            [
                f"`{archive}`",
                same[0].column,
                _setting(same[0]),
                interval(len(lowest), len(same)),
                ", ".join(whole(run.reached) for run in same if run.reached is not None),
                interval(sum(score >= TARGET for score in lowest), len(lowest)),
                ", ".join(percent(score, 1) for score in lowest),
                spread([run.run.updates for run in same]),
            ]
        )
    heads = ["reached 99%", "after updates", "of these stayed", "lowest afterwards, %", "followed to update"]
    return table(["archive", "training", "setting", *heads], rows)


def settling() -> str:
    """Return the same of the small runs whose rate falls with the mistakes that are left."""
    rows = []
    small = [line for line in lines("memory/more-ideas.jsonl") if not line.get("lead") and "task" not in line]
    for key, same in by(small, _line_setting).items():
        lowest, reached = [], []
        for line in same:
            first = _first(line["curve"])
            if first is not None:
                reached.append(first)
                lowest.append(min(score for update, score, *_ in line["curve"] if update >= first))
        stayed = interval(sum(score >= TARGET for score in lowest), len(lowest)) if lowest else DASH
        rows.append(
            [
                key,
                interval(len(reached), len(same)),
                spread(reached),
                stayed,
                ", ".join(percent(score, 1) for score in lowest) or DASH,
            ]
        )
    return table(["setting", "reached 99%", "after updates", "of these stayed", "lowest afterwards, %"], rows)


def _first(curve: Sequence[Sequence[float]]) -> float | None:
    return next((point[0] for point in curve if point[1] >= TARGET), None)


_UNIMPORTANT = (
    "seed",
    "window",
    "capacity",
    "until_accuracy",
    "evaluate_every",
    "record_every",
    "updates",
    "batch_size",
)


def _line_setting(line: dict[str, Any]) -> str:
    """Return the setting of a recorded small run in words."""
    model = line["model"] if isinstance(line["model"], dict) else {"name": line["model"]}
    values = {**model, **line.get("options", {}), **line.get("recipe", {}), **line.get("more", {})}
    values |= {name: value for name, value in line.items() if name not in _RECORDED}
    names = {
        "relrnn": "RelRNN",
        "rellstm": "RelLSTM",
        "memrnn": "MemRNN",
        "memlstm": "MemLSTM",
        "lstm": "LSTM",
        "transformer": "Transformer",
    }
    name = names[values.pop("name")]
    task = values.pop("task", None)
    parts = [
        f"{key.replace('_', ' ')} {_number(value)}"
        for key, value in values.items()
        if key not in _UNIMPORTANT
    ]
    where = [f"{task['name']} at delay {task['delay']}"] if task else []
    return ", ".join([name, *parts, *where])


_RECORDED = (
    "model",
    "options",
    "recipe",
    "more",
    "lead",
    "seed",
    "status",
    "seconds",
    "curve",
    "kept",
    "skipped",
    "reached",
    "updates",
    "error",
)


def small_runs(path: str) -> str:
    """Return every setting of a file of small runs: how many reached 99%, and where the others stood."""
    rows = []
    for (lead, setting), same in by(
        lines(path), lambda line: (line.get("lead", 0), _line_setting(line))
    ).items():
        curves = [line["curve"] for line in same if line.get("curve")]
        reached = [first for first in map(_first, curves) if first is not None]
        left = [curve[-1][1] for curve in curves if _first(curve) is None]
        lost = sum(_first(curve) is not None and curve[-1][1] < TARGET - 0.04 for curve in curves)
        rows.append(
            [
                lead,
                setting,
                f"{len(reached)} of {len(same)}",
                spread(reached),
                ", ".join(map(percent, sorted(left))) or DASH,
                lost or DASH,
            ]
        )
    columns = [
        "lead-in",
        "setting",
        "reached 99%",
        "after updates",
        "the others, %",
        "below 95% at the end",
    ]
    return table(columns, sorted(rows, key=lambda row: (row[0], row[1])))


def wide() -> str:
    rows = []
    for (model, first), same in by(
        lines("memory/wide.jsonl"), lambda line: (line["model"], line["first"])
    ).items():
        for more, part in by(
            same, lambda line: ", ".join(f"{k} {_number(v)}" for k, v in line["more"].items())
        ).items():
            reached = [
                next((p[0] for p in line["curve"] if p[1] == 15 and p[3] >= TARGET), None) for line in part
            ]
            known = [update for update in reached if update is not None]
            rows.append([model, first, more or DASH, f"{len(known)} of {len(part)}", spread(known)])
    columns = ["model", "slots at the start", "changed", "reached 99% with 15", "after updates"]
    return table(columns, sorted(rows, key=lambda row: (row[0], row[1], row[2])))


def rows_of_keeping(*names: str) -> str:
    """Return the runs of some rows of `keeping`, by row and model."""
    rows = []
    runs = [run for run in attempts("memory/held-and-late") if run.row.startswith(names)]
    for (row, column), same in by(runs, lambda run: (run.row, run.column)).items():
        best = ", ".join(percent(max((mark.score for mark in run.run.marks), default=None)) for run in same)
        rows.append(
            [
                row,
                column,
                whole(same[0].value("recipe", "updates")),
                updates_cell(same),
                last_scores(same),
                best,
            ]
        )
    return table(["row", "model", "updates at most", "updates to 99%", "at the end, %", "best, %"], rows)


READERS = {
    ("lstm", 1): "LSTM, chrono",
    ("rellstm", 1): "RelLSTM learned, 10 + 15 states",
    ("rellstm", 2): "RelLSTM learned, two layers",
    ("memlstm", 1): "MemLSTM, all states",
    ("transformer", 2): "Transformer, two layers (keys and values)",
}


def _state_bytes(model: dict[str, Any], steps: int) -> int:
    """Return the bytes of a model's state after some steps, in float32."""
    hidden, layers, name = model["hidden_size"], model.get("num_layers", 1), model["name"]
    if name == "transformer":
        return 4 * 2 * layers * steps * hidden
    slots = {"lstm": 0, "rellstm": model.get("window", 0) + model.get("capacity", 0), "memlstm": steps}[name]
    return 4 * layers * hidden * (2 + slots)


def recall_by_key() -> str:
    rows = []
    runs = by(
        attempts("memory/mqar"), lambda run: (run.value("model", "name"), run.value("model", "num_layers", 1))
    )
    for key, name in READERS.items():
        same = runs[key]
        ends = {(run.value("task", "length"), run.value("task", "after", 0)): run for run in same}
        sizes = ", ".join(f"{_state_bytes(same[0].run.description['model'], n):,}" for n in (64, 128, 256))
        cells = [
            last_scores([ends[length, after]] if (length, after) in ends else [])
            for after in (0, 2)
            for length in (64, 128, 256)
        ]
        rows.append([name, sizes, *cells])
    heads = [f"{when}{length} steps, %" for when in ("", "two steps later: ") for length in (64, 128, 256)]
    return table(["model", "bytes of state after 64, 128, 256 steps", *heads], rows)


def recall_rates() -> str:
    rows = [
        [
            line["model"],
            line["num_layers"],
            line["after"],
            f"{line['lr']:g}",
            whole(line["updates"]),
            line["status"],
            percent(line["curve"][-1][1], 1) if line["curve"] else DASH,
        ]
        for line in lines("memory/mqar-rates.jsonl")
    ]
    return table(
        ["model", "layers", "answers after steps", "learning rate", "updates", "ended", "accuracy, %"], rows
    )


def unrun() -> str:
    names = ("keeping", "keeping-settings", "like-for-like-search", "like-for-like")
    return not_run((name, "published") for name in names)


BLOCKS = {
    "archives": lambda: archive_table("memory"),
    "lead-ins": lead_ins,
    "lead-ins, the others": others,
    "rules, tests": rules_tests,
    "like for like": like_for_like.comparison,
    "like for like, updates": like_for_like.updates,
    "like for like, search": like_for_like.search,
    "every setting": every_setting,
    "held": held,
    "settling": settling,
    "denoise": lambda: rows_of_keeping("denoise"),
    "transfer": lambda: rows_of_keeping("lead-in 60, "),
    "recall": lambda: rows_of_keeping("recall"),
    "mqar": recall_by_key,
    "mqar, batches of 32": lambda: rows_of_keeping("mqar"),
    "mqar, rates": recall_rates,
    "ideas": lambda: small_runs("memory/ideas.jsonl"),
    "more ideas": lambda: small_runs("memory/more-ideas.jsonl"),
    "search": lambda: small_runs("memory/search.jsonl"),
    "wide": wide,
    "not run": unrun,
}
