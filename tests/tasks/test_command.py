"""`plait tasks` and `plait tasks show`, as a person types them."""

from __future__ import annotations

import json

from plait.cli import main


def test_show_draws_the_rows(capsys):
    assert main(["tasks", "show", "copy", "--delay", "20"]) == 0
    text = capsys.readouterr().out
    rows = {line.split()[0]: line[8:] for line in text.splitlines() if line.startswith(("input", "target"))}
    symbols = rows["input"][:10]
    assert set(symbols) <= set("12345678")
    assert rows["input"] == symbols + "·" * 19 + "▮" + "·" * 10
    assert rows["target"] == "·" * 30 + symbols
    assert "0.51986" in text


def test_long_rows_are_wrapped(capsys):
    assert main(["tasks", "show", "denoise", "--delay", "300", "--width", "80"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert max(map(len, lines)) <= 88
    assert sum(line.count("▮") for line in lines) == 1


def test_list_and_json(capsys):
    assert main(["tasks", "--json"]) == 0
    assert [row["task"] for row in json.loads(capsys.readouterr().out)] == ["copy", "transfer", "denoise"]
    assert main(["tasks", "show", "transfer", "--delay", "5", "--test-delays", "7", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_delays"] == [7, 9]


def test_mistakes_are_one_line(capsys):
    for arguments, words in [
        (["tasks", "show", "cpy"], "did you mean 'copy'"),
        (["tasks", "show", "copy", "--delay", "0"], "delay: expected at least 1, got 0"),
        (["tasks", "show", "denoise", "--test-delays", "3"], "unknown option of denoise"),
        (["tasks", "show"], "TASK"),
        (["task"], "did you mean 'tasks'"),
    ]:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
