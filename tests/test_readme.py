"""What README and docs show is true: Python blocks run, commands exist and take the options shown."""

import contextlib
import functools
import io
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from plait.errors import PlaitError
from plait.lab.cli import _split, main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in FENCE.findall(page.read_text()) if name == language]


def commands(page: Path) -> list[str]:
    """Lines of code that begin with `plait`, and `plait …` inside the text; without a shell's comments."""
    text = page.read_text()
    fenced = "\n".join(code for name, code in FENCE.findall(text) if name != "python")
    found = re.findall(r"^(?:\$ )?(plait [^\n#]+)", fenced, re.MULTILINE)
    found += re.findall(r"`(plait [^`…]+?)`", " ".join(FENCE.sub("", text).split()))
    return sorted({command.strip() for command in found})


COMMANDS_SHOWN = [(page.name, command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of a page run in one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{page.name}, Python block {number}", "exec"), names)


@functools.cache
def options_of(name: str) -> set[str]:
    """What a command's help names; once for each command, since pages show it many times."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([*name.split(), "--help"]) == 0
    return set(re.findall(r"--?[a-z][a-z-]*", said.getvalue())) | {"--json", "--debug", "--help"}


def mistakes_in(command: str) -> list[str]:
    """Return why a command that a page shows would be refused."""
    words = shlex.split(command)[1:]
    if words[0] in ("--help", "--version"):
        return [] if main(words) == 0 else [command]
    try:
        name, rest = _split(words)
    except PlaitError as error:
        return [f"{command}: {error}"]
    shown = options_of(name)
    options = [word for word in rest if re.match(r"--?[a-z]", word)]
    return [f"plait {name} has no option {word}" for word in options if word not in shown]


def test_commands_exist_and_take_what_is_shown():
    mistakes = [f"{page}: {text}" for page, command in COMMANDS_SHOWN for text in mistakes_in(command)]
    assert not mistakes, "\n".join(mistakes)


def test_a_command_that_does_not_exist_is_seen():
    assert mistakes_in("plait trane copy")
    assert mistakes_in("plait train copy --modle rellstm")


def test_the_pages_show_commands():
    assert len(COMMANDS_SHOWN) > 10
    assert {"demo", "train", "gradients"} <= {command.split()[1] for _, command in COMMANDS_SHOWN}


def test_links_and_pictures_lead_somewhere():
    targets = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", FENCE.sub("", page.read_text()))
    ]
    assert len(targets) > 100
    assert not [
        f"{page.name}: {target}"
        for page, target in targets
        if not target.startswith("https://") and not (page.parent / target).exists()
    ]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 600


def test_the_page_of_results_has_every_cell():
    """No cell is empty, and one of a run that was stopped or diverged says so in words."""
    text = (ROOT / "docs" / "results.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20
    assert not [row for row in rows if "…" in row or "†" in row or "|  |" in row]


def test_four_readers_find_their_way():
    for reader in ("I train models", "I train agents", "I size Transformers", "I do theory"):
        assert f"**{reader}" in (ROOT / "docs" / "start.md").read_text()


def test_the_first_screen_of_the_readme():
    """One sentence, one picture, at most eight lines of code, and no line to scroll sideways for."""
    text = (ROOT / "README.md").read_text()
    sentence = re.search(r"^\*\*(.+?)\*\*$", text, re.MULTILINE)[1]
    assert len(sentence.split()) <= 15
    assert len(re.findall(r"!\[", text)) == 1
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 8
    fenced = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    assert max(map(len, fenced)) <= 110
    assert not re.search(r"\b[0-9a-f]{7,40}\b", text), "no commit hashes"


def test_the_start_lists_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "docs" / "start.md").read_text()
    assert not [name for name in extras if f"`{name}`" not in text]
    assert "pip install 'plait[lab,explore] @ git+URL'" in text


def test_percentages_are_written_one_way():
    """As tables and sentences of the program have them: 99%. The notes of the kernels are a log."""
    pages = [page for page in (*PAGES, ROOT / "CHANGELOG.md") if page.parent.name != "notes"]
    found = [f"{page.name}: {part}" for page in pages for part in re.findall(r".{20}\d %", page.read_text())]
    assert not found


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    assert not [
        name
        for page in (ROOT / "docs").rglob("*.md")
        if f"({(name := page.relative_to(ROOT / 'docs').as_posix())})" not in index + "(index.md)"
    ]


def test_every_test_that_a_page_names_exists():
    named = {
        found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text())
    }
    assert len(named) > 20
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text() or not function, f"{file}::{function}"


def test_no_block_is_left_without_a_language():
    """An unmarked block is neither run nor checked by a reader's eye; say `text`, `console` or `python`."""
    for page in PAGES:
        assert all(name for name, _ in FENCE.findall(page.read_text())), page.name
