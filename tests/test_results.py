"""Archives under `results/` are intact, and the pages are what the archives give."""

import doctest
import hashlib
import importlib
import sys
from pathlib import Path

import pytest

from plait.lab.experiments.catalogue import experiment_named

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
ARCHIVES = sorted(RESULTS.rglob("*.tar.gz"))
sys.path.insert(0, str(ROOT / "docs"))
make_results = importlib.import_module("make_results")


def test_an_archive_has_its_checksum_beside_it():
    assert len(ARCHIVES) > 20
    wrong = []
    for archive in ARCHIVES:
        checksum = Path(f"{archive}.sha256")
        expected = [hashlib.sha256(archive.read_bytes()).hexdigest(), archive.name]
        if not checksum.exists() or checksum.read_text().split() != expected:
            wrong.append(archive.name)
    assert not wrong


@pytest.mark.parametrize("name", [*make_results.PAGES, *make_results.REPORTS])
def test_a_page_is_what_the_archives_give(name):
    """`make results` changes nothing."""
    assert (ROOT / name).read_text() == make_results.filled(name), "stale: run make results"


def test_every_archive_is_on_a_page():
    """An archive whose page has no line for it would be results that nobody sees."""
    pages = {path.parent: path.read_text() for path in RESULTS.glob("*/README.md")}
    names = {path: path.name.removesuffix(".tar.gz") for path in ARCHIVES}
    assert not [path.name for path, name in names.items() if f"| `{name}` |" not in pages[path.parent]]


def test_a_page_without_one_of_its_tables_is_refused(monkeypatch, tmp_path):
    (tmp_path / "docs").mkdir()
    text = (ROOT / "docs/results.md").read_text()
    (tmp_path / "docs/results.md").write_text(text.replace("table: overview", "table: overvew"))
    monkeypatch.setattr(make_results, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"docs/results.md: expected each of its tables once, .*overvew"):
        make_results.filled("docs/results.md")


@pytest.mark.parametrize(
    "name",
    [
        "blocks",
        "archive_tables.records",
        "archive_tables.significance",
        "archive_tables.bench",
        "archive_tables.plans",
    ],
)
def test_examples_of_what_fills_the_pages(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


def test_pages_and_run_folders_are_not_kept():
    assert ARCHIVES
    assert not [path for path in RESULTS.rglob("*") if path.suffix == ".html" or path.name == "metrics.jsonl"]


def test_learned_and_earned_relevance_are_compared_by_the_best_settings_on_record():
    like_for_like = importlib.import_module("archive_tables.like_for_like")
    best = {column: like_for_like.best_setting(runs) for column, runs in like_for_like.searched().items()}
    assert len(best) == 4
    for run in experiment_named("like-for-like").runs:
        model, rate = run.model, f"lr {run.recipe['lr']:g}"
        extra = f", noise {model['noise']:g}, usage {model['usage']:g}" if "noise" in model else ""
        assert rate + extra == best[run.column], run.column
