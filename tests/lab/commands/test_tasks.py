"""`plait tasks` and `plait tasks show`, as a person types them."""

from __future__ import annotations

import json

from plait.lab.cli import main


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
    names = [row["task"] for row in json.loads(capsys.readouterr().out)]
    wanted = "copy transfer denoise recall mqar smnist pmnist ptb text csv data"
    assert names == wanted.split()
    assert main(["tasks", "show", "transfer", "--delay", "5", "--test-delays", "7", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_delays"] == [7, 9]


def test_a_text_is_shown_as_it_is_read(capsys, tmp_path):
    (tmp_path / "book.txt").write_text("to be or not\n" * 50)
    assert main(["tasks", "show", "text", "--text", str(tmp_path / "book.txt"), "--width", "30"]) == 0
    text = capsys.readouterr().out
    rows = {line.split()[0]: line[8:] for line in text.splitlines() if line.startswith(("input", "target"))}
    assert rows["input"][1:] == rows["target"][:-1]
    assert rows["input"] in "to_be_or_not¶" * 50
    assert "8 symbols" in text


def test_an_image_is_shown_with_its_class(capsys, digits):
    assert main(["tasks", "show", "pmnist", "--images", str(digits.folder), "--group", "4"]) == 0
    text = capsys.readouterr().out
    assert "6 steps of 4 pixels, in the published random order; asked: " in text


def test_mistakes_are_one_line(capsys, nowhere):
    for arguments, words in [
        (["tasks", "show", "cpy"], "did you mean 'copy'"),
        (["tasks", "show", "copy", "--delay", "0"], "delay: expected at least 1, got 0"),
        (["tasks", "show", "copy", "--test-delays", "3"], "unknown option of copy"),
        (["tasks", "show"], "TASK"),
        (["task"], "did you mean 'tasks'"),
        (["tasks", "show", "text"], "expected --text FILE"),
        (["tasks", "show", "ptb"], "set PLAIT_DATA, or pass --data DIR"),
        (["tasks", "show", "pmnist", "--group", "5"], "group: expected a divisor of 784 pixels, got 5"),
    ]:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
