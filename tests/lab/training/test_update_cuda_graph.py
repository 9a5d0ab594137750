"""An update replayed from a CUDA graph is the update: what is recorded, when, and what is not."""

from __future__ import annotations

import contextlib

import pytest
import torch

from plait.lab.tasks import Batch, CopyTask
from plait.lab.training import update_cuda_graph
from plait.lab.training.description import Network, build
from plait.lab.training.process import Group
from plait.lab.training.recipe import Recipe
from plait.lab.training.supervised import SupervisedLearner
from plait.lab.training.update_cuda_graph import EAGER, UpdateCudaGraph, can_capture


def learner_of(model="relrnn", device="cpu", delay=4, shortest_delay=0, **options):
    recipe = Recipe(batch_size=4, updates=100, **options.pop("recipe", {}))
    description = {
        "task": {"name": "copy", "delay": delay, "shortest_delay": shortest_delay},
        "model": {"name": model, "hidden_size": 8, **options},
        "recipe": recipe.values(),
    }
    network, task = build(description)
    return SupervisedLearner(network, task, recipe, torch.device(device), Group())


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("relrnn", {}, True),
        ("lstm", {}, True),
        ("orthrnn", {}, True),
        ("memlstm", {}, True),
        ("transformer", {}, True),
        ("exprnn", {}, False),  # the matrix exponential asks the device for a norm
        ("goru", {}, False),
        ("sab", {}, False),  # walked in Python
        ("relrnn", {"truncate": 3}, False),
        ("relrnn", {"num_layers": 2, "dropout": 0.5}, False),
    ],
)
def test_what_can_be_recorded(model, options, expected):
    learner = learner_of(model, **options)
    assert can_capture(learner.network, learner.task) is expected
    assert learner.cuda_graph is None  # this is no GPU


def test_strangers_are_not_recorded():
    class Mine(CopyTask):
        """A task that may depend on anything."""

    learner = learner_of()
    assert not can_capture(learner.network, Mine(4))
    assert not can_capture(torch.nn.LSTM(10, 8), CopyTask(4))
    assert not can_capture(Network(torch.nn.LSTM(10, 8), 9), CopyTask(4))


class FakeGraph:
    """Records nothing; a replay computes the passes again and puts them where the recording's are."""

    made, pools = 0, []

    def __init__(self):
        FakeGraph.made += 1
        self.cuda_graph = self.recording = None

    def pool(self):
        return "the first one's"

    def replay(self):
        again = self.cuda_graph._passes(self.recording.batch)
        self.recording.result.figures.copy_(again.figures)
        self.recording.result.norm.copy_(again.norm)
        for place, parameter in zip(self.recording.gradients, self.cuda_graph._parameters, strict=True):
            place.copy_(parameter.grad)
            parameter.grad = None


@pytest.fixture
def fake(monkeypatch):
    """A learner whose updates go through a pretended graph."""
    FakeGraph.made, FakeGraph.pools = 0, []
    graphs = []

    def make():
        graphs.append(FakeGraph())
        return graphs[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", make)

    def recording(graph, pool):
        FakeGraph.pools.append(pool)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", recording)

    def learner(**options):
        made = learner_of(**options)
        made.cuda_graph = UpdateCudaGraph(made._passes, made.parameters)
        record = made.cuda_graph._record

        def recorded(shapes, batch):
            if not record(shapes, batch):
                return False
            recording = made.cuda_graph._recordings[shapes]
            recording.graph.cuda_graph, recording.graph.recording = made.cuda_graph, recording
            # recording computes nothing: there are no values before a replay
            for place in (recording.result.figures, recording.result.norm, *recording.gradients):
                place.fill_(torch.nan)
            return True

        made.cuda_graph._record = recorded
        return made

    return learner


def test_replayed_updates_are_the_updates(fake):
    plain, captured = learner_of(), fake()
    for update in range(1, 9):
        one, two = (x.update(update, x.batch(update)) for x in (plain, captured))
        assert one == two
        assert captured.cuda_graph.recorded is (update > EAGER)
    assert FakeGraph.made == 1
    for a, b in zip(plain.parameters, captured.parameters, strict=True):
        assert torch.equal(a, b)


def test_every_shape_has_a_recording_of_its_own(fake):
    plain, captured = (make(delay=16, shortest_delay=4) for make in (learner_of, fake))
    for update in range(1, 25):
        one, two = (x.update(update, x.batch(update)) for x in (plain, captured))
        assert one == two, update
    assert FakeGraph.made == 3
    assert FakeGraph.pools == [None, "the first one's", "the first one's"]
    for a, b in zip(plain.parameters, captured.parameters, strict=True):
        assert torch.equal(a, b)


def test_a_shape_beyond_the_most_is_computed_as_it_is(fake, monkeypatch):
    monkeypatch.setattr(update_cuda_graph, "MOST", 1)
    plain, captured = (make(delay=8, shortest_delay=4) for make in (learner_of, fake))
    for update in range(1, 17):
        assert plain.update(update, plain.batch(update)) == captured.update(update, captured.batch(update))
    assert FakeGraph.made == 1


def test_what_cannot_be_recorded_is_computed_as_it_is(fake, monkeypatch):
    @contextlib.contextmanager
    def refusing(graph, pool):
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    plain, captured = learner_of(), learner_of()
    captured.cuda_graph = UpdateCudaGraph(captured._passes, captured.parameters)
    monkeypatch.setattr(torch.cuda, "graph", refusing)
    for update in range(1, 9):
        assert plain.update(update, plain.batch(update)) == captured.update(update, captured.batch(update))
    assert captured.cuda_graph.failed
    assert FakeGraph.made == 1  # it is tried once
    for a, b in zip(plain.parameters, captured.parameters, strict=True):
        assert torch.equal(a, b)


def test_a_value_that_is_not_finite_is_found_in_a_replay(fake):
    from plait.errors import DivergedError

    captured = fake()
    for update in range(1, 6):
        captured.update(update, captured.batch(update))
    before = [p.clone() for p in captured.parameters]
    batch = captured.batch(6)
    broken = Batch(batch.inputs.clone().fill_(float("nan")), batch.targets, batch.reset)
    with pytest.raises(DivergedError, match="update 6: inputs hold nan"):
        captured.update(6, broken)
    assert all(torch.equal(a, b) for a, b in zip(before, captured.parameters, strict=True))


@pytest.mark.gpu
def test_on_a_gpu_every_shape_is_replayed_as_it_is():
    options = {"hidden_size": 128, "delay": 80, "shortest_delay": 10}
    plain, captured = (learner_of("rellstm", "cuda", **options) for _ in range(2))
    plain.cuda_graph = None
    for update in range(1, 61):
        one, two = (x.update(update, x.batch(update)) for x in (plain, captured))
        assert one == two, update
    assert len(captured.cuda_graph._recordings) == 4
    for a, b in zip(plain.parameters, captured.parameters, strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
def test_on_a_gpu_recordings_share_their_memory():
    """What four lengths take together is little more than what the longest one takes."""

    def reserved(shortest_delay):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        learner = learner_of("rellstm", "cuda", hidden_size=256, delay=1600, shortest_delay=shortest_delay)
        for update in range(1, 120):
            learner.update(update, learner.batch(update))
        assert learner.cuda_graph.recorded
        torch.cuda.empty_cache()
        return len(learner.cuda_graph._recordings), torch.cuda.memory_reserved() - before

    (one, alone), (several, together) = reserved(0), reserved(200)
    assert (one, several) == (1, 4)
    assert together < 1.4 * alone, (alone, together)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("model", "hidden"),
    [
        ("relrnn", 32),
        ("rellstm", 128),
        ("lstm", 32),
        ("orthrnn", 32),
        ("memrnn", 32),
        ("relrnn", 160),
        ("transformer", 32),
    ],
)
def test_on_a_gpu_replayed_updates_are_the_updates(model, hidden, precision):
    options = {"hidden_size": hidden, "delay": 20, "recipe": {"precision": precision}}
    captured = learner_of(model, "cuda", **options)
    plain = learner_of(model, "cuda", **options)
    assert captured.cuda_graph is not None
    plain.cuda_graph = None
    for update in range(1, 21):
        one, two = (x.update(update, x.batch(update)) for x in (plain, captured))
        assert one == two, update
    assert captured.cuda_graph.recorded
    for a, b in zip(plain.parameters, captured.parameters, strict=True):
        assert torch.equal(a, b)
