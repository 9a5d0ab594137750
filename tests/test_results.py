"""What is kept under `results/` says what it was drawn from, and is drawn from it again."""

import hashlib
from pathlib import Path

import pytest

from plait.report import write_report

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


@pytest.mark.parametrize("name", ["rl/table4", "rl/table4-unfinished", "popgym/popgym-easy"])
def test_a_committed_table_is_drawn_again_from_its_archive(name, tmp_path):
    write_report([RESULTS / f"{name}.tar.gz"], tmp_path / "table.md", "md")
    assert body(tmp_path / "table.md") == body(RESULTS / f"{name}.md")


def test_pages_and_run_folders_are_not_kept():
    assert ARCHIVES
    assert not [path for path in RESULTS.rglob("*") if path.suffix == ".html" or path.name == "config.json"]
