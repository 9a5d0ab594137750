"""Recall against its definition, row by row."""

import pytest
import torch

from plait.errors import ConfigError
from plait.lab.tasks import RecallTask, task_named


def draw(task, batch_size=64, seed=0):
    batch = task.batch(batch_size, torch.Generator().manual_seed(seed))
    assert (batch.inputs.sum(-1) == 1).all()
    assert batch.targets.shape == (1, batch_size)
    return batch.inputs.argmax(-1), batch.targets[0]


@pytest.mark.parametrize("at", [None, 1, 7, 29])
def test_one_symbol_among_blanks(at):
    tokens, targets = draw(RecallTask(30, at))
    assert (tokens[-1] == 9).all()
    shown = tokens[:-1]
    assert ((shown > 0).sum(0) == 1).all()
    assert torch.equal(shown.sum(0), targets)
    places = shown.argmax(0) + 1
    assert set(targets.tolist()) == set(range(1, 9))
    if at is not None:
        assert (places == at).all()


def test_the_step_is_uniform_before_the_last():
    tokens, _ = draw(RecallTask(21), batch_size=40_000)
    counts = (tokens[:-1] > 0).sum(1).double()
    assert (counts - 2000).abs().max() < 5 * 2000**0.5


def test_what_does_not_fit_is_named():
    for wrong, message in (
        ({"length": 1}, "length: expected at least 2"),
        ({"at": 0}, "at: expected at least 1"),
        ({"length": 20, "at": 20}, "at: expected a step before the last, 20, got 20"),
        ({"at": 2.5}, "at: expected a whole number"),
    ):
        with pytest.raises(ConfigError, match=message):
            RecallTask(**wrong)


def test_it_can_be_seen_and_described():
    task = RecallTask(12, 3)
    step, row, target = task.show().splitlines()
    assert step.startswith("step")
    assert row.endswith("▮")
    assert row[8 + 2] == target[-1]
    assert task_named("recall", **task.options()) == task
    assert task_named("recall", **RecallTask().options()) == RecallTask()
