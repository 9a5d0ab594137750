"""Text as streams: what follows what, what is predicted, and how often."""

import math
from pathlib import Path

import pytest
import torch

from plait.errors import ConfigError, DataError, UnknownNameError
from plait.lab.tasks import IGNORE, PennTreebank, TextTask

GENERATOR = torch.Generator().manual_seed(0)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def book(tmp_path):
    """403 characters to train, 53 to validate, 31 to test; no two places look alike for long."""
    draw = torch.Generator().manual_seed(1)
    files = []
    for name, size in (("train", 402), ("valid", 52), ("test", 30)):
        places = torch.randint(26, (size,), generator=draw).tolist()
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(LETTERS[place] for place in places))
        files.append(str(path))
    return tuple(files)


def words(task, tokens):
    return "".join(task.characters()[place] for place in tokens)


def test_rows_are_streams_that_go_on_from_batch_to_batch(book):
    task = TextTask(text=book, span=20)
    text = Path(book[0]).read_text() + "\n"
    assert task.batches_per_epoch(4) == 5  # 402 predictions, 100 a stream
    batches = [task.batch(4, GENERATOR, index=index) for index in range(6)]
    for row in range(4):
        inputs = "".join(words(task, batch.inputs[:, row].tolist()) for batch in batches[:5])
        targets = "".join(words(task, batch.targets[:, row].tolist()) for batch in batches[:5])
        assert inputs == text[100 * row : 100 * row + 100]
        assert targets == text[100 * row + 1 : 100 * row + 101]
    assert torch.equal(batches[5].inputs, batches[0].inputs)


@pytest.mark.parametrize(("part", "count"), [("validation", 52), ("test", 30)])
def test_every_held_out_character_but_the_first_is_predicted_once(book, part, count):
    task = TextTask(text=book, span=4)
    one = {**task.held_out(), **task.tested_on()}[part]
    text = Path(book[1 if part == "validation" else 2]).read_text() + "\n"
    batches = list(one.sweep(None, 7, lambda _: GENERATOR))
    inputs, targets = (torch.cat([b[i] for b in batches]).t().flatten() for i in (0, 1))
    kept = targets != IGNORE
    assert int(kept.sum()) == count == len(text) - 1
    assert words(task, inputs[kept].tolist()) == text[:-1]
    assert words(task, targets[kept].tolist()) == text[1:]
    assert sum(int(one.weight(batch.targets)) for batch in batches) == count


def test_a_look_can_be_shorter(book):
    task = TextTask(text=book, span=2).held_out()["validation"]
    assert len(list(task.sweep(None, 5, lambda _: GENERATOR))) == 3
    assert len(list(task.sweep(20, 5, lambda _: GENERATOR))) == 2
    assert len(list(task.sweep(1, 5, lambda _: GENERATOR))) == 1


def test_bits_per_character(book):
    assert TextTask(text=book).figures(math.log(2) * 1.5, 52) == {"bits_per_character": 1.5, "predicted": 52}


def test_carrying_the_memory_is_an_option(book):
    assert TextTask(text=book).carried == "mixed"
    assert TextTask(text=book, begin_with="h").carried == "hidden"
    assert TextTask(text=book, memory_across_spans=True).carried == "all"
    with pytest.raises(UnknownNameError, match="begin_with 'x'"):
        TextTask(text=book, begin_with="x")


def test_a_task_is_made_again_from_its_options(book):
    task = TextTask(text=book, span=20)
    assert task.options()["symbols"] == "\n" + LETTERS
    again = TextTask(**task.options())
    assert again == task
    assert again.encode("to be".replace(" ", "")) == [LETTERS.index(c) + 1 for c in "tobe"]
    assert [again.decode(place) for place in (0, 1)] == ["\n", "a"]


def test_mistakes(book, tmp_path):
    task = TextTask(text=book, span=20)
    with pytest.raises(DataError, match=r"over 800 characters \(batch size × span\), got 403; lower --span"):
        task.batches_per_epoch(40)
    with pytest.raises(DataError, match="not in the vocabulary: '!', '_'"):
        task.encode("oh no!")
    with pytest.raises(ConfigError, match="expected --text FILE"):
        _ = TextTask().num_classes
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty.txt is empty"):
        TextTask(text=(str(tmp_path / "empty.txt"),))
    (tmp_path / "a.txt").write_text("a" * 9)  # 10 characters, 9 : 0 : 1
    with pytest.raises(DataError, match="the part to valid has no character to predict"):
        TextTask(text=(str(tmp_path / "a.txt"),)).prepare()
    with open(book[0], "a") as file:
        file.write("abc")
    with pytest.raises(DataError, match="it was changed since"):
        task.prepare()
    with open(book[0], "a") as file:
        file.write("Z")
    with pytest.raises(DataError, match="not in the vocabulary: 'Z'"):
        task.prepare()


def test_missing_treebank_is_reported_before_training(nowhere):
    assert PennTreebank().num_classes == 50  # what a run is does not need the data
    with pytest.raises(DataError, match=r"no ptb.train.txt"):
        PennTreebank().prepare()


@pytest.mark.data
def test_penn_treebank(treebank):
    task = PennTreebank()
    task.prepare()
    for part, count in task.counts.items():
        assert len(PennTreebank(part=part)._tokens("cpu")) == count
    predicted = sum(
        int(b.targets.ne(IGNORE).sum()) for b in task.held_out()["validation"].sweep(None, 1, None)
    )
    assert predicted == 393_041
    assert task.batch(128, GENERATOR, index=260).inputs.shape == (150, 128)
    assert set(task._tokens("cpu").tolist()) == set(range(50))
