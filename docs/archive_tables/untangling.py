"""Tables of results/untangling: copy, transfer, denoise, gradients, images and text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from archive_tables.plans import not_run, planned_cells
from archive_tables.records import (
    DASH,
    Attempt,
    archive_table,
    attempts,
    by,
    ended,
    groups,
    interval,
    last_scores,
    median_updates,
    percent,
    table,
    updates_cell,
    whole,
)
from archive_tables.significance import fisher, permutation, shown
from plait.lab.experiments.untangling.contestants import BEST_ON_MNIST

DELAYS = (100, 200, 300, 500, 1000, 2000)
COPY = (
    "untangling/table5",
    "untangling/table5-first",
    "untangling/table5-tried",
    "untangling/table5-baselines",
)
DENOISE = ("untangling/denoise", "untangling/denoise-first")
PUBLISHED = ("RelRNN", "RelLSTM", "MemRNN", "orth-RNN", "expRNN", "LSTM")
OURS = tuple(f"{name}, plait" for name in (*PUBLISHED, "SAB", "uniform writing"))
WITHOUT_RECIPE = ("GORU",)  # not in table 6; trained as in table 7
UNGUARDED = "RelRNN, without the guard"
FIRST_RELLSTM = "RelLSTM, Adam 0.0002"  # before its published recipe was known
HEADS = [f"T = {delay}" for delay in DELAYS]

Cells = dict[tuple[str, str], list[Attempt]]


def copy_cells() -> dict[str, Cells]:
    """Return the runs of copy by recipe, row and model; every attempt counts, begun anew or not."""
    ours = planned_cells("table5", "plait", *COPY)
    published = planned_cells("table5", "published", *COPY)
    for run in attempts(*COPY[:2]):
        if run.column == "RelRNN, plait" and run.value("recipe", "relative_clip") is None:
            ours.setdefault((run.row, UNGUARDED), []).append(run)
        if run.column == "RelLSTM" and run.value("recipe", "optimizer") == "adam":
            published.setdefault((run.row, FIRST_RELLSTM), []).append(run)
    return {"plait": ours, "published": published}


def _copy_rows(show: Callable[[Sequence[Attempt]], str]) -> list[list[str]]:
    rows = []
    cells = copy_cells()
    for recipe, models in (
        ("plait", (*OURS, UNGUARDED)),
        ("published", (*PUBLISHED, *WITHOUT_RECIPE, FIRST_RELLSTM)),
    ):
        for model in models:
            runs = [cells[recipe].get((head, model), []) for head in HEADS]
            batch = max((run.batch for cell in runs for run in cell), default=0)
            name = "ours" if recipe == "plait" else "published"
            rows.append([name, model.removesuffix(", plait"), str(batch or DASH), *map(show, runs)])
    return rows


def copy_updates() -> str:
    return table(["recipe", "model", "batch", *HEADS], _copy_rows(updates_cell))


def copy_sequences() -> str:
    def sequences(runs: Sequence[Attempt]) -> str:
        middle = median_updates(runs)
        return DASH if middle is None else f"{middle * runs[0].batch / 1000:,.0f}"

    return table(["recipe", "model", "batch", *HEADS], _copy_rows(sequences))


def copy_accuracy() -> str:
    """Return the last accuracies as published beside the published values."""
    published = {(cell.row, cell.column): cell for cell in groups("untangling/table5")[0].cells}
    cells, rows = copy_cells()["published"], []
    for head in HEADS:
        row = [head]
        for model in (*PUBLISHED, FIRST_RELLSTM):
            cell = published.get((head, model.partition(",")[0]))
            value = None if cell is None else cell.published
            note = cell.published_note if cell is not None and cell.published_note else percent(value)
            row.append(f"{last_scores(cells.get((head, model), []))} ({note})")
        rows.append(row)
    return table(["delay", *PUBLISHED, FIRST_RELLSTM], rows)


def copy_ends() -> str:
    """Return how every run of copy ended, by recipe."""
    rows = []
    for recipe, cells in copy_cells().items():
        for name, runs in by([run for cell in cells.values() for run in cell], _recipe_name).items():
            perfect = sum(run.run.score == 1.0 for run in runs)
            states = [run.run.status for run in runs]
            label = name if recipe == "plait" else "as published"
            rows.append(
                [
                    label,
                    len(runs),
                    perfect,
                    *(states.count(one) for one in ("complete", "stopped", "diverged")),
                ]
            )
    columns = ["recipe", "runs", "no mistake at the end", "complete", "stopped", "diverged"]
    totals = by(rows, lambda row: row[0])
    return table(
        columns,
        [[name, *map(sum, zip(*(r[1:] for r in same), strict=True))] for name, same in totals.items()],
    )


def _recipe_name(run: Attempt) -> str:
    unguarded = run.column == "RelRNN, plait" and run.value("recipe", "relative_clip") is None
    return UNGUARDED if unguarded else "ours"


def begun_anew() -> str:
    """Return the runs that were begun a second time with the same settings and seed, and how both ended."""
    rows = []
    names = (*COPY, *DENOISE, "memory/held-and-late", "memory/held-and-late-first")
    unique = {(run.run.name, run.began): run for run in attempts(*names)}.values()
    for same in by(unique, lambda run: run.run.name).values():
        if len(same) > 1:
            first, *later = sorted(same, key=lambda run: run.began)
            rows.append(
                [
                    first.row,
                    first.column.removesuffix(", plait"),
                    first.run.seed,
                    _end(first),
                    *map(_end, later),
                ]
            )
    return table(["row", "model", "seed", "first", "begun anew"], rows)


def _end(run: Attempt) -> str:
    reached = "99% not reached" if run.reached is None else f"99% after {whole(run.reached)}"
    return f"{reached}; {percent(run.run.score, 1)}% when {run.run.status} at {whole(run.run.updates)}"


def transfer() -> str:
    rows = []
    for model, runs in by(attempts("untangling/transfer"), lambda run: run.column).items():
        names = list(runs[0].run.marks[-1].results)
        cells = [
            ", ".join(percent(run.run.marks[-1].results[name]["score"]) for run in runs) for name in names
        ]
        states = sorted(
            {f"stopped at {whole(run.run.updates)}" for run in runs if run.run.status == "stopped"}
        )
        rows.append([model, len(runs), *cells, "; ".join(states) or "complete"])
    return table(["model", "runs", *(f"{n}, %" for n in names), "ended"], rows)


SETTLED_ROW = "denoise 30 to 1000"  # of `keeping`: at most 20,000 updates, with a rate that settles
DENOISE_MODELS = ("RelRNN", "RelLSTM", "MemRNN", "LSTM", "GORU", "orth-RNN", "expRNN")


def denoise_cells() -> dict[tuple[str, str], dict[str, list[Attempt]]]:
    """Return the runs of denoise by setting, model and delay, from every archive that has some."""
    cells: dict[tuple[str, str], dict[str, list[Attempt]]] = {}
    for run in attempts(*DENOISE):
        model, ours = run.column.removesuffix(", plait"), run.column.endswith(", plait")
        guarded = model != "RelRNN" or run.value("recipe", "relative_clip") is not None
        setting = "published" if not ours else "ours" if guarded else "ours, without the guard"
        cells.setdefault((setting, model), {}).setdefault(run.row, []).append(run)
    for run in attempts("memory/held-and-late"):
        if run.row == SETTLED_ROW:
            cells.setdefault(("`keeping`", run.column), {}).setdefault("T = 1000", []).append(run)
    order = ("ours", "ours, without the guard", "`keeping`", "published")
    return dict(sorted(cells.items(), key=lambda item: (order.index(item[0][0]), _rank(item[0][1]))))


def _rank(model: str) -> int:
    return DENOISE_MODELS.index(model.partition(" ")[0])


def denoise() -> str:
    rows = []
    for (setting, model), cells in denoise_cells().items():
        every = [run for cell in cells.values() for run in cell]
        most = max(int(run.value("recipe", "updates")) for run in every)
        rows.append(
            [setting, model, every[0].batch, whole(most), *(_denoise_cell(cells.get(h, [])) for h in HEADS)]
        )
    return table(["setting", "model", "batch", "updates at most", *HEADS], rows)


def _denoise_cell(runs: Sequence[Attempt]) -> str:
    if not runs:
        return "not run"
    reached = sorted(run.reached for run in runs if run.reached is not None)
    return f"{last_scores(runs)}" + (f" ({', '.join(map(whole, reached))})" if reached else "")


def denoise_tests() -> str:
    """Return the share of runs at 99% beside RelRNN's, over the delays at which both were run."""
    cells = denoise_cells()
    settings = ("ours", "ours, without the guard")
    ours = {head: [run for one in settings for run in cells[one, "RelRNN"].get(head, [])] for head in HEADS}
    rows = []
    for (setting, model), theirs in cells.items():
        if setting != "ours" or model == "RelRNN":
            continue
        common = [head for head in HEADS if ours[head] and head in theirs]
        counts = []
        for side in (ours, theirs):
            runs = ended([run for head in common for run in side[head]])
            counts.append((sum(run.reached is not None for run in runs), len(runs)))
        rows.append([model, interval(*counts[0]), interval(*counts[1]), shown(fisher(*counts))])
    return table(["model beside RelRNN", "RelRNN at 99%", "the model at 99%", "Fisher's p"], rows)


FIGURE_4 = ("RelRNN", "orth-RNN", "expRNN")
FIGURES_5_AND_6 = ("LSTM", "GORU")


def cross_entropy() -> str:
    """Return the held-out cross-entropy at the end beside the accuracy, of the models of figures 4 to 6."""
    rows = [["both", "–", "chance", *(f"{10 * math.log(8) / (delay + 20):.2g}" for delay in DELAYS)]]
    for recipe, cells in copy_cells().items():
        for model, same in by(cells.items(), lambda item: item[0][1]).items():
            name = model.removesuffix(", plait")
            if name in (*FIGURE_4, UNGUARDED):
                by_row = {row: runs for (row, _), runs in same}
                rows.append(["copy", "ours" if recipe == "plait" else recipe, name, *_losses(by_row)])
    for (setting, model), by_row in denoise_cells().items():
        if model in (*FIGURE_4, *FIGURES_5_AND_6) and "keeping" not in setting:
            rows.append(["denoise", setting, model, *_losses(by_row)])
    return table(["task", "recipe", "model", *HEADS], rows)


def _losses(by_row: dict[str, list[Attempt]]) -> list[str]:
    """Return nats and accuracy of every run's last evaluation, by row."""
    cells = []
    for head in HEADS:
        ends = [run.run.marks[-1] for run in by_row.get(head, []) if run.run.marks]
        texts = [f"{next(iter(end.results.values()))['loss']:.2g} ({percent(end.score)})" for end in ends]
        none = "diverged before its first evaluation" if by_row.get(head) else "not run"
        cells.append(", ".join(texts) or none)
    return cells


def gradient_norms(name: str) -> str:
    rows = []
    for column, runs in by(attempts(name), lambda run: run.column).items():
        norms = [float(norm) for run in runs for norm in run.run.gradients[-1]["norms"][-1]]
        finite = [norm for norm in norms if norm > 0]
        middle = statistics.median(norms)
        scores = ", ".join(percent(run.run.score) for run in runs)
        states = ", ".join(sorted({run.run.status for run in runs}))
        rows.append([column, *(f"{v:.0e}" for v in (middle, min(finite), max(norms))), scores, states])
    return table(["varied", "median norm", "least", "largest", "held-out accuracy by seed, %", "ended"], rows)


FIGURE_2 = "untangling/figure2"
COURSE = (0, 250, 1000, 2000, 2750)  # updates of the table; the norms are recorded every 250


def figure2() -> str:
    """Return the norms while training, run by run: over the steps of a sequence, and over all records."""
    rows = []
    for run in attempts(FIGURE_2):
        norms = {int(record["update"]): list(map(float, record["norms"][-1])) for record in run.run.gradients}
        course = [_course(norms[update]) if update in norms else DASH for update in COURSE]
        every = [norm for each in norms.values() for norm in each]
        above = sum(max(each) > 1 for each in norms.values())
        best = max(mark.score or 0.0 for mark in run.run.marks)
        ends = [f"{min(every):.0e}", f"{max(every):.0e}", f"{above} of {len(norms)}", percent(best)]
        model = run.column.removesuffix(", plait")
        rows.append([run.row, model, run.run.seed, *course, *ends, last_scores([run])])
    heads = [f"update {update:,}" for update in COURSE]
    over_all = ["least", "largest", "records with one above 1", "best accuracy, %", "at the end, %"]
    return table(["task", "model", "seed", *heads, *over_all], rows)


def _course(norms: Sequence[float]) -> str:
    """Return the median norm over the steps of a sequence, and the largest."""
    return f"{statistics.median(norms):.0e} ({max(norms):.0e})"


def figure3() -> str:
    return gradient_norms("untangling/figure3")


def figure3_ours() -> str:
    return gradient_norms("untangling/figure3-plait")


IMAGES = {"permuted": "pmnist", "sequential": "smnist"}


def held_out(run: Attempt, part: str, name: str = "score") -> float | None:
    """Return a result on a run's validation or test set, None if it did not come so far."""
    held_out = run.run.summary.get("held_out", {})
    return held_out.get(part, {}).get(name)


def best_on_images(row: str, model: str) -> list[Attempt]:
    """Return the runs of a model on permuted or sequential pixels, by its best setting."""
    (column,) = (one for one in BEST_ON_MNIST[IMAGES[row]] if one.partition(",")[0] == model)
    return [
        run for run in attempts("untangling/table8") if (run.row, run.column) == (row, f"{column}, plait")
    ]


def images() -> str:
    rows = []
    for model in ("LSTM", "RelLSTM", "orth-RNN", "expRNN", "RelRNN"):
        row, rates, cells = [model], [], []
        for task in IMAGES:
            runs = best_on_images(task, model)
            rates.append(f"{runs[0].value('recipe', 'lr'):g}")
            for part in ("validation", "test"):
                cells.append(", ".join(percent(held_out(run, part), 1) for run in runs))
        row += [", ".join(dict.fromkeys(rates)), f"{runs[0].run.summary['parameters']:,}", *cells]
        rows.append(row)
    heads = [f"{name}, {part}, %" for name in ("pMNIST", "sMNIST") for part in ("validation", "test")]
    return table(["model", "learning rate", "parameters", *heads], rows)


def images_tests() -> str:
    """Return the difference of RelLSTM from LSTM on permuted pixels, seed by seed."""
    first, second = (
        [held_out(run, "test") for run in best_on_images("permuted", m)] for m in ("RelLSTM", "LSTM")
    )
    difference = 100 * (statistics.mean(first) - statistics.mean(second))
    rows = [
        [
            "pMNIST, test, RelLSTM less LSTM",
            f"{difference:+.1f} points",
            len(first),
            shown(permutation(first, second)),
        ]
    ]
    return table(["comparison", "difference of means", "seeds each", "permutation test's p"], rows)


def images_tried() -> str:
    """Return every run of table 8: settings that were tried included."""
    rows = []
    for run in attempts("untangling/table8"):
        ours = run.column.endswith(", plait")
        rows.append(
            [
                run.row,
                run.column.removesuffix(", plait"),
                "ours" if ours else "published",
                run.run.seed,
                f"{run.value('recipe', 'lr'):g}",
                f"{run.run.summary['parameters']:,}" if "parameters" in run.run.summary else DASH,
                whole(run.run.updates / 500),
                run.run.status,
                percent(run.run.score, 1),
                percent(max(mark.score for mark in run.run.marks), 1),
                percent(held_out(run, "test"), 1),
            ]
        )
    heads = ["validation, last, %", "best, %", "test, %"]
    columns = ["pixels", "model", "recipe", "seed", "learning rate", "parameters", "epochs", "ended", *heads]
    return table(columns, rows)


def treebank() -> str:
    rows = []
    for run in attempts("untangling/table9", "untangling/table9-baselines"):
        ours = run.column.endswith(", plait")
        bits = [held_out(run, part, "bits_per_character") for part in ("validation", "test")]
        rows.append(
            [
                "ours" if ours else "published",
                run.column.removesuffix(", plait"),
                run.value("model", "hidden_size"),
                f"{run.value('recipe', 'lr'):g}",
                f"{run.run.summary['parameters']:,}",
                whole(run.run.updates / 261),
                *(DASH if value is None else f"{value:.3f}" for value in bits),
                percent(held_out(run, "test"), 1),
                whole(run.run.seconds),
            ]
        )
    heads = ["validation, bits per character", "test, bits per character", "test accuracy, %", "seconds"]
    return table(["recipe", "model", "features", "learning rate", "parameters", "epochs", *heads], rows)


def search() -> str:
    """Return every setting of the searches on copy and denoise."""
    rows = []
    for run in attempts("untangling/recipes", "untangling/table5-tried", "untangling/denoise-tried"):
        rows.append([f"`{run.archive}`", run.row, run.column, run.run.seed, _end(run)])
    return table(["archive", "row", "setting", "seed", "ended"], rows)


def unrun() -> str:
    names = (
        "table5",
        "denoise",
        "transfer",
        "figure2",
        "figure3",
        "table8",
        "table9",
        "figure10",
        "figure11",
    )
    once = ("recipes", "figure7", "figure9")
    return not_run(
        [
            *((name, recipe) for name in names for recipe in ("published", "plait")),
            *((n, "published") for n in once),
        ]
    )


BLOCKS = {
    "archives": lambda: archive_table("untangling"),
    "copy, updates to 99%": copy_updates,
    "copy, thousands of sequences to 99%": copy_sequences,
    "copy, accuracy as published": copy_accuracy,
    "copy, ends": copy_ends,
    "begun anew": begun_anew,
    "transfer": transfer,
    "denoise": denoise,
    "denoise, tests": denoise_tests,
    "figures 4 to 6, cross-entropy": cross_entropy,
    "figure 2": figure2,
    "figure 3 as published": figure3,
    "figure 3 by our recipe": figure3_ours,
    "MNIST": images,
    "MNIST, tests": images_tests,
    "MNIST, every run": images_tried,
    "Penn Treebank": treebank,
    "searches": search,
    "not run": unrun,
}
