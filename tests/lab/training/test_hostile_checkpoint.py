"""A checkpoint with a right digest and wrong tensors is refused in one line; nothing computes with it."""

import json
from pathlib import Path

import pytest
import torch

from plait.errors import CheckpointError
from plait.lab.runs.checkpoint import Checkpoint, _check_counters
from plait.lab.runs.optimizer_state import restore_optimizer
from plait.lab.training.description import build
from plait.lab.training.fit import fit
from plait.lab.training.recipe import Recipe


@pytest.fixture
def text_run(tmp_path, dying):
    book = tmp_path / "book.txt"
    book.write_text("to be, or not to be, that is the question:\n" * 60)
    options = {"text": (str(book),), "span": 10, "embedding": 6, "memory_across_spans": True}
    description = {
        "task": {"name": "text", **options},
        "model": {"name": "relrnn", "hidden_size": 5, "window": 3, "capacity": 2},
        "recipe": Recipe(updates=24, batch_size=8, evaluate_every=6, evaluate_on=None).values(),
    }
    network, task = build(description)
    with pytest.raises(dying.error):
        fit(
            network,
            task,
            Recipe(**description["recipe"]),
            device="cpu",
            folder=tmp_path / "run",
            checkpoint_every=5,
            callbacks=[dying(7)],
        )
    return tmp_path / "run"


STATES = {
    "negative age": (lambda n, v: v * 0 - 1 if n.endswith(".5") else v, "0 <= age"),
    "born later": (lambda n, v: v + 100 if n.endswith(".4") else v, "-1 <= born < age"),
    "int32": (lambda n, v: v.int() if n.endswith(".5") else v, "expected torch.int64"),
    "fewer rows": (lambda n, v: v[1:] if n.endswith(".5") else v, "expected"),
    "narrow hidden": (lambda n, v: v[..., 1:] if n.endswith(".0") else v, "state.hidden: expected"),
    "a dimension more": (lambda n, v: v[None] if n.endswith(".2") else v, "expected torch.float32"),
}


@pytest.mark.parametrize("what", STATES)
def test_a_carried_state_that_was_edited(text_run, edited, refused, what):
    change, message = STATES[what]
    edited(text_run, lambda n, v: change(n, v) if n.startswith("carry.") else v)
    said = refused(text_run)
    assert message in said
    assert "carried state" in said


@pytest.mark.parametrize(
    "counters",
    [
        {"update": None},
        {"update": -1},
        {"update": 10**30},
        {"regular": 5},
        {"journals": []},
        {"journals": {"metrics.jsonl": -1}},
        {"journals": {"sha256": 3}},
        {"seconds": "x"},
        {"held_out": 3},
        {"held_out": {"a": {}}},
        {"best_score": []},
        {"rate": -1.0},
        {"strange": 1},
        {"loss": True},
    ],
    ids=str,
)
def test_counters_that_are_none(text_run, edited, refused, counters):
    edited(text_run, **counters)
    said = refused(text_run)
    assert "bug in plait" not in said


def test_a_carried_state_without_numbers(text_run, tmp_path, refused):
    from plait.lab.runs.checkpoint import read_checkpoint, write_checkpoint
    from plait.lab.runs.reading import read_run

    path = text_run / "checkpoint.safetensors"
    found = read_checkpoint(path)
    tensors = {name.replace("carry.0.0.5", "carry.0.0.x"): value for name, value in found.tensors.items()}
    write_checkpoint(path, tensors, read_run(text_run).id, found.counters)
    assert "expected tensors by number" in refused(text_run)


def test_an_optimiser_of_another_shape(text_run, edited, refused):
    edited(text_run, lambda n, v: v[..., :1] if n.endswith("weight_hh.exp_avg") else v)
    assert "exp_avg: expected torch.float32" in refused(text_run)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.AdamW])
@pytest.mark.parametrize("what", ["shape", "type", "key", "step", "nothing"])
def test_what_an_optimiser_keeps_is_put_back_or_named(kind, what):
    weight = torch.nn.Parameter(torch.randn(3, 4))
    optimizer = kind([weight])
    weight.grad = torch.randn(3, 4)
    optimizer.step()
    kept = {f"optimizer.w.{k}": v.clone() for k, v in optimizer.state_dict()["state"][0].items()}
    name = next(k for k, v in kept.items() if v.dim())
    if what == "shape":
        kept[name] = kept[name].t().contiguous()
    elif what == "type":
        kept[name] = kept[name].double()
    elif what == "key":
        kept["optimizer.w.more"] = kept.pop(name)
    elif what == "step":
        kept["optimizer.w.step"] = torch.ones(3)
    fresh = kind([weight])
    if what == "nothing":
        restore_optimizer(fresh, ["w"], kept)
        assert torch.equal(fresh.state_dict()["state"][0][name.rpartition(".")[2]], kept[name])
        return
    with pytest.raises(CheckpointError, match=r"optimizer\.w"):
        restore_optimizer(fresh, ["w"], kept)
    assert not fresh.state_dict()["state"]


@pytest.mark.parametrize("where", [{"update": 2**62}, {"journals": {"metrics.jsonl": 2**62}}])
def test_counts_beyond_every_file_are_refused_where_they_are_read(where):
    """A little less is a count like any other: it is compared with the file, not computed with."""
    with pytest.raises(CheckpointError, match="expected counts of at least 0"):
        _check_counters(Checkpoint({}, where, Path("a")))
    less = json.loads(json.dumps(where).replace(str(2**62), str(2**62 - 1)))
    _check_counters(Checkpoint({}, less, Path("a")))


@pytest.mark.parametrize("digests", [7, ["a"], {"metrics.jsonl": 7}])
def test_digests_of_another_type_are_refused_where_they_are_read(digests):
    with pytest.raises(CheckpointError, match="expected counts"):
        _check_counters(Checkpoint({}, {"journals": {"sha256": digests}}, Path("a")))
    _check_counters(Checkpoint({}, {"journals": {"sha256": {"metrics.jsonl": "7"}}}, Path("a")))
