"""Copy, transfer copy and denoise against their definition, row by row."""

from __future__ import annotations

import math
import time

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError, UnknownNameError
from plait.lab.tasks import (
    IGNORE,
    TASKS,
    Batch,
    CopyTask,
    DenoiseTask,
    TransferCopyTask,
    accuracy,
    task_named,
)


def draw(task, batch_size=7, seed=0):
    batch = task.batch(batch_size, torch.Generator().manual_seed(seed))
    assert ((batch.inputs == 0) | (batch.inputs == 1)).all()
    assert (batch.inputs.sum(-1) == 1).all()
    return batch.inputs.argmax(-1), batch.targets


@given(delay=st.integers(1, 40), seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_copy_rows(delay, seed):
    tokens, targets = draw(CopyTask(delay), seed=seed)
    assert tokens.shape == targets.shape == (delay + 20, 7)
    symbols = tokens[:10]
    assert symbols.min() >= 1
    assert symbols.max() <= 8
    assert (tokens[10 : delay + 9] == 0).all()
    assert (tokens[delay + 9] == 9).all()  # step T + 10, counted from 1
    assert (tokens[delay + 10 :] == 0).all()
    assert (targets[: delay + 10] == 0).all()
    assert torch.equal(targets[delay + 10 :], symbols)


@given(delay=st.integers(1, 40), lead_in=st.integers(0, 30), seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_copy_after_a_lead_in_is_copy_after_blanks(delay, lead_in, seed):
    task = CopyTask(delay, lead_in=lead_in)
    tokens, targets = draw(task, seed=seed)
    usual, asked = draw(CopyTask(delay), seed=seed)
    assert len(tokens) == task.length == lead_in + delay + 20
    assert not tokens[:lead_in].any()
    assert not targets[:lead_in].any()
    assert torch.equal(tokens[lead_in:], usual)
    assert torch.equal(targets[lead_in:], asked)
    assert task.chance_loss == pytest.approx(10 * math.log(8) / task.length)


def test_denoise_is_scored_at_other_delays_where_they_are_named():
    task = DenoiseTask(20, test_delays=[30, 40])
    assert [one.length for one in task.held_out().values()] == [40, 50, 60]
    assert task_named(**{"name": "denoise", **task.options()}) == task
    assert (list(DenoiseTask(20).held_out()), DenoiseTask(20).options()) == (["denoise"], {"delay": 20})


def test_held_out_sequences_have_the_lead_in():
    task = TransferCopyTask(20, (30, 40), lead_in=7)
    assert [one.length for one in task.held_out().values()] == [47, 57, 67]
    assert task.options() == {"delay": 20, "lead_in": 7, "test_delays": [30, 40]}
    assert TransferCopyTask(20, (30, 40)).options() == {"delay": 20, "test_delays": [30, 40]}
    assert task_named(**{"name": "transfer", **task.options()}) == task
    for wrong in (-1, 2.5, True):
        with pytest.raises(ConfigError, match="lead_in: expected"):
            CopyTask(20, lead_in=wrong)
    with pytest.raises(UnknownNameError, match="unknown option of denoise 'lead_in'"):
        task_named("denoise", lead_in=3)


@pytest.mark.parametrize("kind", [CopyTask, DenoiseTask, TransferCopyTask])
def test_batches_of_several_delays_are_those_of_each(kind):
    task = kind(50, shortest_delay=6)
    assert task.delays == (6, 12, 24, 48, 50)
    found: dict[int, int] = {}
    for seed in range(200):
        batch = task.batch(3, torch.Generator().manual_seed(seed))
        generator = torch.Generator().manual_seed(seed)
        torch.randint(5, (), generator=generator)  # which delay
        delay = len(batch.inputs) - 20
        alone = kind(delay).batch(3, generator)
        assert torch.equal(batch.inputs, alone.inputs)
        assert torch.equal(batch.targets, alone.targets)
        found[delay] = found.get(delay, 0) + 1
    assert found.keys() == set(task.delays)
    assert min(found.values()) > 20, "equally often"
    assert next(one.delays for one in task.held_out().values()) == (50,), "it is scored at its delay"
    assert task_named(**{"name": task.name, **task.options()}) == task
    assert "shortest_delay" not in kind(50).options()


def test_a_shortest_delay_of_one_delay():
    assert CopyTask(50).delays == CopyTask(50, shortest_delay=50).delays == (50,)
    assert CopyTask(64, shortest_delay=16).delays == (16, 32, 64)
    for wrong in (-1, 2.5, True, 51):
        with pytest.raises(ConfigError, match="shortest_delay: expected"):
            CopyTask(50, shortest_delay=wrong)


@given(delay=st.integers(1, 40), seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_denoise_rows(delay, seed):
    tokens, targets = draw(DenoiseTask(delay), seed=seed)
    assert (tokens[delay + 9] == 10).all()
    assert (tokens[delay + 10 :] == 0).all()
    assert not (tokens == 9).any()
    assert (targets[: delay + 10] == 0).all()
    for row in range(7):
        shown = tokens[: delay + 9, row]
        assert shown[shown > 0].tolist() == targets[delay + 10 :, row].tolist()
        assert ((shown > 0).sum(), shown.max() <= 8) == (10, True)


def test_symbols_and_places_are_uniform():
    """Every symbol and every place as often as chance says, within five standard deviations."""
    tokens, _ = draw(DenoiseTask(21), batch_size=20_000)
    shown = tokens[:30]
    symbols = torch.bincount(shown[shown > 0], minlength=9)[1:].double()
    assert (symbols - 25_000).abs().max() < 5 * math.sqrt(200_000 / 8 * 7 / 8)
    places = (shown > 0).sum(1).double()
    assert (places - 20_000 / 3).abs().max() < 5 * math.sqrt(20_000 / 3 * 2 / 3)


@pytest.mark.parametrize(
    "name", [n for n in TASKS if n not in ("ptb", "data")] + [pytest.param("ptb", marks=pytest.mark.data)]
)
def test_contract(name, request, digits, tmp_path):
    """What the trainer relies on, for every task in the table."""
    (tmp_path / "book.txt").write_text("to be or not to be, that is the question: whether\n" * 40)
    options = {
        "smnist": {"images": str(digits.folder)},
        "pmnist": {"images": str(digits.folder), "group": 4},
        "text": {"text": (str(tmp_path / "book.txt"),), "span": 20},
        "csv": {"file": str(tmp_path / "table.csv"), "target": "y", "sequence": "who"},
    }
    rows = (f"{who},{who % 7},{who * step},{'ab'[who % 2]}\n" for who in range(30) for step in range(4))
    (tmp_path / "table.csv").write_text("who,u,v,y\n" + "".join(rows))
    if name == "ptb":
        request.getfixturevalue("treebank")
    task = task_named(name, **options.get(name, {}))
    task.prepare()
    before = torch.random.get_rng_state()
    one = task.batch(5, torch.Generator().manual_seed(3))
    two = task.batch(5, torch.Generator().manual_seed(3))
    other = task.batch(5, torch.Generator().manual_seed(4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.targets, two.targets)
    assert task.carries_state == torch.equal(one.inputs, other.inputs)
    assert one.targets.dtype == torch.int64
    assert one.targets.shape[0] == (1 if task.reads == "last" else len(one.inputs))
    assert one.targets.max() < task.num_classes
    if task.vocabulary is None:
        assert one.inputs.shape[2] == task.input_size
    else:
        assert one.inputs.max() < task.vocabulary
    perfect = 50.0 * torch.nn.functional.one_hot(one.targets.clamp_min(0), task.num_classes)
    assert task.score(perfect, one.targets) == 1
    assert task.loss(perfect, one.targets) < 1e-6
    assert task_named(name, **task.options()) == task
    assert len(task.plain_inputs(one.inputs[:, 0])) == len(one.inputs)
    assert "target" in task.show() or "asked" in task.show()
    assert all(held.input_size == task.input_size for held in task.held_out().values())
    for held in (*task.held_out().values(), *task.tested_on().values()):
        assert list(held.sweep(6, 4, lambda _: torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("delay", "loss"), [(100, 0.17329), (300, 0.06498), (1000, 0.02039), (2000, 0.01029)]
)
def test_loss_without_memory(delay, loss):
    task = CopyTask(delay)
    assert round(task.chance_loss, 5) == loss
    _, targets = draw(task)
    logits = torch.full((delay + 20, 7, 9), -1e4)
    logits[:-10, :, 0] = 0
    logits[-10:, :, 1:] = 0
    assert round(task.loss(logits, targets).item(), 5) == loss


def test_loss_and_probe_loss_are_sums_over_steps_divided_by_the_length():
    task, generator = CopyTask(6), torch.Generator().manual_seed(1)
    _, targets = draw(task)
    logits = torch.randn(26, 7, 9, generator=generator)
    steps = torch.stack([cross_entropy(logits[t], targets[t]) for t in range(26)])
    torch.testing.assert_close(task.loss(logits, targets), steps.sum() / 26)
    torch.testing.assert_close(task.probe_loss(logits, targets), steps[-10:].sum() / 26)


def test_score_looks_at_the_last_ten_steps_only():
    task = CopyTask(4)
    _, targets = draw(task)
    logits = torch.zeros(24, 7, 9)
    logits[-10:].scatter_(2, targets[-10:].unsqueeze(2), 1.0)
    logits[:-10, :, 3] = 1.0
    assert task.score(logits, targets) == 1
    logits[-1] = 0
    torch.testing.assert_close(task.score(logits, targets), torch.tensor(0.9))


def test_ignored_targets_count_for_nothing():
    task = CopyTask(4)
    _, targets = draw(task)
    logits = torch.randn(24, 7, 9, generator=torch.Generator().manual_seed(0))
    masked = targets.clone()
    masked[:, 3:] = IGNORE
    torch.testing.assert_close(task.loss(logits, masked), task.loss(logits[:, :3], targets[:, :3]))
    torch.testing.assert_close(accuracy(logits, masked), accuracy(logits[:, :3], targets[:, :3]))


def test_rows_of_a_batch_keep_reset():
    reset = torch.arange(6).view(3, 2) > 2
    batch = Batch(torch.zeros(3, 2, 1), torch.zeros(3, 2, dtype=torch.int64), reset)
    assert batch.rows(1, 2).reset.tolist() == [[False], [True], [True]]


def test_transfer_is_scored_at_every_delay():
    task = TransferCopyTask(3, [5, 9])
    assert [held.delay for held in task.held_out().values()] == [3, 5, 9]
    assert task.batch(2, torch.Generator()).inputs.shape[0] == 23


@pytest.mark.parametrize("task", [CopyTask(2000), DenoiseTask(2000)], ids=["copy", "denoise"])
def test_a_hundred_long_sequences_take_milliseconds(task):
    generator = torch.Generator().manual_seed(0)
    times = []
    for _ in range(5):
        began = time.process_time()  # of this process, whatever else runs on its core
        task.batch(100, generator)
        times.append(time.process_time() - began)
    # Medians of 1.5 and 2.6 ms on one core of an x86-64 server; a loop over 200,000 steps cannot do it.
    assert min(times) < 0.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CopyTask(0), "delay: expected at least 1, got 0"),
        (lambda: CopyTask(-3), "delay: expected at least 1, got -3"),
        (lambda: DenoiseTask(2.5), "delay: expected a whole number, got 2.5"),
        (lambda: TransferCopyTask(5, ()), "test_delays: expected at least one"),
        (lambda: TransferCopyTask(5, (3, 0)), "test_delays: expected at least 1, got 0"),
        (lambda: DenoiseTask(5, test_delays=(3, 0)), "test_delays: expected at least 1, got 0"),
    ],
)
def test_bad_sizes(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="did you mean 'denoise'"):
        task_named("denois")
    with pytest.raises(UnknownNameError, match="unknown option of copy 'dely': did you mean 'delay'"):
        task_named("copy", dely=3)
