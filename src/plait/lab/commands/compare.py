"""The command `plait compare`."""

from __future__ import annotations

from pathlib import Path

from plait.lab.result import CommandResult

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
    """Compare the cost and accuracy of models at one sequence length, in one table and one page.

    Every model is measured on the same batch (parameters, time and memory of a training step, size of the
    state in streaming, how far back the gradient of the loss reaches), then trained alone for --seconds.
    Scores are compared after equal updates and after equal seconds. All models use the same learning rate,
    so none is tuned to its best. Training takes --seconds per model: about eight minutes with the defaults.
    Ctrl-C saves and stops; the same command continues.

    Args:
        length: steps of a sequence.
        hidden: hidden size; parameter counts differ between models, and are shown.
        task: copy or denoise.
        models: model names, separated by commas; MODULE:NAME for a function of your own.
        seconds: training time of each model.
        batch_size: sequences per update.
        lr: learning rate of Adam.
        seed: seed of weights and data.
        device: auto, cpu, cuda or cuda:N.
        out: the folder for the runs, index.html and compare.json.
        quiet: show no progress.
    """
    from plait.lab.bench.comparison import Question, run_comparison
    from plait.lab.report.compare_page import (
        as_data,
        command_of,
        compare_exhibit,
        comparison_table,
        headline,
    )
    from plait.lab.report.gather import gather
    from plait.lab.report.page import write_page
    from plait.lab.report.report_page import report_page
    from plait.lab.runs.folder import write_json

    names = tuple(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    question = Question(length, hidden, task, names, seconds, batch_size, lr, seed).check()
    contenders = run_comparison(question, out, device, quiet)
    table = comparison_table(question, contenders)
    summary = headline(question, contenders)
    data = {"headline": summary, **as_data(question, contenders)}
    write_json(out / "compare.json", data)
    lead = compare_exhibit(question, contenders, table)
    page = write_page(out / "index.html", report_page(gather([out]), command_of(question), lead))
    parts = (summary, "", table, "the page, to open in a browser:", str(page))
    return CommandResult({**data, "page": str(page)}, parts)
