"""From span to span: what goes on, what is emptied, and that a resumed run cannot be told from another."""

import pytest
import torch
from torch import nn

from plait.errors import ConfigError
from plait.lab.tasks import TextTask
from plait.lab.training.carried_state import carried_over
from plait.lab.training.description import Network, build
from plait.lab.training.fit import fit
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner, evaluate
from plait.models import LSTM, SAB, RelLSTM, RelRNN


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("to be, or not to be, that is the question:\n" * 60)
    return (str(path),)


@pytest.mark.parametrize(
    "model", [RelRNN(3, 5, num_layers=2, window=4, capacity=2), RelLSTM(3, 5), LSTM(3, 5)]
)
def test_an_emptied_memory_begins_with_s_or_h(model):
    x, more = torch.randn(9, 2, 3), torch.randn(4, 2, 3)
    output, state = model(x)
    whole = model(more, state)[0]
    torch.testing.assert_close(model(more, carried_over(model, state, "all"))[0], whole, rtol=0, atol=0)
    for what in ("mixed", "hidden"):
        carried = carried_over(model, state, what)
        begin, cell = (carried, None) if state.cell_state is None else carried
        if what == "mixed":
            assert torch.equal(begin, state.hidden)
        else:
            torch.testing.assert_close(begin[-1], output[-1])
        assert cell is None or torch.equal(cell, state.cell_state)
        after = model(more, carried)[1]
        assert after.memory[0].age.tolist() == [4, 4]
        changed = not torch.equal(model(more, carried)[0], whole)
        assert changed == (not isinstance(model, LSTM))


def test_h_of_a_lower_layer_is_what_the_upper_one_read():
    model = RelRNN(3, 5, num_layers=2, window=4, capacity=2)
    x = torch.randn(9, 2, 3)
    lower = model.layers[0](x)
    _, state = model(x)
    torch.testing.assert_close(carried_over(model, state, "hidden")[0], lower.output[-1])


def test_a_memory_without_the_latest_state_says_so():
    model = SAB(3, 5)
    _, state = model(torch.randn(9, 2, 3))
    with pytest.raises(ConfigError, match="h_T cannot be carried"):
        carried_over(model, state, "hidden")


def test_other_modules_carry_all_they_have():
    state = (torch.ones(1, 2, 3, requires_grad=True), torch.ones(1, 2, 3))
    kept = carried_over(nn.LSTM(3, 3), state, "mixed")
    assert torch.equal(kept[0], state[0])
    assert not kept[0].requires_grad


def test_an_epoch_begins_without_a_state(book):
    task = TextTask(text=book, span=20)
    per_epoch = task.batches_per_epoch(8)
    network = Network(RelRNN(task.input_size, 4), task.num_classes, task.vocabulary)
    learner = SupervisedLearner(network, task, Recipe(batch_size=8, lr=1e-9), torch.device("cpu"), Group())
    losses = [learner.update(n, learner.batch(n)).loss for n in range(1, 2 * per_epoch + 1)]
    # With all but no learning a second epoch repeats the first, unless a state leaks into it.
    torch.testing.assert_close(losses[per_epoch:], losses[:per_epoch], rtol=1e-6, atol=1e-6)
    learner.carried_state = [None]
    alone = learner.update(2, learner.batch(2)).loss
    assert abs(alone - losses[1]) > 1e-6  # and within an epoch the state does go on


def test_evaluation_is_the_mean_over_every_character(book):
    task = TextTask(text=book, span=7, memory_across_spans=True)
    network = Network(RelRNN(task.input_size, 4), task.num_classes, task.vocabulary)
    found = evaluate(network, task)["validation"]
    one = task.held_out()["validation"]
    # The same streams whole instead of span by span: only carrying everything gives the same numbers.
    batches = list(one.sweep(None, 1, None))
    logits, _ = network(torch.cat([b.inputs for b in batches]))
    targets = torch.cat([b.targets for b in batches])
    assert found["loss"] == pytest.approx(task.loss(logits, targets).item(), rel=1e-6)
    assert found["score"] == pytest.approx(task.score(logits, targets).item(), rel=1e-6)
    assert found["predicted"] == one.count("valid") - 1
    assert found["bits_per_character"] == pytest.approx(found["loss"] / 0.6931471805599453)
    emptied = evaluate(network, TextTask(text=book, span=7))["validation"]
    assert emptied["loss"] != found["loss"]


def run(book, folder, stop_after=None, model="relrnn", **options):
    description = {
        "task": {"name": "text", "text": book, "span": 10, "embedding": 6, **options},
        "model": {"name": model, "hidden_size": 5},
        "recipe": Recipe(
            updates=24,
            batch_size=8,
            evaluate_every=6,
            evaluate_on=None,
            lr=0.05,
            schedule="halve",
            record_every=1,
        ).values(),
    }
    network, task = build(description)
    calls = iter(range(1, 100))

    class Tired(Exception):
        pass

    class Watch:
        def __getattr__(self, name):
            def hear(*arguments):
                if name == "updated" and next(calls) == stop_after:
                    raise Tired

            return hear

    recipe = Recipe(**description["recipe"])
    arguments = {"device": "cpu", "folder": folder, "checkpoint_every": 5}
    if stop_after is not None:
        with pytest.raises(Tired):
            fit(network, task, recipe, callbacks=[Watch()], **arguments)
        network, task = build(description)
        return fit(network, task, recipe, resume=True, **arguments)
    return fit(network, task, recipe, **arguments)


def untimed(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("relrnn", {}),
        ("relrnn", {"begin_with": "h"}),
        ("rellstm", {"memory_across_spans": True}),
        ("memrnn", {"memory_across_spans": True}),
        ("lstm", {}),
        ("exprnn", {}),
        ("transformer", {}),
        ("transformer", {"memory_across_spans": True}),
    ],
)
def test_a_killed_run_resumes_bit_by_bit(book, tmp_path, model, options):
    whole = run(book, tmp_path / "whole", model=model, **options)
    resumed = run(book, tmp_path / "resumed", stop_after=18, model=model, **options)
    assert untimed(resumed.metrics) == untimed(whole.metrics)
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert set(whole.summary["held_out"]) == {"validation", "test"}
    assert "tested" in whole.metrics[-1]
