"""Text as characters: the spelling, the three parts, and the counts of Penn Treebank."""

import gzip

import numpy as np
import pytest

from plait.errors import ConfigError, DataError
from plait.lab.tasks.text import EOS, find_treebank, read_text, spell


def back(text, part):
    return "".join("\n" if text.symbols[i] == EOS else text.symbols[i] for i in part)


def test_round_trip_of_three_files_plain_and_packed(tmp_path):
    lines = {"train": " the <unk> cat \n sat\n", "valid": "on é\n", "test": "the mat\n"}
    for name in ("train", "valid"):
        (tmp_path / f"{name}.txt").write_text(lines[name], encoding="utf-8")
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress(lines["test"].encode()))
    text = read_text([tmp_path / "train.txt", tmp_path / "valid.txt", tmp_path / "test.txt.gz"])
    assert back(text, text.train) == "the_<unk>_cat\nsat\n"
    assert back(text, text.valid) == "on_é\n"  # a symbol of the held-out part alone has its place
    assert back(text, text.test) == "the_mat\n"
    assert EOS in text.symbols
    assert (
        len(text.symbols)
        == len(set(text.symbols))
        == int(max(map(np.max, (text.train, text.valid, text.test)))) + 1
    )


def test_one_file_is_cut_in_three(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("abcdefghij" * 100)
    text = read_text([path])
    assert [len(part) for part in (text.train, text.valid, text.test)] == [900, 50, 51]
    assert back(text, np.concatenate([text.train, text.valid, text.test])) == spell(path.read_text())


def test_fingerprint_follows_the_text(tmp_path):
    path = tmp_path / "book.txt"
    prints = []
    for content in ("abc" * 50, "abc" * 50, "acb" * 50, "abd" * 50):
        path.write_text(content)
        prints.append(read_text([path]).fingerprint["sha256"])
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_errors_say_what_is_wrong(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*absent"):
        read_text([tmp_path / "absent.txt"])
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"holds no text"):
        read_text([tmp_path / "blank.txt"])
    (tmp_path / "picture.txt").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(DataError, match=r"not text in UTF-8"):
        read_text([tmp_path / "picture.txt"])
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"a few words")[:-6])
    with pytest.raises(DataError, match=r"cannot read .*broken"):
        read_text([tmp_path / "broken.gz"])
    with pytest.raises(ConfigError, match=r"one file, or three .* got 2"):
        read_text([tmp_path / "blank.txt"] * 2)


def test_missing_treebank_says_where_it_looked(nowhere, monkeypatch):
    with pytest.raises(DataError, match=r"no ptb.train.txt: looked in .*cache.*ptb, .*--data DIR"):
        find_treebank()


def test_a_text_with_characters_that_are_not_in_the_vocabulary(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("abc" * 50)
    assert len(read_text([path], "\nabcd").symbols) == 5
    with pytest.raises(DataError, match=r"not in the vocabulary: 'b', 'c'; it has '\\nax'"):
        read_text([path], "\nax")


@pytest.mark.data
def test_penn_treebank_has_the_published_counts(treebank):
    text = read_text(find_treebank())
    assert [len(part) for part in (text.train, text.valid, text.test)] == [5_017_482, 393_042, 442_423]
    assert len(text.symbols) == 50
    assert "<unk>" in back(text, text.train[:2000])
    assert " " not in text.symbols
