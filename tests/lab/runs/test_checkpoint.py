"""Checkpoints: whole or refused, and never at the price of the one before."""

from __future__ import annotations

import errno
import json
import os

import pytest
import torch
from safetensors.torch import save_file

from plait.errors import CheckpointError, OutputError
from plait.lab.runs import checkpoint as module
from plait.lab.runs.checkpoint import read_checkpoint, restore, save_checkpoint
from plait.lab.tasks import CopyTask
from plait.lab.training.description import Network
from plait.lab.training.fit import fit
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner
from plait.models import GORU, GRU, LSTM, ExpRNN, Transformer


def learner(model=LSTM, task=None, seed=0, optimizer="adam", **recipe):
    torch.manual_seed(seed)
    task = task or CopyTask(2)
    recipe = Recipe(batch_size=4, optimizer=optimizer, **recipe)
    return SupervisedLearner(
        Network(model(task.input_size, 5), task.num_classes), task, recipe, torch.device("cpu"), Group()
    )


def train(one, updates):
    return [one.update(n, one.batch(n)).loss for n in updates]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_going_on_from_a_checkpoint_is_exact(tmp_path, optimizer):
    path = tmp_path / "c.safetensors"
    one, two = learner(optimizer=optimizer), learner(optimizer=optimizer, seed=9)
    train(one, range(1, 4))
    save_checkpoint(path, one, "run", {"update": 3, "seconds": 0.1})
    assert restore(path, two, "run") == {"update": 3, "seconds": 0.1}
    assert train(one, range(4, 8)) == train(two, range(4, 8))
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("model", [ExpRNN, GORU])
def test_the_optimisers_state_is_under_its_parameters_name(tmp_path, model):
    """With two rates the optimiser's order is not the network's."""
    path = tmp_path / "c.safetensors"
    one = learner(model, orthogonal_lr=1e-4)
    train(one, [1, 2])
    save_checkpoint(path, one, "run", {"update": 2})
    tensors = read_checkpoint(path).tensors
    for name, parameter in one.network.named_parameters():
        assert torch.equal(tensors[f"optimizer.{name}.exp_avg"], one.optimizer.state[parameter]["exp_avg"]), (
            name
        )
    two = learner(model, orthogonal_lr=1e-4, seed=9)
    restore(path, two, "run")
    assert train(one, range(3, 6)) == train(two, range(3, 6))


@pytest.mark.parametrize("model", [LSTM, GRU, ExpRNN, Transformer])
def test_carried_state_comes_back(tmp_path, stream_task, model):
    path = tmp_path / "c.safetensors"
    one, two = (learner(model, stream_task(), seed=seed, accumulate=2) for seed in (0, 9))
    train(one, range(1, 4))
    save_checkpoint(path, one, "run", {"update": 3})
    restore(path, two, "run")
    assert train(one, range(4, 7)) == train(two, range(4, 7))
    lost = learner(model, stream_task(), accumulate=2)
    restore(path, lost, "run")
    lost.carried_state = [None, None]
    assert train(lost, [4]) != train(learner_at(path, model, stream_task()), [4]), "the state matters here"


def learner_at(path, model, task):
    one = learner(model, task, accumulate=2)
    restore(path, one, "run")
    return one


def test_a_state_of_other_parts_is_refused(tmp_path, stream_task):
    path = tmp_path / "c.safetensors"
    one = learner(task=stream_task())
    train(one, [1])
    save_checkpoint(path, one, "run", {"update": 1})
    with pytest.raises(CheckpointError, match="another number of processes or parts"):
        restore(path, learner(task=stream_task(), accumulate=2), "run")


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "c.safetensors"
    one = learner()
    train(one, [1])
    save_checkpoint(path, one, "run", {"update": 1})
    return path


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.99])
def test_truncated(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match="cut short or not a safetensors file"):
        read_checkpoint(saved, "run")


def test_longer_than_it_should_be(saved):
    saved.write_bytes(saved.read_bytes() + b"x")
    with pytest.raises(CheckpointError):
        read_checkpoint(saved, "run")


def test_one_flipped_bit_anywhere_in_the_data(saved):
    content = saved.read_bytes()
    for place in (-1, -len(content) // 2):
        flipped = bytearray(content)
        flipped[place] ^= 1
        saved.write_bytes(flipped)
        with pytest.raises(CheckpointError):
            read_checkpoint(saved, "run")


def test_an_altered_counter(saved):
    saved.write_bytes(saved.read_bytes().replace(b'\\"update\\": 1', b'\\"update\\": 7'))
    with pytest.raises(CheckpointError, match="digest"):
        read_checkpoint(saved, "run")


def test_foreign(saved, tmp_path):
    with pytest.raises(CheckpointError, match="belongs to run run, not to other"):
        read_checkpoint(saved, "other")
    save_file({"a": torch.zeros(2)}, tmp_path / "plain")
    with pytest.raises(CheckpointError, match="not a plait checkpoint"):
        read_checkpoint(tmp_path / "plain")
    save_file({"a": torch.zeros(2)}, tmp_path / "odd", metadata={"plait": json.dumps([1])})
    with pytest.raises(CheckpointError, match="not a plait checkpoint"):
        read_checkpoint(tmp_path / "odd")
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        read_checkpoint(tmp_path / "none")


def test_another_format(saved, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", "plait checkpoint 2")
    with pytest.raises(
        CheckpointError, match="expected format 'plait checkpoint 2', got 'plait checkpoint 1'"
    ):
        read_checkpoint(saved)


def test_another_model(saved):
    with pytest.raises(CheckpointError, match="does not fit the model"):
        restore(saved, learner(GRU), "run")


def test_a_full_disk_leaves_the_old_checkpoint(saved, monkeypatch):
    before = saved.read_bytes()
    one = learner()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("plait.lab.runs.folder.os.fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        save_checkpoint(saved, one, "run", {"update": 2})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_nothing_in_a_checkpoint_executes(saved):
    """A safetensors file: length, JSON header, numbers. No pickle opcodes are ever read."""
    content = saved.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert set(header["__metadata__"]) == {"plait"}
    assert {name.split(".")[0] for name in header} == {"__metadata__", "model", "optimizer"}


def test_a_damaged_checkpoint_stops_a_resume_and_nothing_is_overwritten(small_fit, tmp_path):
    folder = tmp_path / "run"
    small_fit(folder, max_minutes=1e-9)
    path = folder / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(CheckpointError):
        small_fit(folder, resume=True)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_model_made_in_python_can_be_resumed_and_loaded(tmp_path):
    import plait
    from plait.errors import ConfigError

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(10, 9)

        def forward(self, inputs, state=None):
            return self.layer(inputs), None

    def run(**options):
        torch.manual_seed(0)
        return fit(Own(), CopyTask(2), updates=6, batch_size=2, evaluate_on=2, device="cpu", **options)

    whole = run()
    assert run(folder=tmp_path / "run", max_minutes=1e-9).status == "stopped"
    resumed = run(folder=tmp_path / "run", resume=True)
    assert torch.equal(whole.network.layer.weight, resumed.network.layer.weight)
    with pytest.raises(ConfigError, match="pass it"):
        plait.load(tmp_path / "run")
    filled = plait.load(tmp_path / "run", model=Own())
    assert torch.equal(filled.layer.weight, whole.network.layer.weight)
