"""Tables on a terminal: whole at every width, nothing read as markup."""

import os
import shutil

import pytest

from plait.lab import cli
from plait.lab.cli.drawing import column_widths, draw_table, wrapped
from plait.lab.result import CommandResult
from plait.table import Table

IDS = ["copy-relrnn-a020a59bbe", "minigrid-rellstm-0123456789", "depthwidth-transformer-fedcba9876"]
RUNS = Table(
    ["id", "task", "model", "updates", "best score", "status"],
    [[name, "copy delay 100", "rellstm", 3000, "100.0%", "complete"] for name in IDS],
    title="[bold]runs[/bold]",
    notes=["a note that is long enough to need more than one line of a narrow terminal, as notes often are"],
)


@pytest.mark.parametrize("width", [36, 50, 80, 100, 120, 200])
def test_no_id_is_split_and_no_line_is_wider_than_the_terminal(width, capsys):
    draw_table(RUNS, width)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for name in (*IDS, "copy delay 100", "complete", "100.0%"):
        assert any(name in line for line in lines), name


def test_a_narrow_terminal_gets_a_row_as_a_block(capsys):
    draw_table(RUNS, 60)
    said = capsys.readouterr().out
    assert "┃" not in said
    assert f"{IDS[0]}\n  task        copy delay 100\n" in said


def test_long_texts_are_wrapped_at_spaces_and_names_are_not(capsys):
    words = "torch's CUDA build must be installed on a machine with an NVIDIA GPU, where there is one"
    draw_table(Table(["what", "remedy"], [["Penn Treebank", words]]), 60)
    lines = capsys.readouterr().out.splitlines()
    assert any("│ Penn Treebank │" in line for line in lines)
    column = " ".join(line.split("│")[2].strip() for line in lines if line.startswith("│"))
    assert " ".join(column.split()) == words


def test_brackets_are_text_and_not_markup(capsys):
    draw_table(Table(["extra", "[dim]"], [["envpool", "pip install 'plait[envpool]'"]], "[red]"), 80)
    said = capsys.readouterr().out
    assert "pip install 'plait[envpool]'" in said
    assert "[red]" in said
    assert "[dim]" in said


def test_words_longer_than_a_line_stay_whole():
    text = "see /a/very/long/path/that/does/not/fit/into/a/line/at/all.html for more"
    assert wrapped(text, 30).split() == text.split()
    assert wrapped("short", 30) == "short"


def test_on_a_terminal_parts_are_drawn_and_in_a_pipe_they_are_lines(capsys, monkeypatch):
    long = "a sentence of words that go on and on until they are wider than the terminal they are printed on"
    result = CommandResult({}, (long, RUNS))
    cli._print(result, as_json=False)
    piped = capsys.readouterr().out
    assert piped == f"{long}\n{RUNS.text()}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")  # no escapes to count
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((60, 24)))
    cli._print(result, as_json=False)
    drawn = capsys.readouterr().out
    assert max(map(len, drawn.splitlines())) <= 60
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert cli.main(["runs", "a-folder-with-a-name-that-stays-in-one-piece"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert max(map(len, told)) < 60
    assert any("a-folder-with-a-name-that-stays-in-one-piece" in line for line in told)
    assert drawn.split()[:20] == long.split()[:20]


def test_the_smallest_wish_for_width_is_served_first():
    """The second text fits on one line; the first is wrapped, and takes what is left."""
    cells = ["one word " * 20, "a text a bit longer than a name"]
    assert column_widths(Table(["long", "short"], [cells]), 90) == [52, 31]
    assert column_widths(Table(["short", "long"], [cells[::-1]]), 90) == [31, 52]


def test_columns_are_drawn_in_these_widths(capsys):
    """A name keeps its line, where rich would shrink both columns alike."""
    table = Table(["name", "text"], [["copy delay 100, a long name", "one word " * 20]])
    draw_table(table, 56)
    rule = capsys.readouterr().out.splitlines()[0]
    assert [len(part) - 2 for part in rule[1:-1].split("┳")] == column_widths(table, 56) == [27, 22]
