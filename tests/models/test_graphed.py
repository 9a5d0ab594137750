"""A model that runs by CUDA graphs computes what it computes eagerly; on a CPU with pretended graphs."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import pytest
import torch

import plait
from plait.errors import BackendError, ShapeError
from plait.models import graphed
from plait.models.graphed import Graphs


class PretendedGraph:
    """Computes again at a replay, and puts the results where the capture's are."""

    replays = 0

    def __init__(self, function, forward):
        self.function, self.forward, self.saves = function, forward, torch.is_grad_enabled()
        with torch.random.fork_rng(devices=[]):  # a capture draws nothing
            self.results = function()
        if forward is not None:  # a capture computes nothing
            for gradient in self.results:
                if gradient is not None:
                    gradient.fill_(torch.nan)

    def pool(self):
        return self

    def replay(self):
        PretendedGraph.replays += 1
        with torch.set_grad_enabled(self.saves):
            if self.forward is None:
                self.drawn = torch.get_rng_state()
                again = self.function()
            else:
                with torch.random.fork_rng(devices=[]):
                    torch.set_rng_state(self.forward.drawn)
                    outputs = self.forward.function()
                again = self.function.func(outputs)
        for place, value in zip(self.results, again, strict=True):
            if place is not None:
                place.detach().copy_(value.detach())


@pytest.fixture
def pretended(monkeypatch):
    """Pretend that this CPU captures graphs."""

    def capture(function, pool=None):
        graph = PretendedGraph(function, pool)
        return graph, graph.results

    monkeypatch.setattr(graphed, "_capture", capture)
    monkeypatch.setattr(graphed, "_aside", lambda device: torch.random.fork_rng(devices=[]))
    monkeypatch.setattr(graphed, "_is_on_gpu", lambda x: True)
    monkeypatch.setattr(graphed, "_stream_of", lambda x: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    PretendedGraph.replays = 0


def pair(model=plait.RelLSTM, device="cpu", **options):
    """Return a model and a graphed copy of it."""
    torch.manual_seed(0)
    small = {} if model in (plait.MemLSTM, plait.LSTM) else {"window": 3, "capacity": 2}
    plain = model(4, options.pop("hidden_size", 8), **small, **options).to(device)
    return plain, copy.deepcopy(plain).graphed()


def tensors_of(state):
    return torch.utils._pytree.tree_leaves(state)


def passes(model, x, state=None, reset=None, with_state=False):
    """Return the results of a call, and the gradients of the weights and of what else requires them."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        output, end = model(x, state, reset=reset)
    loss = (output * torch.arange(output.numel(), device=x.device).view_as(output).sin()).sum()
    if with_state:
        loss = loss + end.hidden.square().sum() + end.memory[0].slots.sin().sum()
    sources = [*model.parameters()]
    sources += [t for t in (x, *tensors_of(state)) if t is not None and t.requires_grad]
    gradients = torch.autograd.grad(loss, sources, allow_unused=True)
    return output, end, gradients


def assert_same(one, other):
    for a, b in zip(tensors_of(one), tensors_of(other), strict=True):
        if a is None:  # no gradient, or that of a memory without slots
            assert b is None or not b.any()
            continue
        assert torch.equal(a, b)
        assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)


MODELS = [
    (plait.RelLSTM, {}),
    (plait.RelRNN, {"relevance": "learned"}),
    (plait.RelGRU, {"num_layers": 2, "dropout": 0.5, "batch_first": True}),
    (plait.RelLSTM, {"bidirectional": True, "grad_limit": 2.0}),
    (plait.MemLSTM, {}),
    (plait.LSTM, {}),
]


def check_calls(plain, captured, device):
    """Compare calls with and without a state, a reset and gradients of states and inputs."""
    torch.manual_seed(1)
    for call in range(8):
        x = torch.randn(6, 6, 4, device=device, requires_grad=call % 2 == 1)
        reset = torch.rand(6, 6, device=device) < 0.2
        assert_same(passes(plain, x), passes(captured, x))
        assert_same(passes(plain, x, reset=reset), passes(captured, x, reset=reset))
        with torch.no_grad():
            with torch.random.fork_rng():
                one = plain(x)
            assert_same(one, captured(x))
        if not plain.bidirectional:
            state = one[1].map(lambda t: t.requires_grad_() if t.is_floating_point() else t)
            state = state if call > 3 else state.detach()
            with_state = plain.layers[0].initial_width > 0 and call in (2, 3, 6, 7)
            assert_same(
                passes(plain, x, state, None, with_state), passes(captured, x, state, None, with_state)
            )


@pytest.mark.parametrize(("model", "options"), MODELS)
def test_replayed_calls_are_the_calls(pretended, model, options):
    plain, captured = pair(model, **options)
    check_calls(plain, captured, "cpu")
    assert PretendedGraph.replays > 20


@pytest.mark.gpu
def test_on_a_gpu_a_backward_pass_can_run_twice():
    plain, captured = pair(device="cuda", hidden_size=128)
    x = torch.randn(50, 6, 4, device="cuda")
    passes(captured, x), passes(captured, x)
    for model in (plain, captured):
        loss = model(x)[0].square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same([p.grad for p in plain.parameters()], [p.grad for p in captured.parameters()])


@pytest.mark.gpu
@pytest.mark.parametrize("hidden_size", [128, 20])
@pytest.mark.parametrize(("model", "options"), MODELS)
def test_on_a_gpu_replayed_calls_are_the_calls(model, options, hidden_size):
    plain, captured = pair(model, "cuda", hidden_size=hidden_size, **options)
    check_calls(plain, captured, "cuda")
    assert captured._graphs._recordings


def test_training_is_the_same(pretended):
    plain, captured = pair()
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in (plain, captured)]
    for step in range(6):
        x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(step))
        for model, optimiser in zip((plain, captured), optimisers, strict=True):
            optimiser.zero_grad(set_to_none=step % 2 == 0)
            model(x)[0].square().sum().backward()
            model(x)[0].sum().backward()  # accumulated
            optimiser.step()
        assert_same([*plain.parameters()], [*captured.parameters()])
    assert PretendedGraph.replays >= 16


def replace_weight(model):
    torch.manual_seed(3)
    model.layers[0].cell.weight_ih = torch.nn.Parameter(torch.randn(32, 4))


def unfreeze_weight(model):
    model.layers[0].cell.weight_hh.requires_grad_(True)


@pytest.mark.parametrize("change", [replace_weight, unfreeze_weight])
def test_moved_and_unfrozen_weights_are_captured_again(pretended, change):
    plain, captured = pair()
    x = torch.randn(5, 2, 4)
    for model in (plain, captured):
        model.layers[0].cell.weight_hh.requires_grad_(False)
        for _ in range(3):
            model(x)[0].sum().backward()
        model.zero_grad()
        change(model)
    for _ in range(3):
        one, other = plain(x)[0], captured(x)[0]
        assert torch.equal(one, other)
        one.sum().backward()
        other.sum().backward()
    assert_same([p.grad for p in plain.parameters()], [p.grad for p in captured.parameters()])


def test_a_second_forward_pass_runs_eagerly_until_the_first_ones_backward_pass(pretended):
    plain, captured = pair()
    inputs = [torch.randn(5, 2, 4) for _ in range(4)]
    for x in inputs[:2]:
        passes(captured, x)
    before = PretendedGraph.replays
    losses = [[model(x)[0].square().sum() for x in inputs] for model in (plain, captured)]
    assert PretendedGraph.replays == before + 1
    for loss in losses:
        torch.stack(loss).sum().backward()
    assert_same([p.grad for p in plain.parameters()], [p.grad for p in captured.parameters()])


def test_a_backward_pass_whose_activations_are_gone_is_one_line(pretended):
    _, captured = pair()
    x = torch.randn(5, 2, 4)
    passes(captured, x), passes(captured, x)
    kept = captured(x)[0].sum()
    kept.backward(retain_graph=True)
    kept.backward(retain_graph=True)  # nothing ran since
    passes(captured, x)
    with pytest.raises(BackendError, match="comes after another forward pass"):
        kept.backward()


def test_a_weight_changed_before_the_backward_pass_is_refused_as_usual(pretended):
    _, captured = pair()
    x = torch.randn(5, 2, 4)
    passes(captured, x), passes(captured, x)
    loss = captured(x)[0].sum()
    with torch.no_grad():
        captured.layers[0].cell.weight_ih.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_results_are_not_overwritten_and_states_are_checked(pretended):
    _, captured = pair()
    x = torch.randn(5, 2, 4)
    with torch.no_grad():
        first = [captured(x) for _ in range(3)][-1]
        kept = copy.deepcopy(first)
        captured(x + 1)
        assert_same(first, kept)
        captured(x, first[1]), captured(x, first[1])
        wrong = first[1].clone()
        wrong.memory[0].born.fill_(99)
        with pytest.raises(ShapeError, match="born"):
            captured(x, wrong)


def test_gradients_are_not_overwritten_and_absent_ones_are_zero(pretended):
    plain, captured = pair()
    for _ in range(2):
        captured(torch.randn(5, 2, 4))[0].sum().backward()
    gradients = []
    for part in ("hidden", "output", "cell_state", "output"):
        x = torch.randn(5, 2, 4)
        for model in (plain, captured):
            output, state = model(x)
            root = output if part == "output" else getattr(state, part)
            gradients.append(torch.autograd.grad(root.square().sum(), [*model.parameters()]))
    for one, other in zip(gradients[::2], gradients[1::2], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("part", ["reset", "hidden", "slots"])
def test_every_argument_is_copied_in(pretended, part):
    plain, captured = pair()
    torch.manual_seed(4)
    for _ in range(4):
        x, reset = torch.ones(5, 2, 4), None
        state = plain(x)[1].detach()
        if part == "reset":
            reset = torch.rand(5, 2) < 0.5
        elif part == "hidden":
            state = state.replace(hidden=torch.randn(1, 2, 8))
        else:
            state.memory[0].slots.copy_(torch.randn(2, 5, 8))
        assert_same(passes(plain, x, state, reset), passes(captured, x, state, reset))
    assert PretendedGraph.replays


def test_only_the_last_kinds_are_kept_and_copies_start_without(pretended, monkeypatch):
    monkeypatch.setattr(graphed, "MOST", 2)
    _, captured = pair()
    for steps in (3, 4, 5, 3):
        for _ in range(2):
            passes(captured, torch.randn(steps, 2, 4))
    assert len(captured._graphs._recordings) == 2
    assert isinstance(captured._graphs.__reduce__()[0](), Graphs)
    for other in (copy.deepcopy(captured), pickle.loads(pickle.dumps(captured))):
        assert not other._graphs._recordings
    assert captured.graphed(False)._graphs is None


def test_traces_nudges_and_unbatched_inputs_run_eagerly(pretended):
    plain, captured = pair()
    x = torch.randn(5, 2, 4)
    for _ in range(3):
        assert_same(plain(x, need_trace=True), captured(x, need_trace=True))
        assert_same(plain(x, nudge=[torch.ones(5, 2, 8)]), captured(x, nudge=[torch.ones(5, 2, 8)]))
        assert_same(plain(x[:, 0]), captured(x[:, 0]))
    assert PretendedGraph.replays == 0


def test_graphs_go_with_their_model(pretended, monkeypatch):
    """Garbage that waits for a collection would destroy its graphs during a later capture."""
    graph = SimpleNamespace(replay=lambda: None, pool=lambda: None)
    monkeypatch.setattr(graphed, "_capture", lambda function, pool=None: (graph, function()))
    _, captured = pair()
    x = torch.randn(5, 2, 4)
    passes(captured, x), passes(captured, x)
    output, state = captured(x)
    recordings = [weakref.ref(recording) for recording in captured._graphs._recordings.values()]
    del output, state
    gc.collect()
    gc.disable()
    try:
        del captured
        assert recordings
        assert [recording() for recording in recordings] == [None]
    finally:
        gc.enable()


def test_nothing_is_collected_during_a_capture(monkeypatch):
    @contextlib.contextmanager
    def capturing(graph, pool=None):
        assert not gc.isenabled()
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    assert graphed._capture(gc.isenabled)[1] is False
    assert gc.isenabled()


def test_what_cannot_be_captured_is_one_line(pretended, monkeypatch):
    def refusing(function, pool=None):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    ended = []
    monkeypatch.setattr(graphed, "_capture", refusing)
    monkeypatch.setattr(graphed, "end_failed_capture", lambda: ended.append(1))
    _, captured = pair()
    captured(torch.randn(5, 2, 4))
    with pytest.raises(BackendError, match=r"cannot be captured \(operation not permitted.*graphed\(False\)"):
        captured(torch.randn(5, 2, 4))
    assert ended


def test_weights_are_found_in_torchs_order():
    model = plait.GORU(3, 8, num_layers=2)
    model.layers[1].cell = model.layers[0].cell  # shared
    assert [id(p) for p in graphed._weights_of(model)] == [id(p) for p in model.parameters()]


def test_without_a_gpu_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendError, match="needs a CUDA device"):
        plait.RelLSTM(4, 8).graphed()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(BackendError, match="expected an input on a CUDA device, got cpu"):
        plait.RelLSTM(4, 8).graphed()(torch.zeros(2, 2, 4))
