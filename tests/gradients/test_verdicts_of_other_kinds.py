"""Sentences about further kinds of models, with the answer known by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import plait
from plait.gradients import probe
from tests.gradients.sentences import (
    DOUBLE,
    Case,
    Own,
    T,
    blocks,
    check_case,
    draw,
    last,
    last_of_rows,
    last_sum,
)

CASES: dict[str, Callable[[], Case]] = {}
ROWS: dict[str, Any] = {"axis": 1, "options": {"time_axis": 1}}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def at_last(output: Tensor) -> Tensor:
    return output[..., -1].sum()


class Padded(nn.Module):
    """A causal convolution of two taps, in a module of its own."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv, self.dilation = nn.Conv1d(4, 4, 2, dilation=dilation), dilation

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(nn.functional.pad(x, (self.dilation, 0))))


@case
def dilated_convolutions_in_modules() -> Case:
    stack = nn.Sequential(nn.Conv1d(3, 4, 1), *(Padded(2**n) for n in range(5)))
    phrases = (
        "felt at 32 of 60 positions, nothing arrives from 32 steps off on, by construction",
        "28 can never",
    )
    return Case(
        Own(lambda self, x: self.stack(x), stack=stack), draw(2, 3, T), at_last, "ends", phrases, axis=2
    )


class Residual(nn.Module):
    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3, dilation=dilation))
        self.out, self.dilation = nn.Conv1d(8, 8, 1), dilation

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(torch.relu(self.conv(nn.functional.pad(x, (2 * self.dilation, 0)))))


@case
def residual_dilated_convolutions() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return x

    model = Own(run, inp=nn.Conv1d(3, 8, 1), blocks=nn.ModuleList(Residual(n) for n in (1, 2, 4, 8)))
    phrases = ("felt at 31 of 60 positions, nothing arrives from 31 steps off on",)
    return Case(model, draw(2, 3, T), at_last, "ends", phrases, axis=2)


@case
def strided_convolutions() -> Case:
    first, second = nn.Conv1d(3, 4, 4, stride=2, padding=1), nn.Conv1d(4, 4, 4, stride=2, padding=1)
    model = nn.Sequential(first, nn.Tanh(), second).to(DOUBLE)
    phrases = ("felt at 7 of 60 positions, nothing arrives from 7 steps off on",)
    return Case(model, draw(2, 3, T), at_last, "ends", phrases, axis=2)


@case
def convolutions_at_two_resolutions() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        fine = torch.tanh(self.fine(x))
        coarse = torch.tanh(self.coarse(nn.functional.avg_pool1d(fine, 2)))
        return self.out(torch.cat([fine, nn.functional.interpolate(coarse, scale_factor=2)], 1))

    three = {"kernel_size": 3, "padding": 1}
    parts = {
        "fine": nn.Conv1d(3, 4, **three),
        "coarse": nn.Conv1d(4, 4, **three),
        "out": nn.Conv1d(8, 4, **three),
    }
    phrases = ("felt at 10 of 60 positions, nothing arrives from 6 steps off on",)
    return Case(
        Own(run, **parts), draw(2, 3, T), lambda y: y[..., 29].sum(), "ends", phrases, axis=2, read=(30,)
    )


class MatrixMemory(nn.Module):
    """An xLSTM's matrix memory: C_t = f C_{t-1} + i v kᵀ with exponential gates, stabilised."""

    def __init__(self, forget: float) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.input, self.forget = nn.Linear(4, 1), forget

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, gate = self.query(x), self.key(x) / 2, self.value(x), self.input(x)
        forget = nn.functional.logsigmoid(torch.tensor(self.forget, dtype=x.dtype))
        memory, weight, most, outputs = (
            x.new_zeros(len(x), 4, 4),
            x.new_zeros(len(x), 4),
            x.new_zeros(len(x), 1),
            [],
        )
        for t in range(x.shape[1]):
            after = torch.maximum(forget + most, gate[:, t])
            old, new = torch.exp(forget + most - after), torch.exp(gate[:, t] - after)
            memory = old.unsqueeze(-1) * memory + (new * value[:, t]).unsqueeze(-1) * key[:, t].unsqueeze(-2)
            weight, most = old * weight + new * key[:, t], after
            read = (memory @ query[:, t].unsqueeze(-1)).squeeze(-1)
            outputs.append(read / (weight * query[:, t]).sum(-1, keepdim=True).abs().clamp_min(1.0))
        return x + torch.stack(outputs, 1)


@case
def matrix_memory_that_keeps() -> Case:
    return Case(blocks(MatrixMemory(6.0)), draw(2, T, 4), last_of_rows, "reaches", **ROWS)


@case
def matrix_memory_that_forgets() -> Case:
    return Case(
        blocks(MatrixMemory(-3.0)), draw(2, T, 4), last_of_rows, "vanishes", ("felt at 5 of 60",), **ROWS
    )


class Oscillators(nn.Module):
    """A diagonal state-space layer with complex poles, as a convolution by FFT (S4D)."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.mix, self.poles = nn.Linear(4, 4), -decay + 1j * math.pi * torch.arange(6, dtype=DOUBLE)
        self.out = nn.Parameter(torch.randn(4, 6, 2))

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        kernel = (
            torch.view_as_complex(self.out) @ torch.exp(0.1 * self.poles.unsqueeze(-1) * torch.arange(steps))
        ).real
        product = torch.fft.rfft(x.transpose(1, 2), n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
        return self.mix(
            nn.functional.gelu(torch.fft.irfft(product, n=2 * steps)[..., :steps].transpose(1, 2))
        )


@case
def slow_oscillators() -> Case:
    return Case(blocks(Oscillators(0.5), Oscillators(0.5)), draw(2, T, 4), last_of_rows, "reaches", **ROWS)


@case
def fast_oscillators() -> Case:
    phrases = ("felt at 7 of 60 positions, below a millionth from 7 steps off",)
    return Case(blocks(Oscillators(20.0)), draw(2, T, 4), last_of_rows, "vanishes", phrases, **ROWS)


class Retention(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.factor = (
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            factor,
        )

    def forward(self, x: Tensor) -> Tensor:
        lags = torch.arange(x.shape[1]).unsqueeze(-1) - torch.arange(x.shape[1])
        decay = torch.where(lags >= 0, self.factor ** lags.clamp_min(0), 0.0)
        return x + (self.query(x) @ self.key(x).transpose(1, 2) * decay) @ self.value(x)


@case
def retention() -> Case:
    phrases = ("felt at 20 of 60 positions, below a millionth from 20 steps off",)
    return Case(blocks(Retention(0.5)), draw(2, T, 4), last_of_rows, "vanishes", phrases, **ROWS)


class Minimal(nn.Module):
    """A minGRU: gates of the input alone, so that the recurrence is a scan."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.gate, self.new, self.bias = nn.Linear(4, 4), nn.Linear(4, 4), bias

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x) + self.bias)
        kept = torch.log1p(-gate).cumsum(1)
        return x + torch.exp(kept) * (gate * self.new(x) * torch.exp(-kept)).cumsum(1)


@case
def minimal_gru_with_closed_gates() -> Case:
    return Case(blocks(Minimal(-5.0)), draw(2, T, 4) / 3, last_of_rows, "reaches", ("60 of 60",), **ROWS)


@case
def minimal_gru_with_open_gates() -> Case:
    return Case(blocks(Minimal(1.0)), draw(2, T, 4) / 3, last_of_rows, "vanishes", **ROWS)


def decoder_with_attention() -> nn.Module:
    def run(self: Any, x: Tensor, targets: Tensor) -> Tensor:
        states, last_states = self.encoder(x)
        hidden, outputs = last_states[0], []
        for target in targets:
            weights = torch.einsum("tbh,bh->tb", states, hidden).softmax(0)
            context = (weights.unsqueeze(-1) * states).sum(0)
            hidden = self.decoder(torch.cat([target, context], -1), hidden)
            outputs.append(self.out(torch.cat([hidden, context], -1)))
        return torch.stack(outputs)

    return Own(run, encoder=nn.GRU(3, 6), decoder=nn.GRUCell(8, 6), out=nn.Linear(12, 4))


@case
def encoder_and_decoder_with_attention() -> Case:
    phrases = (
        "at 60 of 60 positions, so there is no one distance; what is read at position 60 vanishes: felt",
    )
    return Case(decoder_with_attention(), draw(T, 2, 3), last, "is read", phrases, more=(draw(9, 2, 2),))


@case
def encoder_and_decoder_that_is_taught_at_every_step() -> Case:
    def run(self: Any, x: Tensor, targets: Tensor) -> Tensor:
        return self.out(self.decoder(targets, self.encoder(x)[1])[0])

    model = Own(run, encoder=nn.LSTM(3, 6), decoder=nn.LSTM(2, 6), out=nn.Linear(6, 4))
    return Case(model, draw(T, 2, 3), lambda y: y.square().mean(), "vanishes", more=(draw(9, 2, 2),))


@case
def decoder_that_reads_its_own_outputs() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = None, []
        for t in range(len(x)):
            hidden = self.cell(x[t] if t < 30 else self.out(hidden), hidden)
            outputs.append(hidden)
        return torch.stack(outputs)

    phrases = ("felt at 23 of 60 positions, the nearest 30 steps off, not at 31 to 60 (by construction)",)
    return Case(
        Own(run, cell=nn.GRUCell(3, 8), out=nn.Linear(8, 3)), draw(T, 2, 3), last, "vanishes", phrases
    )


@case
def packed_rows_read_at_their_ends() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        output, _ = self.rnn(pack_padded_sequence(x, torch.tensor([60, 45])))
        return pad_packed_sequence(output)[0]

    def loss(output: Tensor) -> Tensor:
        return output[59, 0].square().sum() + output[44, 1].square().sum()

    return Case(Own(run, rnn=nn.LSTM(3, 6)), draw(T, 2, 3), loss, "vanishes", read=(45, 60))


@case
def packed_rows_in_any_order_read_by_their_last_state() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, torch.tensor([40, 60, 50]), enforce_sorted=False)
        return self.rnn(packed)[1][-1]  # of the direction that ends at the first step

    model = Own(run, rnn=nn.GRU(3, 6, bidirectional=True))
    return Case(model, draw(T, 3, 3), lambda y: y.square().sum(), "vanishes", read=(1,))


@case
def bidirectional_lstm_read_by_both_last_states() -> Case:
    model = Own(lambda self, x: self.rnn(x)[1][0], rnn=nn.LSTM(3, 6, bidirectional=True))
    phrases = ("felt at 55 of 60 positions, below a millionth from 28 steps off",)
    return Case(
        model, draw(T, 2, 3), lambda y: y.square().sum(), "vanishes", phrases, read=(1, 60), is_two_way=True
    )


@case
def bidirectional_layers_pooled_by_their_largest() -> Case:
    model = Own(
        lambda self, x: self.rnn(x)[0][[4, 30, 59]].amax(0),
        rnn=nn.GRU(3, 6, num_layers=2, bidirectional=True),
    )
    return Case(
        model, draw(T, 2, 3), lambda y: y.square().sum(), "reaches", read=(5, 31, 60), is_two_way=True
    )


@case
def bidirectional_layer_read_everywhere() -> Case:
    model = nn.GRU(3, 6, bidirectional=True, dtype=DOUBLE)
    phrases = ("; what is read at position 60 vanishes: felt at",)
    return Case(model, draw(T, 2, 3), lambda y: y[0].square().sum(), "is read", phrases)


def detached(every: int) -> nn.Module:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden = memory = torch.zeros(2, 8, dtype=DOUBLE)
        outputs = []
        for t in range(len(x)):
            if t % every == 0:
                hidden, memory = hidden.detach(), memory.detach()
            hidden, memory = self.cell(x[t], (hidden, memory))
            outputs.append(hidden)
        return torch.stack(outputs)

    return Own(run, cell=nn.LSTMCell(3, 8))


@case
def detached_every_seven_steps() -> Case:
    phrases = (
        "felt at 4 of 60 positions, nothing arrives from 4 steps off on, by construction",
        "56 can never",
    )
    return Case(detached(7), draw(T, 2, 3), last, "ends", phrases)


@case
def detached_every_eleven_steps_and_read_in_the_middle() -> Case:
    phrases = (
        "felt at 9 of 60 positions (18 come after what the loss reads), nothing arrives from 9",
        "33 can never",
    )
    return Case(detached(11), draw(T, 2, 3), lambda y: y[41].square().sum(), "ends", phrases, read=(42,))


@case
def segments_with_a_detached_memory() -> Case:
    """Attention over a segment of 15 and the one before, which is detached, as Transformer-XL's."""

    def run(self: Any, x: Tensor) -> Tensor:
        before, outputs = x[:, :0], []
        for segment in x.split(15, 1):
            context = torch.cat([before, segment], 1)
            mask = torch.ones(15, context.shape[1], dtype=torch.bool).tril(context.shape[1] - 15)
            scores = self.query(segment) @ self.key(context).transpose(1, 2)
            read = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ self.value(context)
            outputs.append(segment + read)
            before = segment.detach()
        return torch.cat(outputs, 1)

    model = Own(run, query=nn.Linear(4, 4), key=nn.Linear(4, 4), value=nn.Linear(4, 4))
    options = {"layers": ["query", "key", "value"], "time_axis": 1}
    phrases = (
        "felt at 15 of 60 positions, nothing arrives from 15 steps off on, by construction",
        "45 can never",
    )
    return Case(model, draw(2, T, 4), last_of_rows, "ends", phrases, axis=1, options=options)


@case
def two_losses_on_two_layers() -> Case:
    def run(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        lower = self.lower(x)[0]
        return lower, self.upper(lower)[0]

    def loss(output: tuple[Tensor, Tensor]) -> Tensor:
        return output[0][19].square().sum() + output[1][-1].square().sum()

    model = Own(run, lower=nn.GRU(3, 5), upper=nn.GRU(5, 5))
    return Case(model, draw(T, 2, 3), loss, "vanishes", read=(20, 60))


@case
def mean_of_all_outputs() -> Case:
    model = nn.GRU(3, 5, dtype=DOUBLE)
    return Case(model, draw(T, 2, 3), lambda y: y[0].mean(0).square().sum(), "is read", ("at 60 of 60",))


@case
def mean_of_the_last_outputs() -> Case:
    model, read = nn.LSTM(3, 5, dtype=DOUBLE), tuple(range(41, T + 1))
    return Case(model, draw(T, 2, 3), lambda y: y[0][40:].mean(0).square().sum(), "reaches", read=read)


@case
def rows_of_several_lengths() -> Case:
    def loss(output: Any) -> Tensor:
        return output[0][torch.tensor([19, 39, 59]), torch.arange(3)].square().sum()

    return Case(nn.GRU(3, 5, dtype=DOUBLE), draw(T, 3, 3), loss, "reaches", read=(20, 40, 60))


@case
def recurrence_over_eight_steps() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        states = [torch.zeros(2, 4, dtype=DOUBLE)] * 8
        for t in range(len(x)):
            states.append(self.cell(x[t], states[t]))
        return torch.stack(states[8:])

    phrases = ("felt at 8 of 60 positions, not at 5 to 11 (by construction) and in 6 further holes",)
    return Case(Own(run, cell=nn.GRUCell(3, 4)), draw(T, 2, 3), last, "has a hole", phrases)


@case
def steps_of_four_positions() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        features = nn.functional.avg_pool1d(torch.relu(self.conv(x.permute(1, 2, 0))), 4)
        return self.rnn(features.permute(2, 0, 1))[0]

    model = Own(run, conv=nn.Conv1d(3, 5, 3, padding=1), rnn=nn.GRU(5, 5))
    return Case(model, draw(T, 2, 3), last, "reaches", ("felt at 60 of 60 positions",))


@case
def convolution_that_sees_ahead_of_a_recurrence() -> Case:
    model = Own(
        lambda self, x: self.rnn(self.conv(x.permute(1, 2, 0)).permute(2, 0, 1))[0],
        conv=nn.Conv1d(3, 4, 9, padding=4),
        rnn=nn.GRU(4, 4),
    )
    phrases = ("felt at 34 of 60 positions (26 come too long after what the loss reads)",)
    return Case(model, draw(T, 2, 3), lambda y: y[29].square().sum(), "reaches", phrases, read=(30,))


class Peephole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input, self.hidden = nn.Linear(3, 16), nn.Linear(4, 16, bias=False)
        self.peep = nn.Parameter(torch.randn(3, 4) / 3)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        enter, forget, new, leave = (self.input(x) + self.hidden(state[0])).chunk(4, -1)
        kept = torch.sigmoid(forget + self.peep[1] * state[1] + 3) * state[1]
        memory = kept + torch.sigmoid(enter + self.peep[0] * state[1]) * torch.tanh(new)
        return torch.sigmoid(leave + self.peep[2] * memory) * torch.tanh(memory), memory


@case
def lstm_with_peepholes_in_a_loop() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        state = (torch.zeros(2, 4, dtype=DOUBLE),) * 2
        outputs = []
        for step in x:
            state = self.cell(step, state)
            outputs.append(state[0])
        return torch.stack(outputs)

    options = {"layers": ["cell"], "time_axis": 0}
    return Case(Own(run, cell=Peephole()), draw(T, 2, 3), last, "reaches", options=options)


@case
def normalised_recurrence_without_an_axis() -> Case:
    """A module of states (B, feature) that a loop calls needs no axis of time."""

    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = torch.zeros(2, 6, dtype=DOUBLE), []
        for step in x:
            hidden = torch.tanh(self.norm(self.input(step) + self.hidden(hidden)))
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    model = Own(run, input=nn.Linear(3, 6), hidden=nn.Linear(6, 6), norm=nn.LayerNorm(6))
    return Case(model, draw(T, 2, 3), last_of_rows, "vanishes", options={"layers": ["norm"]})


@case
def lstm_with_a_projection() -> Case:
    return Case(nn.LSTM(3, 12, proj_size=4, num_layers=2, dtype=DOUBLE), draw(T, 2, 3), last, "vanishes")


@case
def memory_that_is_reset() -> Case:
    def run(self: Any, x: Tensor) -> Any:
        reset = torch.zeros(T, 2, dtype=torch.bool)
        reset[35] = True
        return self.layer(x, reset=reset)

    model = Own(run, layer=plait.RelLSTM(3, 6, window=4, capacity=3))
    phrases = ("felt at 25 of 60 positions, nothing arrives from 25 steps off on, by construction",)
    return Case(model, draw(T, 2, 3), last, "ends", phrases)


class Windowed(nn.Module):
    """Causal attention to the latest eight positions and the first four."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1])
        lags = steps.unsqueeze(-1) - steps
        hidden = (lags < 0) | ((lags >= 8) & (steps >= 4))
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return x + scores.masked_fill(hidden, -torch.inf).softmax(-1) @ self.value(x)


@case
def window_with_sinks() -> Case:
    phrases = ("felt at 19 of 60 positions, not at 5 to 45 (by construction)", "No training fills it")
    return Case(blocks(Windowed(), Windowed()), draw(2, T, 4), last_of_rows, "has a hole", phrases, **ROWS)


@case
def one_position_above_all_others() -> Case:
    """A vector of zeros is divided by next to nothing, as the embedding of padding is by a normalisation."""

    def run(self: Any, x: Tensor) -> Tensor:
        return self.rnn(x / (x.square().sum(-1, keepdim=True) + 1e-18).sqrt())[0]

    module = nn.GRU(3, 4)
    with torch.no_grad():
        module.weight_hh_l0.zero_()
        module.bias_ih_l0[4:8] = 6.0
    x = draw(T, 2, 3)
    x[9] = 0.0
    phrases = (" times as much at position 10 as where the loss is",)
    return Case(Own(run, rnn=module), x, last_sum, "peaks", phrases)


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_true_of_autograd(name: str) -> None:
    check_case(CASES[name]())


def test_reads_of_a_lower_layer_are_not_the_upper_ones() -> None:
    known = CASES["two_losses_on_two_layers"]()
    profile = probe(known.model, known.x, known.loss)
    assert [layer.acting for layer in profile.layers] == [(20, 60), (60,)]


def test_each_direction_is_read_where_it_is_read() -> None:
    known = CASES["bidirectional_lstm_read_by_both_last_states"]()
    profile = probe(known.model, known.x, known.loss)
    assert [layer.acting for layer in profile.layers] == [(60,), (1,)]
    one = CASES["packed_rows_in_any_order_read_by_their_last_state"]()
    forward, _ = probe(one.model, one.x, one.loss).layers
    assert forward.verdict().endswith(": the loss does not depend on these states, or they are detached.")


def test_what_is_read_at_one_position_enters_both_directions() -> None:
    known = CASES["bidirectional_layer_read_everywhere"]()
    reach = probe(known.model, known.x, known.loss).inputs[0].reach
    assert reach is not None
    for position, row in zip(reach.positions, reach.norms, strict=True):
        leaf = known.x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(known.model(leaf)[0][position - 1].square().sum(), leaf)
        assert row == pytest.approx(gradient.flatten(1).norm(dim=1).numpy(), rel=1e-7)


def test_an_output_that_another_reads_is_not_a_read_of_the_loss() -> None:
    """The lower output is returned too, and the upper layer reads it everywhere."""
    known = CASES["two_losses_on_two_layers"]()
    profile = probe(known.model, known.x, lambda output: output[1][-1].square().sum())
    assert profile.inputs[0].acting == (60,)
