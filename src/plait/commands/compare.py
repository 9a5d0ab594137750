"""`plait compare`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.answer import Answer, Table
from plait.errors import require

if TYPE_CHECKING:
    from plait.report.comparison import Contender, Question

__all__ = ["compare"]


def compare(
    length: int = 1000,
    hidden: int = 128,
    task: str = "copy",
    models: str = "rnn,lstm,memlstm,rellstm,sab,transformer",
    seconds: float = 60.0,
    batch_size: int = 10,
    lr: float = 1e-3,
    seed: int = 0,
    device: str = "auto",
    out: Path = Path("compare"),
    quiet: bool = False,
) -> Answer:
    """What each kind of model costs and buys at one length, in one table and one page.

    Every model is measured on the same batch (parameters, time and memory of a training step, what a stream
    must hold, how far back the gradient of the loss reaches), then trained alone for so many seconds. Scores
    are compared after equal updates and after equal seconds. The same learning rate serves all: this is not
    each model at its best. Ctrl-C saves and stops; the same command goes on.

    Args:
        length: steps of a sequence.
        hidden: features of the hidden state; the models' parameters differ, and are shown.
        task: copy or denoise.
        models: which, between commas.
        seconds: of training for each.
        batch_size: sequences an update sees.
        lr: learning rate of Adam.
        seed: of weights and data.
        device: auto, cpu, cuda or cuda:N.
        out: the folder for the runs, index.html and compare.json.
        quiet: no progress.
    """
    require("matplotlib", "report")  # better missed now than after the training
    from plait.report.compare_page import write_compare_page
    from plait.report.comparison import Question, answer
    from plait.training.files import write_json

    names = tuple(name.strip() for name in models.split(",") if name.strip())
    question = Question(length, hidden, task, names, seconds, batch_size, lr, seed).check()
    contenders = answer(question, out, device, (lambda line: None) if quiet else _say)
    table = comparison_table(question, contenders)
    data = as_data(question, contenders)
    write_json(out / "compare.json", data)
    page = write_compare_page(question, contenders, table, out / "index.html")
    return Answer({**data, "page": str(page)}, (table, "the page, to open in a browser:", str(page)))


def comparison_table(question: Question, contenders: list[Contender]) -> Table:
    """One row for each model."""
    updates = equal_updates(question, contenders)
    rows = [_row(question, contender, updates) for contender in contenders]
    columns = [
        "model",
        "parameters",
        "step (ms)",
        "step (MB)",
        "state (kB)",
        "grows (B/step)",
        "streamed (ms)",
        "reach before",
        "reach after",
        "updates",
        f"accuracy at {updates:,} updates",
        f"accuracy at {question.seconds:g} s",
    ]
    notes = [
        f"{question.task}, {question.length} steps, hidden {question.hidden}, batch {question.batch_size}, "
        f"Adam {question.lr:g}, seed {question.seed}; chance is 12.5%",
        "step: forward + backward of a batch; state: what a stream of one row holds after all steps, and its "
        "growth; streamed: one more step",
        f"reach: steps of {question.length} at which the loss's gradient has at least a millionth of its "
        "norm at the last",
        "accuracy: mean of the last 20 batches, none seen before; updates: made in the seconds",
    ]
    return Table(columns, rows, f"{question.length} steps", notes)


def equal_updates(question: Question, contenders: list[Contender]) -> int:
    """The most updates that every model made in its seconds."""
    return min(contender.updates_after(question.seconds) for contender in contenders)


def _row(question: Question, contender: Contender, updates: int) -> list[Any]:
    cost, made = contender.cost, contender.updates_after(question.seconds)
    return [
        contender.name,
        f"{cost.parameters:,}",
        cost.step_seconds * 1e3,
        cost.step_megabytes,
        cost.state_bytes / 1e3,
        cost.state_growth,
        cost.streamed_seconds * 1e3,
        contender.reach_before.positions,
        "diverged" if contender.reach_after is None else contender.reach_after.positions,
        made,
        _percent(contender.score_after(updates)),
        _percent(contender.score_after(made)),
    ]


def as_data(question: Question, contenders: list[Contender]) -> dict[str, Any]:
    """Everything the table and the page show, for programs."""
    updates = equal_updates(question, contenders)
    models = [
        {
            "model": contender.name,
            **dataclasses.asdict(contender.cost),
            "reach_before": dataclasses.asdict(contender.reach_before),
            "reach_after": contender.reach_after and dataclasses.asdict(contender.reach_after),
            "updates": contender.updates_after(question.seconds),
            "score_at_equal_updates": contender.score_after(updates),
            "score_at_equal_seconds": contender.score_after(contender.updates_after(question.seconds)),
        }
        for contender in contenders
    ]
    return {"question": dataclasses.asdict(question), "equal_updates": updates, "models": models}


def _percent(score: float | None) -> str:
    return "–" if score is None else f"{score:.1%}"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
