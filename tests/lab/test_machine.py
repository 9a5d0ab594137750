"""The command that a table was made by, as one would type it."""

import sys

import pytest

from plait.lab.machine import _command


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/x/bin/plait", "plait layers --quick"),
        ("/x/plait/__main__.py", "python -m plait layers --quick"),
    ],
)
def test_the_command_is_the_one_that_was_typed(monkeypatch, program, expected):
    monkeypatch.setattr(sys, "argv", [program, "layers", "--quick"])
    assert _command() == expected
