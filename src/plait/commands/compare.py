"""`plait compare`."""

from __future__ import annotations

from pathlib import Path

from plait.errors import require
from plait.result import CommandResult

__all__ = ["compare"]


def compare(
    length: int = 1000,
    hidden: int = 128,
    task: str = "copy",
    models: str = "rnn,lstm,memlstm,relrnn,rellstm,sab,transformer",
    seconds: float = 60.0,
    batch_size: int = 10,
    lr: float = 1e-3,
    seed: int = 0,
    device: str = "auto",
    out: Path = Path("compare"),
    quiet: bool = False,
) -> CommandResult:
    """What each kind of model costs and buys at one length, in one table and one page.

    Every model is measured on the same batch (parameters, time and memory of a training step, what a stream
    must hold, how far back the gradient of the loss reaches), then trained alone for --seconds. Scores
    are compared after equal updates and after equal seconds. The same learning rate serves all: this is not
    each model at its best. It takes about as many times --seconds as there are models: eight minutes if
    nothing is said. Ctrl-C saves and stops; the same command continues.

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
    from plait.report.compare_page import as_data, comparison_table, headline, write_compare_page
    from plait.report.comparison import Question, run_comparison
    from plait.runs.folder import write_json

    names = tuple(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    question = Question(length, hidden, task, names, seconds, batch_size, lr, seed).check()
    contenders = run_comparison(question, out, device, quiet)
    table = comparison_table(question, contenders)
    said = headline(question, contenders)
    data = {"headline": said, **as_data(question, contenders)}
    write_json(out / "compare.json", data)
    page = write_compare_page(question, contenders, table, out / "index.html")
    parts = (said, "", table, "the page, to open in a browser:", str(page))
    return CommandResult({**data, "page": str(page)}, parts)
