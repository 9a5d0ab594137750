"""A state is one value: everything in it travels together, and code written for `torch.nn` can read it."""

import copy
import dataclasses
import io
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import plait
from plait.errors import EmptyMemoryWarning
from plait.models import State

PAIRS = [(plait.LSTM, nn.LSTM), (plait.GRU, nn.GRU), (plait.RNN, nn.RNN)]


def made(builder=plait.RelLSTM, **options):
    model = builder(3, 6, num_layers=2, **options)
    return model, model(torch.randn(9, 4, 3))[1]


def tensors(state):
    memory = [part for layer in state.memory for part in layer]
    return [part for part in (state.hidden, state.cell_state, *memory) if part is not None]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def torch_users_loop(layer, x, is_lstm):
    """Truncated back-propagation as it is written for `torch.nn`."""
    state, seen = None, []
    for part in x.split(3):
        if is_lstm:
            output, (h, c) = layer(part, state)
            state = tuple(t.detach() for t in (h, c))
            last = h[-1]
        else:
            output, h = layer(part, state)
            state = h.detach()
            last = h[-1]
            seen += [h.squeeze(0), h.transpose(0, 1), torch.stack(list(h))]
            assert h.shape == h.size() == (2, 4, 6)
            assert (h.dtype, h.device, h.dim()) == (torch.float32, torch.device("cpu"), 3)
            assert h.requires_grad
        output.sum().backward()
        seen += [output, last]
    return seen


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_loop_written_for_torch_gives_the_same_numbers(ours, theirs):
    layer, x = theirs(3, 6, num_layers=2), torch.randn(9, 4, 3)
    same = ours.from_torch(layer)
    is_lstm = theirs is nn.LSTM
    for got, expected in zip(
        torch_users_loop(same, x, is_lstm), torch_users_loop(layer, x, is_lstm), strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_with_a_cell_state_it_reads_as_the_pair():
    _, state = made()
    h, c = state
    assert h is state[0] is state.hidden
    assert c is state[1] is state[-1] is state.cell_state
    assert len(state) == 2
    assert [t.requires_grad for t in tuple(t.detach() for t in state)] == [False, False]
    for name in ("shape", "squeeze", "dtype"):
        assert not hasattr(state, name)  # as a tuple has none


@pytest.mark.parametrize("builder", [plait.RelRNN, plait.RelGRU])
def test_without_one_it_reads_as_h(builder):
    _, state = made(builder)
    assert torch.equal(state[-1], state.hidden[-1])
    assert torch.equal(state[:, 1:3], state.hidden[:, 1:3])
    assert len(state) == len(list(state)) == 2
    with pytest.raises(AttributeError, match="zero_"):
        state.zero_()  # the memory would stay


def test_detached_cloned_and_moved_it_keeps_its_memory():
    model, state = made()
    x = torch.randn(2, 4, 3)
    for same in (state.detach(), state.clone(), state.to("cpu"), state.to(torch.float32)):
        assert isinstance(same, State)
        assert torch.equal(model(x, same)[0], model(x, state)[0])
    assert not any(part.requires_grad for part in tensors(state.detach()))
    lower = state.to(torch.bfloat16)
    assert [part.dtype for part in lower.memory[0]] == [
        torch.bfloat16,
        torch.float32,
        torch.int64,
        torch.int64,
    ]
    assert lower.hidden.dtype == lower.cell_state.dtype == torch.bfloat16
    wide = state.to("cpu", torch.float64)
    assert wide.memory[1].relevance.dtype == wide.cell_state.dtype == torch.float64
    assert {part.device.type for part in tensors(state.to("meta"))} == {"meta"}


def test_it_is_frozen_and_replaced():
    _, state = made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.hidden = state.hidden * 2
    twice = state.replace(hidden=state.hidden * 2)
    assert torch.equal(twice.hidden, state.hidden * 2)
    assert twice.memory is state.memory
    with pytest.raises(TypeError, match="hiden"):
        state.replace(hiden=state.hidden)


def test_copies_pickles_and_safe_loading():
    _, state = made()
    state = state.detach()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    for same in (
        copy.copy(state),
        copy.deepcopy(state),
        pickle.loads(pickle.dumps(state)),
        torch.load(buffer, weights_only=True),
    ):
        assert equal(same, state)
    assert copy.copy(state) != state  # by identity, and usable as a key
    assert {state: 1}[state] == 1


@pytest.mark.parametrize("builder", [plait.RelLSTM, plait.RelGRU])
def test_as_a_pytree_it_has_all_its_leaves(builder):
    _, state = made(builder)
    leaves, structure = pytree.tree_flatten(state)
    assert [id(leaf) for leaf in leaves if leaf is not None] == [id(part) for part in tensors(state)]
    assert equal(pytree.tree_unflatten(leaves, structure), state)
    dumped = pytree.treespec_loads(pytree.treespec_dumps(structure))
    assert equal(pytree.tree_unflatten(leaves, dumped), state)
    doubled = pytree.tree_map(lambda leaf: leaf if leaf is None else leaf * 2, state)
    assert isinstance(doubled, State)
    assert torch.equal(doubled.memory[1].age, state.memory[1].age * 2)
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(state)[0]]
    assert paths[0] == ".hidden"
    assert paths[-1] == ".memory[1].age"


EXPORTED = """
import io
import torch
import plait
model = plait.RelLSTM(3, 6).eval()
x = torch.randn(1, 2, 3)
state = model(torch.randn(4, 2, 3))[1].detach()
buffer = io.BytesIO()
with torch.no_grad():
    torch.export.save(torch.export.export(model, (x, state)), buffer)
    buffer.seek(0)
    output, end = torch.export.load(buffer).module()(x, state)
    expected, expected_end = model(x, state)
torch.testing.assert_close(output, expected)
leaves = torch.utils._pytree.tree_leaves
torch.testing.assert_close(leaves(end), leaves(expected_end))
"""


def test_an_exported_step_is_saved_and_loaded():
    """In a process of its own: torch finds a class by its name, and other tests import plait again."""
    subprocess.run([sys.executable, "-c", EXPORTED], check=True)


def test_a_compiled_step_takes_and_returns_it():
    torch._dynamo.reset()  # other tests may have compiled this class as often as torch allows
    model = plait.RelLSTM(3, 6)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, state = torch.randn(1, 2, 3), model(torch.randn(4, 2, 3))[1].detach()
    _, end = compiled(x, state)
    assert isinstance(end, State)
    torch.testing.assert_close(tensors(end), tensors(model(x, state)[1]))


def test_h_and_c_alone_start_with_an_empty_memory_and_one_warning():
    model, state = made()
    x = torch.randn(2, 4, 3)
    with pytest.warns(EmptyMemoryWarning, match=r"RelLSTM .* empty .* as a whole") as said:
        output, after = model(x, tuple(state))
    assert said[0].filename == __file__
    assert after.memory[0].age.tolist() == [2] * 4
    assert not torch.equal(output, model(x, state)[0])
    model(x, tuple(state))
    with pytest.warns(EmptyMemoryWarning):
        made()[0](x, tuple(state))  # another model says it again


@pytest.mark.parametrize("builder", [plait.LSTM, plait.RelLSTM])
def test_no_warning_without_need(builder):
    model, state = made(builder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(2, 4, 3), state)
        if builder is plait.LSTM:
            model(torch.randn(2, 4, 3), tuple(state))
