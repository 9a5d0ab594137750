"""Models whose gradient by the input is known from autograd, and the sentence that the probe gives them.

Every number of a sentence is compared with the norms of autograd by the input, position by position. The word
that opens it, and where a sequence ends, are those of a model built for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

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


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


def identity_rnn(factor: float, length: int = T) -> nn.Module:
    model = plait.RNN(3, 4, nonlinearity="identity", dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(factor * torch.eye(4))
    return model


@case
def leaky_nine_tenths() -> Case:
    return Case(
        identity_rnn(0.9), draw(T, 2, 3), last_sum, "reaches", ("a factor of 0.9 per step (R² 1.00)",)
    )


@case
def leaky_999() -> Case:
    return Case(identity_rnn(0.999), draw(T, 2, 3), last_sum, "reaches", ("a factor of 0.999 per step",))


@case
def leaky_half() -> Case:
    phrase = "felt at 20 of 60 positions, below a millionth from 20 steps off"
    return Case(identity_rnn(0.5), draw(T, 2, 3), last_sum, "vanishes", (phrase,))


@case
def growing() -> Case:
    phrase = "1000 times larger 18 steps off than where the loss is"
    return Case(identity_rnn(1.5), draw(T, 2, 3), last_sum, "explodes", (phrase,))


def own_loop(factor: float, by_step: bool = False, cut: int = 0, only_last: bool = False) -> nn.Module:
    def run(self: Any, x: Tensor) -> Tensor:
        state, states = torch.zeros(x.shape[1], 4, dtype=DOUBLE), []
        entering = None if by_step else self.inp(x)
        for t in range(len(x)):
            state = state.detach() if cut and t % cut == 0 else state
            state = factor * state + (self.inp(x[t]) if entering is None else entering[t])
            states.append(state)
        return states[-1] if only_last else torch.stack(states)

    return Own(run, inp=nn.Linear(3, 4))


INP = {"layers": ["inp"], "time_axis": 0}
TWENTY = "felt at 20 of 60 positions, below a millionth from 20 steps off"


@case
def own_loop_over_states() -> Case:
    return Case(own_loop(0.5), draw(T, 2, 3), last_sum, "vanishes", (TWENTY,), options=INP)


@case
def own_loop_that_calls_a_module_each_step() -> Case:
    return Case(own_loop(0.5, by_step=True), draw(T, 2, 3), last_sum, "vanishes", (TWENTY,), options=INP)


@case
def own_loop_that_returns_its_last_state() -> Case:
    model = own_loop(0.5, only_last=True)
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "vanishes", (TWENTY,), options=INP)


@case
def own_loop_read_at_three_positions() -> Case:
    return Case(
        own_loop(0.5),
        draw(T, 2, 3),
        lambda y: y[[9, 24, 59]].sum(),
        "vanishes",
        ("felt at 45 of 60 positions",),
        read=(10, 25, 60),
        options=INP,
    )


@case
def own_loop_that_detaches() -> Case:
    phrases = ("felt at 15 of 60", "nothing arrives from 15 steps off on, by construction", "45 can never be")
    return Case(own_loop(0.9, cut=15), draw(T, 2, 3), last_sum, "ends", phrases, options=INP)


@case
def own_loop_that_detaches_and_returns_its_last_state() -> Case:
    model = own_loop(0.9, cut=15, only_last=True)
    phrases = ("felt at 15 of 60", "nothing arrives from 15 steps off on, by construction")
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "ends", phrases, options=INP)


@case
def delay_line_of_a_recurrence() -> Case:
    model = plait.RNN(4, 17, nonlinearity="identity", dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(torch.diag(torch.ones(16), -1))
        model.layers[0].cell.weight_ih.zero_()[0] = 1.0
    phrases = ("felt at 17 of 60", "exactly zero from 17 steps off on, because of its weights")
    return Case(model, draw(T, 2, 4), last_sum, "is blocked", phrases)


def causal(conv: nn.Conv1d, left: int) -> nn.Module:
    return Own(lambda self, x: self.conv(nn.functional.pad(x, (left, 0))), conv=conv)


CONV = {"axis": 2}


def at_last(output: Tensor) -> Tensor:
    return output[:, :, -1].sum()


@case
def delay_line_of_a_convolution() -> Case:
    conv = nn.Conv1d(3, 4, 18, padding=17)
    with torch.no_grad():
        conv.weight[:, :, 1:] = 0
    model = Own(lambda self, x: self.conv(x)[..., : x.shape[-1]], conv=conv)
    phrases = (
        "felt at 1 of 60 positions, the nearest 17 steps off, not at 44 to 60 (exact zeros of its weights",
        "nothing arrives from 18 steps off on, by construction",
    )
    return Case(model, draw(2, 3, T), at_last, "has a hole", phrases, **CONV)


@case
def hole_of_a_convolution() -> Case:
    conv = nn.Conv1d(3, 4, 34)
    with torch.no_grad():
        conv.weight[:, :, 4:30] = 0
    phrases = (
        "felt at 8 of 60 positions, not at 31 to 56 (exact zeros of",
        "nothing arrives from 34 steps off",
    )
    return Case(causal(conv, 33), draw(2, 3, T), at_last, "has a hole", phrases, **CONV)


@case
def dilated_convolution() -> Case:
    phrases = (
        "felt at 3 of 60 positions, not at 41 to 49 (by construction) and in 1 further hole, nothing arrives",
        "No training fills it",
    )
    conv = nn.Conv1d(3, 4, 3, dilation=10)
    with torch.no_grad():
        conv.weight[:, :, 1] *= 1.0
    return Case(causal(conv, 20), draw(2, 3, T), at_last, "has a hole", phrases, **CONV)


@case
def convolution_read_in_the_middle() -> Case:
    model = nn.Sequential(nn.Conv1d(3, 4, 5, padding=2), nn.Tanh(), nn.Conv1d(4, 4, 5, padding=2)).to(DOUBLE)
    phrases = ("felt at 9 of 60 positions, nothing arrives from 5 steps off on", "51 can never be felt")
    return Case(model, draw(2, 3, T), lambda y: y[..., 29].sum(), "ends", phrases, read=(30,), **CONV)


@case
def convolutions_cropped_to_be_causal() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.b(self.a(x)[..., : x.shape[-1]].tanh())[..., : x.shape[-1]]

    model = Own(run, a=nn.Conv1d(3, 4, 3, padding=2), b=nn.Conv1d(4, 4, 3, padding=8, dilation=4))
    phrases = ("felt at 9 of 60 positions", "not at 53 (by construction) and in 1 further hole")
    return Case(model, draw(2, 3, T), at_last, "has a hole", phrases, **CONV)


@case
def valid_convolution() -> Case:
    model = Own(lambda self, x: self.conv(x), conv=nn.Conv1d(3, 4, 7))
    return Case(model, draw(2, 3, T), at_last, "ends", ("felt at 7 of 60", "from 7 steps off on"), **CONV)


def gru_with(update: float) -> nn.GRU:
    """A GRU whose update gate has a pre-activation of `update` at every step, and W_hh = 0."""
    module = nn.GRU(3, 4, dtype=DOUBLE)
    with torch.no_grad():
        for parameter in (module.weight_hh_l0, module.bias_hh_l0, module.bias_ih_l0):
            parameter.zero_()
        module.weight_ih_l0[4:8] = 0
        module.bias_ih_l0[4:8] = update
    return module


@case
def gru_that_keeps() -> Case:
    return Case(gru_with(6.0), draw(T, 2, 3), last_sum, "reaches", ("felt at 60 of 60",))


@case
def gru_that_forgets() -> Case:
    z = torch.sigmoid(torch.tensor(-2.0)).item()
    steps = int(np.ceil(np.log(1e-6) / np.log(z)))
    return Case(gru_with(-2.0), draw(T, 2, 3), last_sum, "vanishes", (f"from {steps}", "factor of 0.119"))


@case
def plain_gru() -> Case:
    torch.manual_seed(0)
    return Case(nn.GRU(3, 8, dtype=DOUBLE), draw(T, 2, 3), last, "vanishes")


@case
def gru_of_three_layers_batch_first() -> Case:
    torch.manual_seed(0)
    model = nn.GRU(3, 8, num_layers=3, batch_first=True, dtype=DOUBLE)
    return Case(model, draw(2, T, 3), last_of_rows, "vanishes", axis=1)


def lstm_with(forget: float, recurrent: float, width: int = 4) -> nn.LSTM:
    torch.manual_seed(0)
    module = nn.LSTM(3, width, dtype=DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.mul_(recurrent)
        module.bias_ih_l0.zero_()
        module.bias_hh_l0.zero_()
        module.bias_ih_l0[width : 2 * width] = forget
        module.weight_ih_l0[width : 2 * width] = 0
    return module


@case
def lstm_carousel() -> Case:
    return Case(lstm_with(20.0, 1e-4), draw(T, 2, 3) / 3, last_sum, "reaches", ("felt at 60 of 60",))


@case
def lstm_carousel_without_recurrence() -> Case:
    return Case(lstm_with(20.0, 0.0), draw(T, 2, 3) / 3, last_sum, "reaches", ("felt at 60 of 60",))


@case
def lstm_that_forgets() -> Case:
    return Case(lstm_with(-2.0, 0.0), draw(T, 2, 3), last_sum, "vanishes")


@case
def lstm_read_in_the_middle() -> Case:
    torch.manual_seed(0)
    model = nn.LSTM(3, 8, dtype=DOUBLE)
    phrases = ("(20 come after what the loss reads)",)
    return Case(model, draw(T, 2, 3), lambda y: y[0][39].square().sum(), "vanishes", phrases, read=(40,))


@case
def lstm_read_at_three_positions() -> Case:
    torch.manual_seed(0)
    model = nn.LSTM(3, 8, dtype=DOUBLE)
    return Case(model, draw(T, 2, 3), lambda y: y[0][[9, 14, 59]].sum(), "vanishes", read=(10, 15, 60))


@case
def lstm_read_by_its_cell_state() -> Case:
    return Case(lstm_with(20.0, 1e-4), draw(T, 2, 3) / 3, lambda y: y[1][1].sum(), "reaches")


@case
def lstm_of_ours_read_by_its_state() -> Case:
    torch.manual_seed(0)
    return Case(plait.LSTM(3, 8, dtype=DOUBLE), draw(T, 2, 3), lambda y: y[1].hidden.sum(), "vanishes")


@case
def bidirectional_lstm_read_at_its_end() -> Case:
    torch.manual_seed(0)
    model = nn.LSTM(3, 8, bidirectional=True, dtype=DOUBLE)
    return Case(model, draw(T, 2, 3), last, "vanishes")


@case
def bidirectional_gru_read_in_the_middle() -> Case:
    torch.manual_seed(0)
    model = nn.GRU(3, 8, bidirectional=True, dtype=DOUBLE)
    return Case(model, draw(T, 2, 3), lambda y: y[0][29].sum(), "vanishes", read=(30,))


@case
def saturated_rnn() -> Case:
    module = nn.RNN(3, 8, dtype=DOUBLE)
    with torch.no_grad():
        module.bias_ih_l0.fill_(200.0)
    phrases = ("receives no gradient at any of 60 positions, though states above do, because of its weights",)
    return Case(module, draw(T, 2, 3), last, "is blocked", phrases)


@case
def rnn_saturated_but_for_its_end() -> Case:
    def run(self: Any, x: Tensor) -> Any:
        drive = torch.where(torch.arange(T).unsqueeze(-1).unsqueeze(-1) < T - 3, 400.0, 0.0)
        return self.rnn(x + drive)

    torch.manual_seed(0)
    module = nn.RNN(3, 8)
    with torch.no_grad():
        module.weight_ih_l0.abs_().add_(0.1)
    phrases = (
        "felt at 3 of 60 positions, exactly zero from 3 steps off on, because of its weights and inputs",
    )
    return Case(Own(run, rnn=module), draw(T, 2, 3), last, "is blocked", phrases)


@case
def rectified_rnn_with_a_dead_step() -> Case:
    module = nn.RNN(3, 4, nonlinearity="relu", dtype=DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(torch.eye(4))
        module.weight_ih_l0.abs_()
        module.bias_ih_l0.fill_(0.1)
    x = draw(T, 2, 3).abs()
    x[19] = -1000.0
    phrases = (
        "felt at 40 of 60 positions, exactly zero from 40 steps off on, because of its weights and inputs",
    )
    return Case(module, x, last_sum, "is blocked", phrases)


@case
def cell_detached_every_25_steps() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden = None
        for t in range(len(x)):
            hidden = self.cell(x[t], hidden.detach() if hidden is not None and t % 25 == 0 else hidden)
        return hidden

    torch.manual_seed(0)
    phrases = ("felt at 10 of 60 positions, nothing arrives from 10 steps off on, by construction",)
    return Case(Own(run, cell=nn.GRUCell(3, 8)), draw(T, 2, 3), lambda y: y.sum(), "ends", phrases)


def in_chunks(size: int, detach: bool) -> nn.Module:
    def run(self: Any, x: Tensor) -> Tensor:
        state, outputs = None, []
        for part in x.split(size):
            output, state = self.lstm(part, state)
            state = tuple(s.detach() for s in state) if detach else state
            outputs.append(output)
        return torch.cat(outputs)

    torch.manual_seed(0)
    return Own(run, lstm=nn.LSTM(3, 8))


@case
def truncated_backpropagation_in_chunks() -> Case:
    phrases = ("felt at 20 of 60 positions, nothing arrives from 20 steps off on, by construction",)
    return Case(in_chunks(20, True), draw(T, 2, 3), last, "ends", phrases)


@case
def chunks_with_the_state_carried_over() -> Case:
    return Case(in_chunks(5, False), draw(T, 2, 3), last, "vanishes")


def encoder_decoder(length: int) -> Case:
    def run(self: Any, x: Tensor, y: Tensor) -> Tensor:
        return self.decoder(y, self.encoder(x)[1])[0]

    torch.manual_seed(0)
    model = Own(run, encoder=nn.LSTM(3, 8), decoder=nn.LSTM(2, 8))
    return Case(model, draw(T, 2, 3), last, "vanishes", more=(draw(length, 2, 2),))


@case
def lstm_encoder_and_shorter_decoder() -> Case:
    return encoder_decoder(12)


@case
def lstm_encoder_and_decoder_of_one_length() -> Case:
    return encoder_decoder(T)


@case
def encoder_and_decoder_of_cells() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden = None
        for step in x:
            hidden = self.encoder(step, hidden)
        for _ in range(7):
            hidden = self.decoder(hidden, hidden)
        return hidden

    torch.manual_seed(0)
    model = Own(run, encoder=nn.GRUCell(3, 4), decoder=nn.GRUCell(4, 4))
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "vanishes")


@case
def two_cells_stacked_in_a_loop() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        a = b = torch.zeros(2, 4, dtype=DOUBLE)
        outputs = []
        for step in x:
            a = self.a(step, a)
            b = self.b(a, b)
            outputs.append(b)
        return torch.stack(outputs)

    torch.manual_seed(0)
    return Case(Own(run, a=nn.RNNCell(3, 4), b=nn.GRUCell(4, 4)), draw(T, 2, 3), last, "vanishes")


@case
def residual_recurrent_layers() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        x = x + self.a(x)[0]
        return x + self.b(self.norm(x))[0]

    torch.manual_seed(0)
    model = Own(run, a=nn.RNN(4, 4), b=nn.GRU(4, 4), norm=nn.LayerNorm(4))
    return Case(model, draw(T, 2, 4), last, "vanishes")


@case
def parallel_layers_of_two_speeds() -> Case:
    model = Own(lambda self, x: self.a(x)[0] + self.b(x)[0], a=gru_with(6.0), b=gru_with(-2.0))
    return Case(model, draw(T, 2, 3), last_sum, "reaches")


@case
def attention_pooling_over_an_lstm() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        states = self.lstm(x)[0]
        return (self.score(states).softmax(0) * states).sum(0)

    torch.manual_seed(0)
    model = Own(run, lstm=nn.LSTM(3, 8), score=nn.Linear(8, 1))
    phrases = ("is read at 60 of 60 positions, so there is no one distance",)
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "is read", phrases)


class Diagonal(nn.Module):
    """h_t = a h_{t−1} + x_t for each feature, as one product: a diagonal state-space layer."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.mix, self.factor = nn.Linear(4, 4), factor

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1], dtype=x.dtype)
        lags = steps.unsqueeze(-1) - steps
        kernel = torch.where(lags >= 0, self.factor ** lags.clamp_min(0), 0.0)
        return kernel @ self.mix(x)


ROWS = {"axis": 1, "options": {"time_axis": 1}}


@case
def slow_state_space_layer() -> Case:
    model = blocks(Diagonal(0.99))
    return Case(model, draw(2, T, 4), lambda y: y[:, -1].sum(), "reaches", ("a factor of 0.99",), **ROWS)


@case
def fast_state_space_layer() -> Case:
    model = blocks(Diagonal(0.05))
    phrases = ("felt at 5 of 60 positions, below a millionth from 5 steps off",)
    return Case(model, draw(2, T, 4), lambda y: y[:, -1].sum(), "vanishes", phrases, **ROWS)


@case
def two_state_space_layers() -> Case:
    model = blocks(Diagonal(0.3), Diagonal(0.3))
    return Case(model, draw(2, T, 4), lambda y: y[:, -1].sum(), "vanishes", **ROWS)


class Attention(nn.Module):
    """Causal softmax attention with a bias on the scores by distance: a window, or a slope as ALiBi's."""

    def __init__(self, window: int = T, slope: float = 0.0) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.window, self.slope = window, slope

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1])
        lags = steps.unsqueeze(-1) - steps
        scores = self.query(x) @ self.key(x).transpose(1, 2) - self.slope * lags
        hidden = (lags < 0) | (lags >= self.window)
        return x + scores.masked_fill(hidden, -torch.inf).softmax(-1) @ self.value(x)


@case
def causal_attention() -> Case:
    return Case(blocks(Attention(), Attention()), draw(2, T, 4), last_of_rows, "reaches", **ROWS)


@case
def sliding_window_of_two_layers() -> Case:
    phrases = (
        "felt at 15 of 60 positions, nothing arrives from 15 steps off on, by construction",
        "45 can never",
    )
    return Case(blocks(Attention(8), Attention(8)), draw(2, T, 4), last_of_rows, "ends", phrases, **ROWS)


@case
def attention_with_a_slope() -> Case:
    return Case(blocks(Attention(slope=1.0)), draw(2, T, 4), last_of_rows, "vanishes", **ROWS)


@case
def linear_attention() -> Case:
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = (self.key(x).unsqueeze(-1) * self.value(x).unsqueeze(-2)).cumsum(1)
            return (self.query(x).unsqueeze(-2) @ state).squeeze(-2)

    return Case(blocks(Linear()), draw(2, T, 4), last_of_rows, "reaches", **ROWS)


def encoder(layers: int) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=DOUBLE)
    return nn.TransformerEncoder(block, layers, enable_nested_tensor=False)


@case
def transformer_read_at_its_first_position() -> Case:
    return Case(encoder(2), draw(2, T, 8), lambda y: y[:, 0].exp().sum(), "reaches", axis=1, read=(1,))


@case
def causal_transformer_read_in_the_middle() -> Case:
    mask = nn.Transformer.generate_square_subsequent_mask(T, dtype=DOUBLE)
    model = Own(lambda self, x: self.inner(x, mask=mask), inner=encoder(2))
    phrases = ("felt at 30 of 60 positions (30 come after what the loss reads)",)
    return Case(model, draw(2, T, 8), lambda y: y[:, 29].exp().sum(), "reaches", phrases, axis=1, read=(30,))


@case
def pooled_transformer() -> Case:
    model = Own(lambda self, x: self.inner(x).mean(1), inner=encoder(2))
    return Case(model, draw(2, T, 8), lambda y: y.exp().sum(), "is read", ("at 60 of 60",), axis=1)


@case
def pooled_pointwise_model() -> Case:
    model = Own(lambda self, x: self.inp(x).tanh().mean(0), inp=nn.Linear(3, 4))
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "reaches", ("felt at 60 of 60",), options=INP)


@case
def pointwise_model() -> Case:
    model = Own(lambda self, x: self.inp(x).tanh(), inp=nn.Linear(3, 4))
    phrases = ("felt at 1 of 60 positions, nothing arrives from 1 step off on, by construction",)
    return Case(model, draw(T, 2, 3), last_sum, "ends", phrases, options=INP)


@case
def transformer_of_ours_with_a_window() -> Case:
    torch.manual_seed(0)
    memory = plait.WindowMemory(8)
    model = plait.Transformer(3, 8, num_layers=1, heads=2, memory=memory, dtype=DOUBLE)
    phrases = ("felt at 8 of 60 positions, nothing arrives from 8 steps off on, by construction",)
    return Case(model, draw(T, 2, 3), last, "ends", phrases)


@case
def memory_over_all_states() -> Case:
    torch.manual_seed(0)
    return Case(plait.MemRNN(3, 4, dtype=DOUBLE), draw(T, 2, 3), last, "reaches")


@case
def rnn_on_a_convolution() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.gru(self.conv(x.permute(1, 2, 0)).permute(2, 0, 1))[0]

    torch.manual_seed(0)
    model = Own(run, conv=nn.Conv1d(3, 4, 1), gru=nn.GRU(4, 4))
    return Case(model, draw(T, 2, 3), last, "vanishes")


@case
def padded_before_a_recurrence() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.rnn(nn.functional.pad(x, (0, 0, 0, 0, 5, 0)))[0]

    torch.manual_seed(0)
    return Case(Own(run, rnn=nn.GRU(3, 4)), draw(T, 2, 3), last, "vanishes", (" of 60 positions",))


@case
def two_heads_on_two_layers() -> Case:
    def run(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        lower = self.lower(x)[0]
        return lower, self.upper(lower)[0]

    def loss(output: tuple[Tensor, Tensor]) -> Tensor:
        return output[0][-1].square().sum() + output[1][-1].square().sum()

    torch.manual_seed(0)
    return Case(Own(run, lower=nn.GRU(3, 4), upper=nn.GRU(4, 4)), draw(T, 2, 3), loss, "vanishes")


@case
def gate_that_is_shut_where_the_loss_is() -> Case:
    module = gru_with(6.0)
    with torch.no_grad():
        module.weight_ih_l0[4:8, 0] = 40.0
    x = draw(T, 2, 3)
    x[..., 0] = 0.0
    x[-1, :, 0] = 1.0
    return Case(module, x, last_sum, "has a hole", ("not at 60", "of the largest"))


@case
def loss_with_a_slope_of_zero() -> Case:
    module = gru_with(6.0)
    with torch.no_grad():
        module.weight_ih_l0.zero_()
    phrases = ("at any of 60 positions: the slope of the loss is zero at these values",)
    return Case(module, draw(T, 2, 3), last, "receives no gradient", phrases)


@case
def single_precision_that_underflows() -> Case:
    torch.manual_seed(0)
    x = draw(400, 2, 3, dtype=torch.float32)
    return Case(nn.LSTM(3, 8), x, last, "vanishes", (" of 400 positions",), read=(400,))


@case
def batch_norm_in_evaluation() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.rnn(self.norm(x.permute(1, 2, 0)).permute(2, 0, 1))[0]

    torch.manual_seed(0)
    model = Own(run, rnn=nn.GRU(3, 4), norm=nn.BatchNorm1d(3)).eval()
    return Case(model, draw(T, 4, 3), last, "vanishes")


@case
def rectified_layers_without_biases() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden = x.new_zeros(2, 4)
        for t in range(len(x)):
            hidden = torch.relu(self.inp(x[t]) + self.back(hidden))
        return hidden

    torch.manual_seed(0)
    model = Own(run, inp=nn.Linear(3, 4, bias=False), back=nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model.back.weight.mul_(0.5)
        model.inp.weight.neg_()
    options = {"layers": ["inp"], "time_axis": 0}
    return Case(model, draw(T, 2, 3), lambda y: y.sum(), "vanishes", options=options)


@case
def bidirectional_gru_read_at_its_start() -> Case:
    torch.manual_seed(0)
    model = nn.GRU(3, 8, bidirectional=True, dtype=DOUBLE)
    return Case(model, draw(T, 2, 3), lambda y: y[0][0].sum(), "vanishes", read=(1,))


@case
def loss_on_every_step() -> Case:
    torch.manual_seed(0)
    model = nn.GRU(3, 4, dtype=DOUBLE)
    phrases = ("at 60 of 60 positions, so there is no one distance; what is read at position 60 vanishes",)
    return Case(model, draw(T, 2, 3), lambda y: y[0].square().sum(), "is read", phrases)


@case
def layer_that_gets_a_detached_input() -> Case:
    model = Own(lambda self, x: self.gru(x + self.low(x)[0].detach())[0], low=nn.GRU(3, 3), gru=nn.GRU(3, 4))
    return Case(model, draw(T, 2, 3), last, "vanishes")


def test_forty_or_more() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_true_of_autograd(name: str) -> None:
    check_case(CASES[name]())


def test_tokens_are_probed_at_their_embeddings() -> None:
    torch.manual_seed(0)
    model = Own(
        lambda self, tokens: self.lstm(self.table(tokens))[0],
        table=nn.Embedding(7, 3),
        lstm=nn.LSTM(3, 8, batch_first=True),
    )
    tokens = torch.arange(2 * T).reshape(2, T) % 7
    profile = probe(model, tokens, last_of_rows)
    embedded = model.table(tokens).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(last_of_rows(model.lstm(embedded)), embedded)
    assert [layer.name for layer in profile.inputs] == ["input of lstm"]
    expected = gradient.transpose(0, 1).flatten(1).norm(dim=1)
    assert profile.inputs[0].norms == pytest.approx(expected.numpy(), rel=1e-9)
    assert profile.inputs[0].verdict().startswith("vanishes")


@pytest.mark.parametrize("axis", [0, 2])
def test_a_wrong_time_axis_is_suspected(axis: int) -> None:
    model, x = blocks(Attention()), draw(3, T, 4)
    wrong = probe(model, x, last_of_rows, time_axis=axis)
    assert f"time_axis={axis} may be wrong" in wrong.summary()
    assert "if axis 1 is time, pass time_axis=1" in wrong.summary()
    assert probe(model, x, last_of_rows, time_axis=1).note is None


@pytest.mark.parametrize("model", [Diagonal(0.5), nn.Linear(4, 4)], ids=["mixes", "pointwise"])
def test_the_right_axis_is_not_suspected(model: nn.Module) -> None:
    for loss in (last_of_rows, lambda y: y.square().sum(), lambda y: y[0].sum(), lambda y: y[..., 0].sum()):
        assert probe(blocks(model), draw(3, T, 4), loss, time_axis=1).note is None


def test_a_cell_state_held_fixed_is_named_and_gets_no_verdict() -> None:
    known = CASES["lstm_carousel_without_recurrence"]()
    profile = probe(known.model, known.x, known.loss)
    assert profile.inputs[0].verdict().startswith("reaches: felt at 60 of 60 positions")
    assert profile.layers[0].verdict() == (
        "h alone, with the cell state held fixed, is felt at 1 of 60 positions, exactly zero from 1 step off "
        "on, because of its weights and inputs (saturated or dead units, zero weights)."
    )


def test_layers_that_share_no_time_are_read_where_each_is_read() -> None:
    for name in ("lstm_encoder_and_shorter_decoder", "lstm_encoder_and_decoder_of_one_length"):
        known = CASES[name]()
        profile = probe(known.model, (known.x, *known.more), known.loss)
        lengths = [len(known.x), len(known.more[0])]
        assert [layer.acting for layer in profile.inputs] == [(length,) for length in lengths]
        assert [layer.acting for layer in profile.layers] == [(length,) for length in lengths]
        assert "explodes" not in profile.summary()


def test_a_watch_claims_no_reason_for_zeros() -> None:
    """A watched pass is not run again with other weights, so where zeros come from is left open."""
    from plait.gradients import Watch

    known = CASES["truncated_backpropagation_in_chunks"]()
    with Watch(known.model, every=1) as watch:
        known.loss(known.model(known.x)).backward()
        sentence = watch.latest.inputs[0].verdict()
    assert sentence.startswith("ends: felt at 20 of 60 positions, exactly zero from 20 steps off on, the ")
    assert "construction" not in sentence
    assert "No training" not in sentence


def test_the_model_is_not_changed_by_other_weights() -> None:
    known = CASES["saturated_rnn"]()
    model = Own(lambda self, x: self.rnn(self.norm(x))[0], rnn=known.model, norm=nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    profile = probe(model, known.x, known.loss)
    drawn = torch.rand(1)
    assert profile.layers[0].zeros_explained
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), drawn)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items() if "norm" not in name)
    assert int(after["norm.num_batches_tracked"]) == 1  # by the pass that was asked for, not by the others
