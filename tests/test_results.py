"""What is kept under `results/` says what it was drawn from, and is drawn from it again."""

import hashlib
from pathlib import Path

import pytest

from plait.report import write_report
from plait.report.gather import gather

RESULTS = Path(__file__).parent.parent / "results"
ARCHIVES = sorted(RESULTS.rglob("*.tar.gz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_an_archive_has_its_sum_beside_it(archive):
    digest, name = Path(f"{archive}.sha256").read_text().split()
    assert name == archive.name
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest


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


def test_pages_and_run_folders_are_not_kept():
    assert ARCHIVES
    assert not [path for path in RESULTS.rglob("*") if path.suffix == ".html" or path.name == "config.json"]
