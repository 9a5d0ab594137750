"""Descriptions, ids, and the checks on them."""

from __future__ import annotations

import hashlib

import pytest
import torch

import plait
from plait import WindowMemory
from plait.errors import ConfigError, UnknownNameError
from plait.lab.runs.folder import run_id
from plait.lab.tasks import TASKS, Batch, CopyTask
from plait.lab.training.description import Network, build, describe, network_on, states_read
from plait.lab.training.recipe import Recipe
from plait.lab.training.spec import parse_supervised
from plait.models import MODELS
from plait.models.options import model_defaults


def description(**model):
    return {"task": {"name": "copy", "delay": 3}, "model": {"name": "relrnn", "hidden_size": 4, **model}}


def completed(values):
    return parse_supervised(values).to_json()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_described_and_built_again(name):
    network, task = build(
        {"task": {"name": "denoise"}, "model": {"name": name, "hidden_size": 4, "num_layers": 2}}
    )
    written = describe(network, task, Recipe())
    # left out where not given
    later = {"forget_bias", "chrono", "relevance", "noise", "usage", "grad_limit", "bidirectional"}
    if name == "transformer":
        later |= {"memory", "window", "capacity", "sinks", "every", "positions"}
    assert written["model"].keys() == {"name", *model_defaults(name)} - later, "nothing is left to a default"
    again, task_again = build(written)
    assert describe(again, task_again, Recipe()) == written
    for one, two in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_can_be_described_and_built_again(name, tmp_path):
    (tmp_path / "book.txt").write_text("once upon a time\n" * 9)
    (tmp_path / "table.csv").write_text("who,x,y\n" + "a,1,up\nb,2,down\n" * 3)
    options = {
        "text": {"text": (str(tmp_path / "book.txt"),)},
        "csv": {"file": str(tmp_path / "table.csv"), "target": "y", "sequence": "who"},
    }.get(name, {})
    network, task = build({"task": {"name": name, **options}, "model": {"name": "rnn", "hidden_size": 4}})
    assert build(describe(network, task, Recipe()))[1] == task


def test_a_default_and_the_same_value_given_are_the_same_run():
    ids = set()
    for model in ({}, {"window": 10}, {"mix": 0.5, "capacity": 10, "nonlinearity": "tanh"}):
        ids.add(run_id(describe(*build(description(**model)), Recipe(clip=1))))
    assert len(ids) == 1
    assert run_id(describe(*build(description(window=9)), Recipe())) not in ids
    assert run_id(describe(*build(description()), Recipe(seed=1))) not in ids
    assert ids.pop().startswith("copy-relrnn-")


@pytest.mark.parametrize(
    ("task", "model", "id", "weights"),
    [
        ({"name": "copy", "delay": 30}, "rellstm", "copy-rellstm-521c60d72e", "f72f9dea46"),
        ({"name": "transfer"}, "gru", "transfer-gru-e7d01427e2", "5220d3267e"),
        ({"name": "transfer", "lead_in": 0}, "goru", "transfer-goru-c3dca98964", "94bdeeafbb"),
    ],
)
def test_options_that_came_later_move_neither_ids_nor_weights(task, model, id, weights):
    """Recorded when there was no lead-in, and gates could not begin open."""
    network, built = build({"task": task, "model": {"name": model, "hidden_size": 6}, "recipe": {"seed": 3}})
    assert run_id(describe(network, built, Recipe(seed=3))) == id
    numbers = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    assert hashlib.sha256(numbers).hexdigest()[:10] == weights


def test_options_that_came_later_are_part_of_a_run():
    ids = set()
    gates = ({}, {"forget_bias": 1.0}, {"forget_bias": 0.0}, {"chrono": 50})
    for task, model in [({"lead_in": 5}, {}), *(({}, gate) for gate in gates)]:
        given = {"task": {"name": "copy", **task}, "model": {"name": "lstm", "hidden_size": 4, **model}}
        written = describe(*build(given), Recipe())
        ids.add(run_id(written))
        again = build(written)
        assert describe(*again, Recipe()) == written
        for one, two in zip(build(given)[0].parameters(), again[0].parameters(), strict=True):
            assert torch.equal(one, two)
    assert len(ids) == 5


def test_a_rate_that_is_not_set_does_not_move_an_id():
    """Recorded when there was no such rate."""
    assert "orthogonal_lr" not in Recipe().values()
    assert Recipe(orthogonal_lr=1).values()["orthogonal_lr"] == 1.0
    network, task = build(
        {"task": {"name": "copy", "delay": 3}, "model": {"name": "rellstm", "hidden_size": 4}}
    )
    assert run_id(describe(network, task, Recipe())) == "copy-rellstm-6b382731ae"


def test_where_it_runs_is_not_what_it_is():
    assert describe(*build(description(), backend="reference"), Recipe()) == describe(
        *build(description()), Recipe()
    )


def test_the_seed_decides_the_weights_and_the_global_state_does_not():
    before = torch.random.get_rng_state()
    one = build({**description(), "recipe": {"seed": 3}})[0]
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    two = build({**description(), "recipe": {"seed": 3}})[0]
    other = build({**description(), "recipe": {"seed": 4}})[0]
    assert torch.equal(one.decoder.weight, two.decoder.weight)
    assert not torch.equal(one.decoder.weight, other.decoder.weight)


def test_models_without_a_name_are_described_by_class_and_shapes():
    network = Network(torch.nn.LSTM(10, 3), 9)
    written = describe(network, CopyTask(2), Recipe())
    assert written["model"]["class"].endswith("Network")
    assert written["model"]["weights"]["decoder.weight"] == [9, 3]
    with pytest.raises(ConfigError, match="make it in Python and pass it"):
        build(written)


def test_everything_wrong_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        completed(
            {
                "task": {"name": "copy", "dely": 3},
                "model": {"name": "relrnn", "hidden_size": -4, "windows": 3, "capacity": -1},
                "recipe": {"lr": 0, "updates": "many"},
                "colour": "red",
            }
        )
    text = str(caught.value)
    for words in (
        "unknown option of copy 'dely': did you mean 'delay'",
        "hidden_size: expected at least 1, got -4",
        "unknown option of relrnn 'windows': did you mean 'window'",
        "capacity: expected at least 0, got -1",
        "recipe.updates: expected a whole number, got 'many'",
        "colour: is not known here",
    ):
        assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "task: expected a name and options, got None; model: expected"),
        ({**description(), "recipe": {"lrr": 1}}, "recipe.lrr"),
        (
            {**description(), "recipe": {"updates": 0, "lr": 0}},
            "updates: expected at least 1, got 0; lr: expected",
        ),
        ({**description(), "format": "plait run 9"}, "expected 'plait run 1', got 'plait run 9'"),
        ({"task": {"name": "copy"}, "model": {"name": "lstm"}}, "hidden_size is missing"),
        ([], "format"),
    ],
)
def test_bad_descriptions(values, words):
    with pytest.raises(ConfigError) as caught:
        completed(values)
    assert words in str(caught.value)


def test_unknown_names_in_a_plain_description():
    with pytest.raises(UnknownNameError, match="unknown model 'relrn': did you mean 'relrnn'"):
        build({"task": {"name": "copy"}, "model": {"name": "relrn", "hidden_size": 4}})
    with pytest.raises(ConfigError, match="unknown option of lstm 'window'"):
        build({"task": {"name": "copy"}, "model": {"name": "lstm", "hidden_size": 4, "window": 3}})


def test_a_memory_without_room_beyond_its_window_is_one():
    model = {"name": "relrnn", "hidden_size": 4, "capacity": 0}
    assert completed({"task": {"name": "copy"}, "model": model})["model"].items() >= model.items()
    with pytest.raises(ConfigError, match="capacity: expected at least 0, got -1"):
        completed({"task": {"name": "copy"}, "model": {**model, "capacity": -1}})


def test_a_transformers_memory_is_described_and_built_again():
    plain = completed(description(name="transformer"))["model"]
    assert plain.keys() == {"name", "hidden_size", "num_layers", "bias", "dropout", "heads"}
    whole = completed(
        {"task": {"name": "copy"}, "model": {"name": "transformer", "hidden_size": 64, "heads": 4}}
    )
    assert run_id(whole) == "copy-transformer-db9e14f66a", "as before there were memories"
    memory = {"memory": "relevancy", "window": 3, "capacity": 2}
    written = completed(description(name="transformer", **memory))["model"]
    assert {k: v for k, v in written.items() if k not in plain} == {
        **memory,
        "relevance": "learned",
        "positions": "rotary",
    }
    sinks = completed(description(name="transformer", **memory, sinks=2, noise=0.0))
    assert {**written, "sinks": 2, "noise": 0.0} == sinks["model"]
    network, _ = build(sinks)
    assert network.recurrent.slots == 7
    with pytest.raises(ConfigError, match="relevance: expected learned for a Transformer that trains"):
        completed(description(name="transformer", **memory, relevance="earned"))


def test_states_read_before_a_reset_are_not_counted():
    """A reset every third step leaves three states; without one the memory is full."""
    network = network_on(plait.Transformer(10, 8, heads=1, memory=WindowMemory(5)), CopyTask(delay=5))
    inputs, targets = torch.randn(12, 2, 10), torch.zeros(12, 2, dtype=torch.long)
    reset = torch.zeros(12, 2, dtype=torch.bool)
    reset[::3] = True
    batches = [Batch(inputs, targets), Batch(inputs, targets, reset)]
    assert [states_read(network, batch) for batch in batches] == [{"states_read": 5}, {"states_read": 3}]
