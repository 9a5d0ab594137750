"""Without a memory, a layer is its `torch.nn` namesake; with one, it opens the same doors."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import plait
from plait.errors import ConfigError, EmptyMemoryWarning, PlaitError, ShapeError, UnknownNameError
from plait.models import MODELS

NAMESAKES = [(plait.RNN, nn.RNN), (plait.LSTM, nn.LSTM), (plait.GRU, nn.GRU)]


@pytest.mark.parametrize(("ours", "theirs"), NAMESAKES)
@pytest.mark.parametrize("bias", [True, False])
def test_no_memory_is_the_torch_layer(ours, theirs, bias):
    reference = theirs(3, 7, num_layers=2, bias=bias, batch_first=True, dtype=torch.float64)
    model = ours.from_torch(reference)
    x = torch.randn(4, 9, 3, dtype=torch.float64, requires_grad=True)
    begin = torch.randn(2, 4, 7, dtype=torch.float64)
    begin = (begin, torch.randn_like(begin)) if theirs is nn.LSTM else begin
    expected, expected_end = reference(x, begin)
    output, end = model(x, begin)
    torch.testing.assert_close(output, expected)
    ended = (end.hidden, end.cell_state) if theirs is nn.LSTM else end.hidden
    torch.testing.assert_close(ended, expected_end)
    (g1,) = torch.autograd.grad(output.square().sum(), x)
    (g2,) = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(g1, g2)


def test_relu_nonlinearity_is_carried_over():
    reference = nn.RNN(3, 5, nonlinearity="relu")
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(plait.RNN.from_torch(reference)(x)[0], reference(x)[0])


def test_from_torch_refuses_what_it_cannot_hold():
    with pytest.raises(ConfigError, match=r"expected torch.nn.LSTM, got GRU"):
        plait.RelLSTM.from_torch(nn.GRU(3, 4))
    for make in (
        lambda: plait.RelLSTM.from_torch(nn.LSTM(3, 4, proj_size=2)),
        lambda: plait.RelLSTM(3, 4, proj_size=2),
    ):
        with pytest.raises(ConfigError, match="proj_size: expected 0, got 2; project the output with torch"):
            make()


@pytest.mark.parametrize("name", MODELS)
def test_layouts_agree(name):
    model = MODELS[name](3, 6, num_layers=2)
    x = torch.randn(8, 4, 3)
    output, state, traces = model(x, need_trace=True)
    assert len(traces) == 2
    model.batch_first = True
    swapped, _ = model(x.transpose(0, 1))
    torch.testing.assert_close(swapped.transpose(0, 1), output)
    single, single_state = model(x[:, 1])
    torch.testing.assert_close(single, output[:, 1])
    torch.testing.assert_close(single_state.hidden, state.hidden[:, 1])
    again, _ = model(x[:, 1], single_state)
    assert again.shape == (8, 6)


@pytest.mark.parametrize("name", MODELS)
def test_packed_sequences(name):
    model = MODELS[name](3, 6, num_layers=2)
    lengths = [3, 7, 5, 7]
    rows = [torch.randn(n, 3) for n in lengths]
    packed, state, traces = model(pack_sequence(rows, enforce_sorted=False), need_trace=True)
    output, out_lengths = pad_packed_sequence(packed)
    assert out_lengths.tolist() == lengths
    for index, row in enumerate(rows):
        alone, end, (alone_trace, _) = model(row[:, None], need_trace=True)
        torch.testing.assert_close(output[: len(row), index], alone[:, 0])
        torch.testing.assert_close(state.hidden[:, index], end.hidden[:, 0])
        width = alone_trace.born.shape[2]
        assert torch.equal(traces[0].born[: len(row), index, :width], alone_trace.born[:, 0])
        assert (traces[0].born[len(row) :, index] == -1).all()
    further, _ = model(torch.randn(2, 4, 3), state)
    assert further.shape == (2, 4, 6)


def test_packed_state_follows_the_callers_order():
    model = plait.RelLSTM(3, 6)
    rows = [torch.randn(n, 3) for n in (2, 5)]
    begin = torch.randn(1, 2, 6), torch.randn(1, 2, 6)
    model.warns_of_empty_memory = False
    _, state = model(pack_sequence(rows, enforce_sorted=False), begin)
    _, alone = model(rows[0][:, None], (begin[0][:, :1], begin[1][:, :1]))
    torch.testing.assert_close(state.hidden[:, 0], alone.hidden[:, 0])


def test_torch_state_is_accepted():
    model = plait.RelLSTM(3, 6, num_layers=2)
    h, c = torch.randn(2, 4, 6), torch.randn(2, 4, 6)
    with pytest.warns(EmptyMemoryWarning):
        output, state = model(torch.randn(5, 4, 3), (h, c))
    assert state.hidden.shape == state.cell_state.shape == (2, 4, 6)
    assert output.shape == (5, 4, 6)


def test_detached_state_stops_the_gradient():
    model = plait.RelRNN(3, 6)
    x = torch.randn(4, 2, 3, requires_grad=True)
    _, state = model(x)
    (grad,) = torch.autograd.grad(model(torch.randn(3, 2, 3), state)[0].sum(), x)
    assert grad.abs().max() > 0
    output, _ = model(torch.randn(3, 2, 3), state.detach())
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(output.sum(), x)


@pytest.mark.parametrize("model", [plait.RelLSTM(3, 4), nn.LSTM(3, 4)], ids=["ours", "torch"])
def test_empty_sequences_and_batches_behave_as_in_torch(model):
    with pytest.raises(RuntimeError):
        model(torch.randn(0, 2, 3))
    output, _ = model(torch.randn(5, 0, 3))
    assert output.shape == (5, 0, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 7)), "input: expected 3 features, got 7"),
        (lambda: plait.RelRNN(3, 4)(torch.randn(3)), "expected 2 or 3 dimensions"),
        (lambda: plait.RelRNN(3, 4)(torch.ones(5, 2, 3, dtype=torch.int64)), "expected floating point"),
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 3).double()), "expected torch.float32"),
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 3), torch.zeros(1, 3, 4)), r"expected \(1, 2, 4\)"),
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 3), (torch.zeros(1, 2, 4),) * 2), "no cell state"),
        (lambda: plait.RelLSTM(3, 4)(torch.randn(5, 2, 3), torch.zeros(1, 2, 4)), r"expected \(h_0, c_0\)"),
        (lambda: plait.RelGRU(3, 4)(torch.randn(5, 2, 3), (torch.zeros(2, 4),)), "h_0 or .* tuple of Tensor"),
        (lambda: plait.RelLSTM(3, 4)(torch.randn(5, 2, 3), (None, None)), "tuple of NoneType, NoneType"),
        (lambda: plait.RelLSTM(3, 4)(torch.randn(5, 2, 3), 7), "got int"),
        (
            lambda: plait.RelRNN(3, 4)(
                torch.randn(5, 2, 3), plait.RelRNN(3, 4, window=3)(torch.randn(5, 2, 3))[1]
            ),
            "pass the state this model returned",
        ),
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 3), reset=torch.zeros(5, 2)), "reset: expected bool"),
        (lambda: plait.RelRNN(3, 4)(torch.randn(5, 2, 3), nudge=[torch.zeros(5, 2, 9)]), "nudge: expected"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plait.RelRNN(0, 4), "input_size: expected at least 1, got 0"),
        (lambda: plait.RelRNN(3, -4), "hidden_size: expected at least 1, got -4"),
        (lambda: plait.RelRNN(3, 4, window=0), "window: expected at least 1"),
        (lambda: plait.RelRNN(3, 4, capacity=-1), "capacity: expected at least 0"),
        (lambda: plait.RelRNN(3, 4, num_layers=0), "num_layers: expected at least 1"),
        (lambda: plait.RelRNN(3, 4, dropout=1.5), "dropout: expected a probability"),
        (lambda: plait.RelRNN(3, 4, nonlinearity="tan"), "did you mean 'tanh'"),
        (lambda: plait.RelRNN(3, 4, initialiser="hennaf"), "did you mean 'henaff'"),
        (lambda: plait.RelRNN(3, 4, backend="cdnn"), "unknown backend"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        call()
    with pytest.raises(PlaitError):
        call()
