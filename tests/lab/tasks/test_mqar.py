"""Multi-query associative recall against its definition, row by row."""

import pytest
import torch

from plait.errors import ConfigError
from plait.lab.tasks import IGNORE, MultiQueryRecallTask, task_named


@pytest.mark.parametrize(("length", "pairs"), [(64, 4), (128, 8), (256, 16), (16, 4)])
def test_every_key_is_queried_once(length, pairs):
    task = MultiQueryRecallTask(length, pairs)
    inputs, targets, *_ = task.batch(32, torch.Generator().manual_seed(1))
    assert inputs.shape == targets.shape == (length, 32)
    keys, values = inputs[: 2 * pairs : 2], inputs[1 : 2 * pairs : 2]
    assert keys.min() >= 1
    assert keys.max() < 4096 <= values.min()
    assert values.max() < 8192
    for row in range(32):
        known = dict(zip(keys[:, row].tolist(), values[:, row].tolist(), strict=True))
        assert len(known) == len(set(known.values())) == pairs
        asked = (targets[:, row] != IGNORE).nonzero().flatten()
        assert len(asked) == pairs
        assert asked.min() >= 2 * pairs
        assert ((asked - 2 * pairs) % 2 == 0).all()
        assert {key: known[key] for key in inputs[asked, row].tolist()} == known
        assert targets[asked, row].tolist() == [known[key] for key in inputs[asked, row].tolist()]


def test_an_answer_may_be_due_later():
    """The same pairs and queries, each answer so many steps after its key."""
    inputs, targets, *_ = MultiQueryRecallTask(16, 2, after=3).batch(32, torch.Generator().manual_seed(1))
    assert inputs.shape == targets.shape == (19, 32)
    for row in range(32):
        known = dict(zip(inputs[:4:2, row].tolist(), inputs[1:4:2, row].tolist(), strict=True))
        due = (targets[:, row] != IGNORE).nonzero().flatten()
        assert targets[due, row].tolist() == [known[key] for key in inputs[due - 3, row].tolist()]
    assert "after" not in MultiQueryRecallTask().options()
    assert "answered 3 steps later" in MultiQueryRecallTask(16, 2, after=3).show(width=200)


def test_the_pairs_may_come_after_any_symbols():
    """So that keeping what comes first answers nothing."""
    task = MultiQueryRecallTask(16, 2, after=3, lead_in=40)
    inputs, targets, *_ = task.batch(32, torch.Generator().manual_seed(1))
    assert inputs.shape == targets.shape == (59, 32)
    assert inputs[:40].unique().numel() > 900, "of 1,280 drawn from 8,192"
    assert (targets[:44] == IGNORE).all()
    for row in range(32):
        known = dict(zip(inputs[40:44:2, row].tolist(), inputs[41:44:2, row].tolist(), strict=True))
        due = (targets[:, row] != IGNORE).nonzero().flatten()
        assert targets[due, row].tolist() == [known[key] for key in inputs[due - 3, row].tolist()]
        assert len(due) == len(known) == 2
    assert "lead_in" not in MultiQueryRecallTask().options()
    assert task.show(width=200).startswith("steps 41 to 44: ")
    plain, led = (MultiQueryRecallTask(16, 2, lead_in=n) for n in (0, 40))
    assert plain.show() != led.show()


def test_queries_thin_out_by_the_published_law():
    """Of one pair, so that a place is drawn once: within five standard deviations of (g + 1)^-0.99."""
    task = MultiQueryRecallTask(34, 1, vocab=64)
    _, targets, *_ = task.batch(40_000, torch.Generator().manual_seed(2))
    found = (targets != IGNORE).sum(1).double()[2::2]
    law = torch.arange(1, 17).double() ** -0.99
    expected = 40_000 * law / law.sum()
    assert ((found - expected).abs() < 5 * expected.sqrt()).all()


def test_what_fills_the_rest_is_any_symbol():
    inputs, targets, *_ = MultiQueryRecallTask(64, 4, vocab=66).batch(500, torch.Generator().manual_seed(3))
    rest = inputs[8:][targets[8:] == IGNORE]
    assert rest.unique().tolist() == list(range(66))


def test_what_does_not_fit_is_named():
    for wrong, message in (
        ({"length": 63}, "length: expected an even number"),
        ({"length": 64, "pairs": 17}, r"at least 4 · pairs = 68, got 64"),
        ({"vocab": 64}, "vocab: expected an even number above length 64"),
        ({"vocab": 8191}, "vocab: expected an even number"),
        ({"pairs": 0}, "pairs: expected at least 1"),
        ({"after": -1}, "after: expected at least 0"),
        ({"lead_in": -1}, "lead_in: expected at least 0"),
        ({"embedding": 1.5}, "embedding: expected a whole number"),
    ):
        with pytest.raises(ConfigError, match=message):
            MultiQueryRecallTask(**wrong)


def test_it_is_embedded_as_a_language_and_described():
    task = MultiQueryRecallTask(16, 2, 32, 5)
    assert (task.input_size, task.vocabulary, task.num_classes) == (5, 32, 32)
    assert task_named("mqar", **task.options()) == task
    assert (
        task.batch(3, torch.Generator().manual_seed(0)).inputs.tolist()
        == task.batch(3, torch.Generator().manual_seed(0)).inputs.tolist()
    )
    assert "asked: step" in task.show(width=60)
