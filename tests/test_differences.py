"""docs/differences.md and the proofs: every statement names a test, and the test is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows(page):
    """Rows of tables whose last but one or last column is called test."""
    inside = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            inside = False
        elif "test" in cells:
            inside = True
        elif inside and set(cells[0]) - set("-"):
            yield line


PAGES = [ROOT / "docs/differences.md", *sorted((ROOT / "docs/theory").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_statement_names_a_test_that_exists(page):
    found = list(rows(page))
    assert len(found) >= 5
    for row in found:
        named = NAMED.findall(row)
        assert named, f"no test in: {row[:100]}"
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
                f"{path}::{name}"
            )
