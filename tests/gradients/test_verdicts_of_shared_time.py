"""Models whose layers share time in other ways: several rates, several calls, inputs read from their end.

As in `test_verdicts_hold`, every number of a sentence is compared with autograd by the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import plait
from plait.errors import ConfigError, DivergedError
from plait.gradients import probe
from tests.gradients.sentences import (
    DOUBLE,
    Case,
    Own,
    T,
    blocks,
    check_case,
    check_sentence,
    draw,
    last,
    last_of_rows,
    last_sum,
)

CASES: dict[str, Callable[[], Case]] = {}
ROWS = {"axis": 1, "options": {"time_axis": 1}}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


def two_rates(merge: Callable[[Tensor], Tensor], length: int, read: int) -> Case:
    """A GRU over what another GRU has made of several steps."""
    model = Own(lambda self, x: self.slow(merge(self.fast(x)[0]))[0], fast=nn.GRU(3, 4), slow=nn.GRU(4, 4))
    return Case(model, draw(length, 2, 3), last, "vanishes", read=(read,))


@case
def every_third_state_of_a_lower_layer() -> Case:
    return two_rates(lambda states: states[2::3], 150, 150)


@case
def every_seventh_state_with_steps_left_over() -> Case:
    return two_rates(lambda states: states[6::7], 240, 238)


@case
def means_of_four_states() -> Case:
    return two_rates(lambda states: states.reshape(40, 4, 2, 4).mean(1), 160, 160)


@case
def sentences_of_words() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.upper(torch.stack([self.lower(words)[1][0] for words in x.split(5)]))[0]

    return Case(
        Own(run, lower=nn.GRU(3, 4), upper=nn.GRU(4, 4)), draw(160, 2, 3), last, "vanishes", read=(160,)
    )


@case
def cells_of_two_rates_in_a_loop() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        fast = slow = None
        outputs = []
        for t in range(len(x)):
            fast = self.fast(x[t], fast)
            if t % 4 == 3:
                slow = self.slow(fast, slow)
                outputs.append(slow)
        return torch.stack(outputs)

    model = Own(run, fast=nn.GRUCell(3, 4), slow=nn.GRUCell(4, 4))
    return Case(model, draw(160, 2, 3), last, "vanishes", read=(160,))


def pairs(states: Tensor) -> Tensor:
    length, batch, _ = states.shape
    return states.reshape(length // 2, 2, batch, -1).transpose(1, 2).reshape(length // 2, batch, -1)


@case
def pyramid_of_lstms() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.c(pairs(self.b(pairs(self.a(x)[0]))[0]))[0]

    model = Own(run, a=nn.LSTM(3, 4), b=nn.LSTM(8, 4), c=nn.LSTM(8, 4))
    return Case(model, draw(160, 2, 3), last, "vanishes", read=(160,))


@case
def pyramid_that_a_decoder_attends_to() -> Case:
    def run(self: Any, x: Tensor, targets: Tensor) -> Tensor:
        memory = self.b(pairs(self.a(x)[0]))[0]
        queries = self.decoder(targets)[0]
        weights = torch.einsum("sbh,tbh->stb", queries, memory).softmax(1)
        return queries + torch.einsum("stb,tbh->sbh", weights, memory)

    model = Own(run, a=nn.LSTM(3, 4), b=nn.LSTM(8, 4, bidirectional=True), decoder=nn.LSTM(3, 8))
    phrases = ("at 60 of 60 positions, so there is no one distance; felt at 60 of 60 positions",)
    return Case(model, draw(T, 2, 3), last, "is read", phrases, more=(draw(7, 2, 3),))


@case
def decoder_that_attends_to_a_few_states() -> Case:
    """Attention to the first twelve states, to the last of them with next to no weight."""

    def run(self: Any, x: Tensor, targets: Tensor) -> Tensor:
        states, queries = self.encoder(x)[0], self.decoder(targets)[0]
        lags = torch.arange(len(x), dtype=DOUBLE) - 3
        weights = (-1.5 * lags**2).masked_fill(lags > 8, -torch.inf).softmax(-1)
        return queries + torch.einsum("t,tbh->bh", weights, states)

    model = Own(run, encoder=nn.GRU(3, 4), decoder=nn.GRU(3, 4))
    phrases = ("at 12 of 60 positions, so there is no one distance; felt at 7 of 60 positions",)
    return Case(model, draw(T, 2, 3), last, "is read", phrases, more=(draw(9, 2, 3),))


@case
def three_bidirectional_layers_by_rows() -> Case:
    model = nn.LSTM(3, 5, num_layers=3, bidirectional=True, batch_first=True, dtype=DOUBLE)
    return Case(model, draw(2, T, 3), last_of_rows, "vanishes", axis=1)


@case
def input_read_from_its_end() -> Case:
    model = Own(lambda self, x: self.rnn(x.flip(0))[0], rnn=nn.GRU(3, 5))
    return Case(model, draw(T, 2, 3), last, "vanishes", read=(1,))


@case
def convolution_read_from_its_end() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.rnn(self.conv(x.permute(1, 2, 0)).permute(2, 0, 1).flip(0))[0]

    model = Own(run, conv=nn.Conv1d(3, 4, 5, padding=2), rnn=nn.GRU(4, 5))
    return Case(model, draw(T, 2, 3), last, "vanishes", read=(1,))


@case
def encoder_of_reversed_sources() -> Case:
    def run(self: Any, x: Tensor, targets: Tensor) -> Tensor:
        return self.decoder(targets, self.encoder(x.flip(0))[1])[0]

    model = Own(run, encoder=nn.GRU(3, 5), decoder=nn.GRU(3, 5))
    return Case(model, draw(T, 2, 3), last, "vanishes", read=(1,), more=(draw(9, 2, 3),))


@case
def cells_that_run_from_the_end() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = None, []
        for step in x.flip(0):
            hidden = self.cell(step, hidden)
            outputs.append(hidden)
        return torch.stack(outputs[::-1])

    phrases = ("(9 come before what the loss reads)",)
    model = Own(run, cell=nn.GRUCell(3, 5))
    return Case(model, draw(T, 2, 3), lambda y: y[9].square().sum(), "vanishes", phrases, read=(10,))


@case
def two_directions_of_two_modules() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return torch.cat([self.forwards(x)[0], self.backwards(x.flip(0))[0].flip(0)], -1)

    model = Own(run, forwards=nn.GRU(3, 4), backwards=nn.GRU(3, 4))
    return Case(model, draw(T, 2, 3), lambda y: y[19].square().sum(), "vanishes", read=(20,))


@case
def one_layer_over_its_own_output() -> Case:
    model = Own(lambda self, x: self.rnn(self.rnn(x)[0])[0], rnn=nn.GRU(3, 3))
    return Case(model, draw(T, 2, 3), last, "vanishes")


@case
def two_sequences_by_one_layer() -> Case:
    def run(self: Any, x: Tensor, other: Tensor) -> Tensor:
        return self.rnn(x)[0][-1] - self.rnn(other)[0][-1]

    model = Own(run, rnn=nn.GRU(3, 5))
    return Case(model, draw(T, 2, 3), lambda y: y.square().sum(), "vanishes", more=(draw(20, 2, 3),))


@case
def one_block_three_times() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        return self.block(self.block(self.block(x)))

    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return Case(Own(run, block=layer), draw(2, 20, 4), last_of_rows, "reaches", axis=1, read=(20,))


@case
def truncated_backpropagation_in_odd_chunks() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        state, outputs = None, []
        for chunk in x.split(13):
            output, state = self.rnn(chunk, state)
            state = state.detach()
            outputs.append(output)
        return torch.cat(outputs)

    phrases = (
        "felt at 8 of 60 positions, nothing arrives from 8 steps off on, by construction",
        "52 can never",
    )
    return Case(Own(run, rnn=nn.GRU(3, 5)), draw(T, 2, 3), last, "ends", phrases)


@case
def padded_rows_held_at_their_end() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = torch.zeros(2, 5, dtype=DOUBLE), []
        for t in range(len(x)):
            new = self.cell(x[t], hidden)
            hidden = new if t < 40 else hidden
            outputs.append(hidden)
        return torch.stack(outputs)

    phrases = ("the nearest 20 steps off, not at 41 to 60 (by construction)",)
    return Case(Own(run, cell=nn.GRUCell(3, 5)), draw(T, 2, 3), last, "vanishes", phrases)


@case
def keys_that_are_padding() -> Case:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def run(self: Any, x: Tensor) -> Tensor:
        padding = torch.arange(T).expand(2, T) >= 45
        return self.encoder(x, src_key_padding_mask=padding)

    model = Own(run, encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    phrases = ("felt at 45 of 60 positions, nothing arrives from 45 steps off on, by construction",)
    loss = lambda y: y[:, 0].square().sum()  # noqa: E731
    return Case(model, draw(2, T, 4), loss, "ends", phrases, axis=1, read=(1,), is_two_way=True)


class Gated(nn.Module):
    """A causal dilated convolution with gates, as WaveNet's."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv, self.left = nn.Conv1d(4, 8, 2, dilation=dilation), dilation

    def forward(self, x: Tensor) -> Tensor:
        new, gate = self.conv(nn.functional.pad(x, (self.left, 0))).chunk(2, 1)
        return x + torch.tanh(new) * torch.sigmoid(gate)


@case
def doubling_dilations() -> Case:
    model = blocks(*(Gated(2**power) for power in range(5)))
    phrases = ("felt at 32 of 60 positions, nothing arrives from 32 steps off on", "28 can never be felt")
    return Case(model, draw(2, 4, T), lambda y: y[..., -1].square().sum(), "ends", phrases, axis=2)


class Clockwork(nn.Module):
    """Units that change at every step, every fourth and every sixteenth."""

    def __init__(self) -> None:
        super().__init__()
        self.periods = torch.tensor([1, 1, 4, 4, 16, 16])
        self.input, self.hidden = nn.Linear(3, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, hidden: Tensor, t: int) -> Tensor:
        slower = self.periods >= self.periods.unsqueeze(-1)
        new = torch.tanh(self.input(x) + hidden @ (self.hidden.weight * slower).t())
        return torch.where(t % self.periods == 0, new, hidden)


@case
def convolutions_with_normed_weights() -> Case:
    model = nn.Sequential(
        weight_norm(nn.Conv1d(3, 4, 5, padding=2)), nn.Tanh(), weight_norm(nn.Conv1d(4, 4, 5, padding=2))
    )
    phrases = ("felt at 9 of 60 positions, nothing arrives from 5 steps off on", "51 can never be felt")
    loss = lambda y: y[..., 29].sum()  # noqa: E731
    return Case(model.to(DOUBLE), draw(2, 3, T), loss, "ends", phrases, axis=2, read=(30,))


@case
def clockwork_units() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = torch.zeros(2, 6, dtype=DOUBLE), []
        for t in range(len(x)):
            hidden = self.cell(x[t], hidden, t)
            outputs.append(hidden)
        return torch.stack(outputs)

    return Case(Own(run, cell=Clockwork()), draw(T, 2, 3), last, "has a hole", options={"layers": ["cell"]})


class Convolved(nn.Module):
    """A diagonal linear recurrence, computed by Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.tensor([0.5, 0.9, 0.99, 0.999]))
        self.enter, self.leave = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        kernel = self.decay ** torch.arange(length).unsqueeze(-1)
        product = torch.fft.rfft(self.enter(x), 2 * length, 1) * torch.fft.rfft(kernel, 2 * length, 0)
        return x + self.leave(torch.fft.irfft(product, 2 * length, 1)[:, :length])


@case
def diagonal_state_space_by_fourier_transforms() -> Case:
    return Case(blocks(Convolved(), Convolved()), draw(2, T, 4), last_of_rows, "reaches", **ROWS)


@case
def residual_steps() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs = torch.zeros(2, 4, dtype=DOUBLE), []
        for step in x:
            hidden = hidden + 0.1 * self.cell(step, hidden)
            outputs.append(hidden)
        return torch.stack(outputs)

    return Case(Own(run, cell=nn.RNNCell(3, 4)), draw(T, 2, 3), last, "reaches")


@case
def frozen_lower_layer() -> Case:
    model = Own(lambda self, x: self.b(self.a(x)[0])[0], a=nn.LSTM(3, 5), b=nn.LSTM(5, 5))
    model.a.requires_grad_(False)
    return Case(model, draw(T, 2, 3), last, "vanishes")


@case
def every_other_input_is_its_own_output() -> Case:
    def run(self: Any, x: Tensor) -> Tensor:
        hidden, outputs, latest = None, [], x[0]
        for t in range(len(x)):
            hidden = self.cell(x[t] if t % 2 == 0 else latest, hidden)
            latest = self.out(hidden)
            outputs.append(latest)
        return torch.stack(outputs)

    phrases = ("the nearest 1 step off", "(by construction) and in 1")
    model = Own(run, cell=nn.GRUCell(3, 6), out=nn.Linear(6, 3))
    return Case(model, draw(T, 2, 3), last, "vanishes", phrases)


@case
def states_that_are_detached_beside_a_sum_of_inputs() -> Case:
    model = Own(
        lambda self, x: self.rnn(x)[0].detach() + self.w(x).cumsum(0), rnn=nn.GRU(3, 5), w=nn.Linear(3, 5)
    )
    return Case(
        model, draw(T, 2, 3), last_sum, "reaches", ("felt at 60 of 60 positions", "a factor of 1 per step")
    )


@case
def states_that_are_detached_beside_the_last_input() -> Case:
    model = Own(lambda self, x: self.rnn(x)[0].detach() * self.w(x), rnn=nn.GRU(3, 5), w=nn.Linear(3, 5))
    phrases = ("felt at 1 of 60 positions, nothing arrives from 1 step off on, by construction",)
    return Case(model, draw(T, 2, 3), last, "ends", phrases)


@case
def as_many_rows_and_features_as_steps() -> Case:
    model = nn.GRU(12, 12, batch_first=True, dtype=DOUBLE)
    return Case(model, draw(12, 12, 12), last_of_rows, "reaches", axis=1, read=(12,))


@case
def three_constant_steps() -> Case:
    return Case(nn.LSTM(3, 5, dtype=DOUBLE), torch.ones(3, 2, 3, dtype=DOUBLE), last, "reaches", read=(3,))


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_true_of_autograd(name: str) -> None:
    check_case(CASES[name]())


def test_both_sequences_of_one_layer_have_a_sentence() -> None:
    known = CASES["two_sequences_by_one_layer"]()
    profile = probe(known.model, (known.x, *known.more), known.loss)
    assert [layer.name for layer in profile.inputs] == ["input 1", "input 2"]
    assert [layer.norms.size for layer in profile.layers] == [60, 20]
    other = known.more[0].clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(known.loss(known.model(known.x, other)), other)
    expected = gradient.flatten(1).norm(dim=1).numpy()
    assert profile.inputs[1].norms == pytest.approx(expected)
    check_sentence(profile.inputs[1].verdict(), expected, [19])


def test_each_call_of_a_shared_block_is_a_layer() -> None:
    known = CASES["one_block_three_times"]()
    profile = probe(known.model, known.x, known.loss)
    assert [layer.name for layer in profile.layers] == ["block", "block (call 2)", "block (call 3)"]
    assert all(layer.norms.size == 20 for layer in profile.layers)
    assert profile.hops is not None
    assert profile.hops.size == 20


def test_sentences_of_what_is_read_from_its_end() -> None:
    """What a loss on every step reads at one position comes from later positions of the input."""
    model = Own(lambda self, x: self.rnn(x.flip(0))[0].flip(0), rnn=nn.GRU(3, 5))
    x = draw(T, 2, 3)
    reach = probe(model, x, lambda y: y.square().sum()).inputs[0].reach
    assert reach is not None
    assert list(reach.positions) == sorted(reach.positions)
    for position, row in zip(reach.positions, reach.norms, strict=True):
        leaf = x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(leaf)[position - 1].square().sum(), leaf)
        assert row == pytest.approx(gradient.flatten(1).norm(dim=1).numpy(), rel=1e-7)


@pytest.mark.parametrize("length", [1, 2])
def test_sequences_too_short_for_a_verdict(length: int) -> None:
    summary = probe(nn.GRU(3, 5), torch.randn(length, 2, 3), last).summary()
    assert f", {length} position" in summary
    assert f"felt at {length} of {length} positions, too few to speak of a decay" in summary


def test_numbers_too_small_for_half_precision_are_no_block() -> None:
    model, x = nn.GRU(3, 5).half(), draw(T, 2, 3, dtype=torch.float16)
    layer = probe(model, x, lambda y: y[0][-1].square().sum() * 1e-3).inputs[0]
    assert layer.verdict().startswith("vanishes: felt at ")
    assert " off on (too small for their precision)" in layer.verdict()
    check_sentence(layer.verdict(), layer.norms, [T - 1], precision=0.05)


def test_weights_that_are_frozen_change_nothing() -> None:
    model, x = plait.RelLSTM(3, 5, window=4, capacity=2, dtype=DOUBLE), draw(30, 2, 3)
    before = probe(model, x, last).summary()
    assert probe(model.requires_grad_(False), x, last).summary() == before


def test_a_compiled_model_is_not_compiled_again() -> None:
    compiled = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    model, x = nn.GRU(3, 5, dtype=DOUBLE), draw(12, 2, 3)
    profile = probe(torch.compile(model, backend=backend), x, last)
    assert compiled == 0
    assert np.array_equal(profile.inputs[0].norms, probe(model, x, last).inputs[0].norms)


def recomputed(reentrant: bool, by_step: bool) -> nn.Module:
    def run(self: Any, x: Tensor) -> Tensor:
        if not by_step:
            return checkpoint(lambda part: self.rnn(part)[0], x, use_reentrant=reentrant)
        hidden = torch.zeros(2, 5, dtype=DOUBLE)
        for step in x:
            hidden = checkpoint(self.cell, step, hidden, use_reentrant=reentrant)
        return hidden.unsqueeze(0)

    return Own(run, **({"cell": nn.GRUCell(3, 5)} if by_step else {"rnn": nn.GRU(3, 5)}))


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_is_to_be_switched_off(reentrant: bool, by_step: bool) -> None:
    with pytest.raises(ConfigError, match=r"again in the backward pass .* switch that off for the probe"):
        probe(recomputed(reentrant, by_step), draw(12, 2, 3), last)


def test_numbers_that_are_not_finite_are_refused() -> None:
    x = draw(T, 2, 3)
    x[5, 0, 0] = torch.nan
    with pytest.raises(DivergedError, match="loss: expected a finite number, got nan"):
        probe(nn.GRU(3, 5, dtype=DOUBLE), x, last)
