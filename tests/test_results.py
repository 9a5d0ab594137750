"""What is kept under `results/` says what it was drawn from, and is drawn from it again."""

import hashlib
import math
import re
import statistics
from pathlib import Path

import pytest

from plait.lab.experiments.untangling.contestants import BEST_ON_MNIST
from plait.lab.report.gather import gather
from plait.lab.report.write import write_report
from tests.pages import table_after

RESULTS = Path(__file__).parent.parent / "results"
ARCHIVES = sorted(RESULTS.rglob("*.tar.gz"))


def test_an_archive_has_its_checksum_beside_it():
    assert len(ARCHIVES) > 20
    wrong = []
    for archive in ARCHIVES:
        checksum = Path(f"{archive}.sha256")
        expected = [hashlib.sha256(archive.read_bytes()).hexdigest(), archive.name]
        if not checksum.exists() or checksum.read_text().split() != expected:
            wrong.append(archive.name)
    assert not wrong


def body(path):
    """Everything but the last lines, which say when and by which command it was drawn."""
    text, found, origin = path.read_text().rpartition("- command: ")
    assert found
    assert origin.count("\n") < 9
    return text


@pytest.mark.parametrize("name", ["rl/table4", "rl/table4-3m", "popgym/popgym-easy", "popgym/popgym-1m"])
def test_a_committed_table_is_drawn_again_from_its_archive(name, tmp_path):
    write_report([RESULTS / f"{name}.tar.gz"], tmp_path / "table.md", "md")
    assert body(tmp_path / "table.md") == body(RESULTS / f"{name}.md")


def rows_of_popgym(archive):
    """A line of the page's table for each world and memory, from the summaries of its runs."""
    for cell in gather([archive])[0].cells:
        ends = [run.summary["held_out"][cell.row] for run in cell.runs]
        assert [run.seed for run in cell.runs] == [0, 1, 2]
        figures = ([end[name] for end in ends] for name in ("mmer", "score"))
        told = (f"{sum(each) / 3:.3f} ({', '.join(f'{one:.3f}' for one in each)})" for each in figures)
        yield f"| {cell.row} | {cell.column} | {' | '.join(told)} |"


def test_the_table_of_popgym_is_what_its_runs_ended_with():
    lines = (RESULTS / "popgym/README.md").read_text().splitlines()
    told = [line for line in lines if line.startswith("| ") and "Easy |" in line]
    assert sorted(told) == sorted(rows_of_popgym(RESULTS / "popgym/popgym-easy.tar.gz"))


def ours(name):
    """The cells of a table of the paper by our recipe: row, model, and runs."""
    (group,) = gather([RESULTS / f"untangling/{name}.tar.gz"])
    return [
        (cell.row, cell.column.partition(",")[0], cell.runs)
        for cell in group.cells
        if cell.column.endswith(", plait")
    ]


def by_delay(name, head):
    """The page's table below this line beside its archive: delay, model, cell, and the runs of the cell."""
    models = [cell.strip().partition(",")[0] for cell in head.split("|")[2:-1]]
    found = {(row, model): runs for row, model, runs in ours(name)}
    for delay, *cells in table_after(RESULTS / "untangling/README.md", head):
        for model, cell in zip(models, cells, strict=True):
            yield delay, model, cell, found.get((f"T = {delay}", model), ())


def first_at_99(run):
    return next((mark.update for mark in run.marks if mark.score >= 0.99), math.inf)


def test_the_table_of_copy_is_what_its_runs_ended_with():
    """Medians of three seeds, of the last score and of the updates to 99 %; what diverged has its mark."""
    head = "| delay | RelRNN | RelLSTM | MemRNN | orth-RNN | expRNN | LSTM, chrono |"
    for delay, model, cell, runs in by_delay("table5", head):
        assert [run.seed for run in runs] == ([] if cell == "–" else [0, 1, 2]), (delay, model)
        if runs:
            score = 100 * statistics.median(run.score for run in runs)
            updates = statistics.median(first_at_99(run) for run in runs)
            lost = [run.status for run in runs].count("diverged")
            assert cell == f"{score:.0f} ({updates:,})" + " †" * lost, (delay, model)
            assert {run.status for run in runs} <= {"complete", "diverged"}


def test_the_table_of_denoise_is_what_its_runs_ended_with():
    head = "| delay | RelRNN | MemRNN | LSTM, chrono | RelLSTM | GORU | orth-RNN | expRNN |"
    rows = list(by_delay("denoise", head))
    assert list(dict.fromkeys(row[0] for row in rows)) == ["100", "200", "300", "500", "1000", "2000"]
    for delay, model, cell, runs in rows:
        ends = [100 * run.score for run in runs]
        plain = re.sub(r"\([^)]*\)", "", cell)
        said = [float(number) for number in re.findall(r"[\d.]+", plain)]
        exact = [round(end, 1 if "." in plain and end >= 98.5 else None) for end in ends]
        assert sorted(said) == sorted(exact), (delay, model)
        came = (first_at_99(run) for run in runs)
        told = [int(number.replace(",", "")) for number in re.findall(r"\d,\d{3}", cell)]
        assert sorted(filter(math.isfinite, came)) == sorted(told), (delay, model)
        assert cell.count("†") == sum(run.status == "diverged" for run in runs)


def test_the_table_of_mnist_is_what_its_runs_ended_with():
    head = (
        "| model | what is its own | parameters | pMNIST, validation (%) | pMNIST, test (%) "
        "| sMNIST, validation (%) | sMNIST, test (%) |"
    )
    (group,) = gather([RESULTS / "untangling/table8.tar.gz"])
    found = {(cell.row, cell.column): [run.summary for run in cell.runs] for cell in group.cells}
    rows = table_after(RESULTS / "untangling/README.md", head)
    assert len(rows) == len(BEST_ON_MNIST["pmnist"])
    for model, _, parameters, *cells in rows:
        told = []
        for row, task in (("permuted", "pmnist"), ("sequential", "smnist")):
            (column,) = (one for one in BEST_ON_MNIST[task] if one.partition(",")[0] == model)
            runs = found[row, f"{column}, plait"]
            assert {f"{run['parameters']:,}" for run in runs} == {parameters}
            for part in ("validation", "test"):
                told.append(", ".join(f"{100 * run['held_out'][part]['score']:.1f}" for run in runs))
        assert cells == told, model


def test_the_table_of_the_treebank_is_what_its_runs_ended_with():
    head = (
        "| model | features | parameters | validation, bits per character | test, bits per character "
        "| test accuracy | seconds |"
    )
    found = {model: run.summary for _, model, (run,) in ours("table9")}
    for model, _, parameters, *cells in table_after(RESULTS / "untangling/README.md", head):
        run = found.pop(model)
        bits = [f"{run['held_out'][part]['bits_per_character']:.3f}" for part in ("validation", "test")]
        accuracy = f"{100 * run['held_out']['test']['score']:.1f} %"
        assert cells == [*bits, accuracy, f"{run['seconds']:.0f}"], model
        assert f"{run['parameters']:,}" == parameters
    assert not found


def test_the_table_of_figure_3_is_what_its_runs_ended_with():
    head = "| varied, ours | medians | least | largest | held-out accuracy, by seed |"
    (group,) = gather([RESULTS / "untangling/figure3-plait.tar.gz"])
    found = {cell.column: cell.runs for cell in group.cells}
    for varied, _, least, largest, accuracy in table_after(RESULTS / "untangling/README.md", head):
        runs = found.pop(varied)
        norms = [norm for run in runs for norm in run.gradients[-1]["norms"][-1]]
        assert [least, largest] == [f"{end:.0e}".replace("e-0", "e-") for end in (min(norms), max(norms))]
        assert accuracy == ", ".join(f"{100 * run.score:.0f}" for run in runs) + " %"
    assert not found


def test_pages_and_run_folders_are_not_kept():
    assert ARCHIVES
    assert not [path for path in RESULTS.rglob("*") if path.suffix == ".html" or path.name == "config.json"]
