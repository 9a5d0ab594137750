"""Two directions, each with its own cells and memory, laid out as torch lays them out."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import plait
from plait.errors import ConfigError, ShapeError
from plait.gradients import probe
from plait.gradients.paths import path_breakdown
from plait.gradients.paths.stack import stack_of
from plait.lab.training.fit import fit
from plait.lab.training.ppo.policy import describe_policy
from plait.models import MODELS
from plait.models.options import check_model

NAMESAKES = [(plait.RNN, nn.RNN), (plait.LSTM, nn.LSTM), (plait.GRU, nn.GRU)]
BOTH_WAYS = sorted(set(MODELS) - {"transformer"})


def parts(state):
    return tuple(state) if isinstance(state, tuple) or state.cell_state is not None else (state.hidden,)


@pytest.mark.parametrize(("ours", "theirs"), NAMESAKES)
@pytest.mark.parametrize("batch_first", [True, False])
def test_without_a_memory_it_is_the_torch_layer(ours, theirs, batch_first):
    reference = theirs(3, 5, num_layers=2, bidirectional=True, batch_first=batch_first, dtype=torch.float64)
    model = ours.from_torch(reference)
    assert (model.bidirectional, model.bias, model.proj_size, model.num_layers) == (True, True, 0, 2)
    x = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    rows = 4 if batch_first else 6
    begin = torch.randn(4, rows, 5, dtype=torch.float64)
    begin = (begin, torch.randn_like(begin)) if theirs is nn.LSTM else begin
    for start in (None, begin):
        expected, end = reference(x, start)
        output, state = model(x, start)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(parts(state), end if isinstance(end, tuple) else (end,))
        (wanted,) = torch.autograd.grad(expected.square().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(output.square().sum(), x)[0], wanted)


@pytest.mark.parametrize(("ours", "theirs"), NAMESAKES)
def test_packed_and_unbatched_sequences_are_torchs(ours, theirs):
    reference = theirs(3, 5, num_layers=2, bidirectional=True)
    model = ours.from_torch(reference)
    packed = pack_sequence([torch.randn(n, 3) for n in (4, 7, 1, 7)], enforce_sorted=False)
    (expected, end), (output, state) = reference(packed), model(packed)
    torch.testing.assert_close(output.data, expected.data)
    torch.testing.assert_close(parts(state), end if isinstance(end, tuple) else (end,))
    alone = torch.randn(6, 3)
    (expected, end), (output, state) = reference(alone), model(alone)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(parts(state), end if isinstance(end, tuple) else (end,))


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_each_direction_is_a_model_of_its_own(name):
    """One level: the first half of the output is the forward layer's, the second that of the backward one on
    the sequence turned round."""
    model = MODELS[name](3, 4, bidirectional=True)
    x = torch.randn(15, 2, 3)
    output, state, traces = model(x, need_trace=True)
    assert output.shape == (15, 2, 8) == (15, 2, model.output_size)
    ahead, behind = model.layers
    there, back = ahead(x, need_trace=True), behind(x.flip(0), need_trace=True)
    torch.testing.assert_close(output, torch.cat([there.output, back.output.flip(0)], dim=-1))
    torch.testing.assert_close(state.hidden, torch.stack([there.state.hidden, back.state.hidden]))
    assert len(traces) == len(state.memory) == 2
    assert torch.equal(traces[1].born, back.trace.born.flip(0))


@pytest.mark.parametrize("name", ["relrnn", "rellstm", "memlstm", "sab"])
def test_rows_of_a_packed_sequence_are_as_if_alone(name):
    model = MODELS[name](3, 4, num_layers=2, bidirectional=True)
    rows = [torch.randn(n, 3) for n in (3, 15, 9)]
    packed, state, traces = model(pack_sequence(rows, enforce_sorted=False), need_trace=True)
    output, _ = pad_packed_sequence(packed)
    for index, row in enumerate(rows):
        alone, end, alone_traces = model(row[:, None], need_trace=True)
        torch.testing.assert_close(output[: len(row), index], alone[:, 0])
        torch.testing.assert_close(state.hidden[:, index], end.hidden[:, 0])
        for trace, wanted in zip(traces, alone_traces, strict=True):
            width = wanted.born.shape[2]
            assert torch.equal(trace.born[: len(row), index, :width], wanted.born[:, 0])
            assert (trace.born[len(row) :, index] == -1).all()


@pytest.mark.parametrize("name", ["relrnn", "lstm"])
def test_a_reset_parts_two_sequences_in_both_directions(name):
    model = MODELS[name](3, 4, bidirectional=True)
    x = torch.randn(9, 2, 3)
    reset = torch.zeros(9, 2, dtype=torch.bool)
    reset[4, 0] = True
    output, _ = model(x, reset=reset)
    first, second = model(x[:4, :1])[0], model(x[4:, :1])[0]
    torch.testing.assert_close(output[:, :1], torch.cat([first, second]))
    torch.testing.assert_close(output[:, 1:], model(x[:, 1:])[0])


def test_a_nudge_receives_the_gradient_of_its_direction_at_its_step():
    model = plait.RelLSTM(3, 4, num_layers=2, bidirectional=True, dtype=torch.float64)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    nudges = [torch.zeros(6, 2, 4, dtype=torch.float64, requires_grad=True) for _ in model.layers]
    weight = torch.randn(6, 2, 8, dtype=torch.float64)
    grads = torch.autograd.grad((model(x, nudge=nudges)[0] * weight).sum(), nudges)
    for layer, grad in zip((0, 1, 2, 3), grads, strict=True):
        moved = [torch.zeros_like(part) for part in nudges]
        moved[layer][2, 1, 3] = 1e-6
        slope = ((model(x, nudge=moved)[0] - model(x)[0]) * weight).sum() / 1e-6
        torch.testing.assert_close(grad[2, 1, 3], slope, rtol=1e-4, atol=1e-6)


def test_it_cannot_be_continued():
    model = plait.RelLSTM(3, 4, bidirectional=True)
    x = torch.randn(5, 2, 3)
    _, state = model(x)
    with pytest.raises(ShapeError, match=r"got a State: a bidirectional model reads whole sequences"):
        model(x, state)
    h, c = state  # as torch takes them
    assert h.shape == c.shape == (2, 2, 4)
    assert model(x, (h, c))[0].shape == (5, 2, 8)


def test_a_description_names_it_only_where_it_is_so():
    assert "bidirectional" not in plait.RelLSTM(3, 4).options()
    options = plait.RelLSTM(3, 4, bidirectional=True).options()
    assert options["bidirectional"] is True
    again = plait.RelLSTM(3, **options)
    assert again.options() == options
    check_model({"name": "rellstm", **options})
    with pytest.raises(ConfigError, match="bidirectional: expected true or false, got 'yes'"):
        check_model({"name": "rellstm", "hidden_size": 4, "bidirectional": "yes"})


def test_what_it_is_not_for():
    with pytest.raises(ConfigError, match="bidirectional: expected False, got True; it is causal"):
        plait.Transformer(3, 4, bidirectional=True)
    with pytest.raises(ConfigError, match="a forward and a backward one for each level, got 1"):
        plait.Recurrent([plait.SelfAttentive(plait.GRUCell(3, 4))], bidirectional=True)


def test_what_asks_for_one_direction_says_so(stream_task):
    model, x = plait.RelRNN(3, 4, bidirectional=True), torch.randn(5, 1, 3)
    for ask in (
        lambda: probe(model, x, lambda output: output[0].sum()),
        lambda: path_breakdown(model, x, t=1, T=4),
        lambda: stack_of(model),
        lambda: describe_policy("DoorKey-5x5", "rellstm", bidirectional=True),
        lambda: fit(plait.RelLSTM(2, 4, bidirectional=True), stream_task(), device="cpu"),
    ):
        with pytest.raises(ConfigError, match=r"bidirectional"):
            ask()


def test_it_compiles_and_is_exported():
    model, x = plait.RelLSTM(3, 4, bidirectional=True), torch.randn(4, 2, 3)
    output, _ = torch.compile(model, backend="aot_eager")(x)
    torch.testing.assert_close(output, model(x)[0])
    exported, _ = torch.export.export(model.eval(), (x,)).module()(x)
    torch.testing.assert_close(exported, model(x)[0])
