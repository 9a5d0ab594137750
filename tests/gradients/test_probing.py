"""The probe gives total gradients, for our layers, torch's and Hugging Face's, and changes nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import plait
from plait.errors import ConfigError, DivergedError, ShapeError
from plait.gradients import probe

DOUBLE = torch.float64


def last_step(output: Any) -> Tensor:
    return output[0][-1].square().sum()


def unrolled_norms(module: nn.LSTM, x: Tensor, loss: Any) -> tuple[list[float], list[float]]:
    """Total ‖∂L/∂h_t‖ through an `LSTMCell`, and the gradient of the stacked output tensor alone."""
    cell = nn.LSTMCell(module.input_size, module.hidden_size, dtype=x.dtype)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(getattr(module, name + "_l0"))
    hidden = cell_state = torch.zeros(x.shape[1], module.hidden_size, dtype=x.dtype)
    leaves, outputs = [], []
    for x_t in x:
        hidden, cell_state = cell(x_t, (hidden, cell_state))
        leaves.append(torch.zeros_like(hidden, requires_grad=True))
        hidden = hidden + leaves[-1]
        outputs.append(hidden)
    stacked = torch.stack(outputs)
    found = torch.autograd.grad(loss((stacked,)), [*leaves, stacked])
    return [float(g.norm()) for g in found[:-1]], [float(g.norm()) for g in found[-1]]


def test_the_transformer_by_block() -> None:
    torch.manual_seed(1)
    model, x = plait.Transformer(3, 4, num_layers=2, dtype=DOUBLE), torch.randn(9, 2, 3, dtype=DOUBLE)
    profile = probe(model, x, last_step)
    nudges = [torch.zeros(9, 2, 4, dtype=DOUBLE, requires_grad=True) for _ in range(2)]
    expected = torch.autograd.grad(last_step(model(x, nudge=nudges)), nudges)
    assert [layer.name for layer in profile.layers] == ["layers.0", "layers.1"]
    for layer, gradient in zip(profile.layers, expected, strict=True):
        assert layer.norms == pytest.approx(gradient.flatten(1).norm(dim=1).tolist(), abs=1e-12)


def test_lstm_equals_an_unrolled_cell_and_not_its_output_gradient() -> None:
    torch.manual_seed(1)
    module, x = nn.LSTM(3, 5, dtype=DOUBLE), torch.randn(12, 2, 3, dtype=DOUBLE)

    def loss(output: Any) -> Tensor:
        return output[0][-1].square().sum() + 0.1 * output[0][4].sum()

    total, partial = unrolled_norms(module, x, loss)
    torch_norms = probe(module, x, loss).layers[0].norms
    ours = plait.LSTM.from_torch(module)
    our_norms = probe(ours, x, loss).layers[0].norms
    assert torch_norms == pytest.approx(total, abs=1e-12)
    assert our_norms == pytest.approx(total, abs=1e-12)
    fused, _ = module(x)
    fused.retain_grad()
    loss((fused,)).backward()
    missing = fused.grad.flatten(1).norm(dim=1).tolist()
    assert missing == pytest.approx(partial, abs=1e-12)
    assert missing[0] == 0 < torch_norms[0]
    assert max(abs(a - b) for a, b in zip(missing, total, strict=True)) > 1e-3


def test_lower_layers_see_the_path_through_upper_ones() -> None:
    module = nn.GRU(3, 4, num_layers=2, dtype=DOUBLE)
    ours = plait.GRU.from_torch(module)
    x = torch.randn(9, 2, 3, dtype=DOUBLE)
    theirs = probe(module, x, last_step)
    mine = probe(ours, x, last_step)
    for one, two in zip(theirs.layers, mine.layers, strict=True):
        assert one.norms == pytest.approx(two.norms, abs=1e-12)
    assert [layer.name for layer in theirs.layers] == ["layer 0", "layer 1"]
    assert [layer.name for layer in mine.layers] == ["layers.0", "layers.1"]


@pytest.mark.parametrize("name", ["RelRNN", "RelLSTM", "MemRNN", "SAB", "RNN"])
def test_norm_is_that_of_the_total_derivative(name: str) -> None:
    """L = ⟨v, s_T⟩ is not on offer, so L = ⟨v, h_T⟩: dL/dh_t = v dh_T/ds_{T−1} ds_{T−1}/dh_t."""
    from plait.gradients.paths import dynamics, recursion

    model = getattr(plait, name)(3, 4, dtype=DOUBLE)
    x, t, end = torch.randn(14, 1, 3, dtype=DOUBLE), 5, 14
    direction = torch.randn(4, dtype=DOUBLE)
    profile = probe(model, x, lambda output: output[0][-1, 0] @ direction)
    system, size = dynamics(model, x)
    blocks = system.blocks(t, end)
    row = torch.cat([direction, torch.zeros(blocks.width - size, dtype=DOUBLE)])
    total = row @ blocks.jump[end - 1] @ recursion(blocks, t, end - 1)[-1]
    assert profile.layers[0].norms[t - 1] == pytest.approx(float(total[:size].norm()), rel=1e-10)
    assert profile.layers[0].norms[-1] == pytest.approx(float(direction.norm()), rel=1e-12)


def test_model_with_a_head_is_left_as_it_was() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 6)
            self.body = plait.RelLSTM(6, 8, window=3, capacity=2, batch_first=True)
            self.old = nn.LSTM(8, 5, batch_first=True)
            self.head = nn.Linear(5, 11)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.old(self.body(self.embed(tokens))[0])[0])

    model, tokens = Tagger().eval(), torch.randint(11, (2, 15))
    before = model(tokens)
    profile = probe(model, tokens, lambda output: output[:, -1].logsumexp(-1).sum())
    assert [layer.name for layer in profile.layers] == ["body.layers.0", "old: layer 0"]
    assert all(layer.norms.shape == (15,) for layer in profile.layers)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert "forward" not in model.old.__dict__
    assert not model.body.layers[0]._forward_pre_hooks
    assert torch.equal(model(tokens), before)
    assert profile.layers[0].attention is not None
    assert profile.layers[0].attention.kappa <= 5
    assert profile.layers[0].attention.depth is not None
    assert profile.layers[1].attention is None


def test_hooks_go_away_after_an_error() -> None:
    module = nn.LSTM(3, 4)
    with pytest.raises(ZeroDivisionError):
        probe(module, torch.randn(5, 1, 3), lambda output: 1 / 0)
    assert "forward" not in module.__dict__


@pytest.mark.parametrize("batch_first", [True, False])
def test_transformer_encoder(batch_first: bool) -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first, dtype=DOUBLE)
    model = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    x = torch.randn(2, 7, 8, dtype=DOUBLE)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=DOUBLE)

    def loss(output: Tensor) -> Tensor:
        return (output if batch_first else output.transpose(0, 1))[:, 4].square().sum() / 2

    profile = probe(model, (x if batch_first else x.transpose(0, 1), mask), loss)
    states = [x if batch_first else x.transpose(0, 1)]
    for layer in model.layers:
        states.append(layer(states[-1], mask))
        states[-1].retain_grad()
    loss(states[-1]).backward()
    for found, state in zip(profile.layers, states[1:], strict=True):
        gradient = state.grad if batch_first else state.grad.transpose(0, 1)
        assert found.norms == pytest.approx(
            gradient.transpose(0, 1).flatten(1).norm(dim=1).tolist(), abs=1e-12
        )
        assert not found.norms[5:].any()  # the mask closes the future
        assert found.attention is not None
        assert 1 <= found.attention.participation <= 7
    assert profile.hops is not None
    assert profile.hops.tolist() == [1, 1, 1, 1, 0, -1, -1]  # from position 5, which the loss reads
    assert "within 1 hop, by" in profile.summary()


def test_hugging_face_model() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20,
        n_positions=16,
        n_embd=8,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        attn_implementation="eager",
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(20, (2, 12))

    def loss(output: Any) -> Tensor:
        return output.logits[:, -1].logsumexp(-1).sum()

    profile = probe(model, {"input_ids": tokens, "output_attentions": True}, loss)
    assert [layer.name for layer in profile.layers] == ["transformer.h.0", "transformer.h.1"]
    output = model(tokens, output_hidden_states=True)
    output.hidden_states[1].retain_grad()
    loss(output).backward()
    expected = output.hidden_states[1].grad.transpose(0, 1).flatten(1).norm(dim=1)
    assert profile.layers[0].norms == pytest.approx(expected.tolist(), rel=1e-4)
    assert profile.layers[0].attention is not None
    assert profile.hops is not None


def test_vanishing_and_exploding_are_reported() -> None:
    x = torch.randn(80, 2, 3, dtype=DOUBLE)
    for scale, word, rate in ((0.3, "vanishes", 0.3), (1.6, "explodes", 1.6), (1.0, "reaches", 1.0)):
        model = plait.RNN(3, 4, nonlinearity="identity", dtype=DOUBLE)
        with torch.no_grad():
            model.layers[0].cell.weight_hh.copy_(scale * torch.eye(4))
        layer = probe(model, x, lambda output: output[0][-1].sum()).layers[0]
        assert layer.decay is not None
        assert layer.decay.rate == pytest.approx(rate, rel=1e-6)
        assert layer.verdict().startswith(word)
        if word == "vanishes":
            assert layer.decay.vanishes_at == math.ceil(math.log(1e-6) / math.log(0.3))
            assert layer.decay.reached == layer.decay.vanishes_at
        if word == "explodes":
            assert layer.decay.explodes_at == math.ceil(math.log(1e3) / math.log(1.6))


def test_uniform_attention_follows_the_sharp_power() -> None:
    """The probe on a real model agrees with the law: V = I/4 has ds_T/dh_t ~ T^{−2/3} at t = 1."""
    from plait.gradients.uniform import propagation_to

    model = plait.MemRNN(1, 2, nonlinearity="identity", mix=1.0, dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(torch.eye(2) / 4)
        model.layers[0].scorer.energy.zero_()
    x = torch.randn(61, 1, 1, dtype=DOUBLE)
    norms = probe(model, x, lambda output: output[0][-1].sum()).layers[0].norms
    predicted = math.sqrt(2) / 4 * np.exp(propagation_to(0.25, 60).log_abs)
    assert norms[:60] == pytest.approx(predicted, rel=1e-9)


def test_named_layers_and_time_axis() -> None:
    model = nn.Sequential(nn.Linear(3, 4, dtype=DOUBLE), nn.Tanh(), nn.Linear(4, 2, dtype=DOUBLE))
    x = torch.randn(5, 2, 3, dtype=DOUBLE)
    with pytest.raises(ConfigError, match="no hidden states to probe"):
        probe(model, x, lambda output: output.sum())
    with pytest.raises(ConfigError, match="time_axis=0"):
        probe(model, x, lambda output: output.sum(), layers=["1"])
    profile = probe(model, x, lambda output: output[2].sum(), layers=["1"], time_axis=0)
    assert np.flatnonzero(profile.layers[0].norms).tolist() == [2]
    assert (
        "1: felt at 1 of 5 positions, where it is read: nothing above it mixes positions."
        in profile.summary()
    )
    with pytest.raises(ConfigError, match="no module 'body'"):
        probe(model, x, lambda output: output.sum(), layers=["body"])
    with pytest.raises(ConfigError, match="expected 0, 1 or 2"):
        probe(model, x, lambda output: output.sum(), layers=["1"], time_axis=3)
    with pytest.raises(ShapeError, match="gives no"):
        probe(nn.Flatten(0), x, lambda output: output.sum(), layers=[""], time_axis=0)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda output: output[0], ConfigError, "one number"),
        (lambda output: 3.0, ConfigError, "one number"),
        (lambda output: output[0].sum() * float("nan"), DivergedError, "finite"),
        (lambda output: torch.zeros((), requires_grad=True) * 2, ConfigError, "does not depend"),
        (lambda output: torch.zeros(()), ConfigError, "does not depend"),
        (lambda output: output[0].detach().sum(), ConfigError, "does not depend"),
    ],
)
@pytest.mark.parametrize("model", [nn.LSTM(3, 4), plait.RelRNN(3, 4)], ids=["torch", "ours"])
def test_bad_losses(model: nn.Module, loss: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        probe(model, torch.randn(5, 2, 3), loss)


def test_gradient_that_is_not_finite() -> None:
    model = plait.RNN(1, 1, nonlinearity="identity")
    with torch.no_grad():
        model.layers[0].cell.weight_hh.fill_(1e30)
    x = torch.zeros(9, 1, 1)
    with torch.no_grad():
        model.layers[0].cell.bias.zero_()
    with pytest.raises(DivergedError, match="position 7 is not finite"):
        probe(model, x, lambda output: output[0][-1].sum())


def test_profile_as_json_and_picture(tmp_path: Any) -> None:
    profile = probe(plait.RelRNN(3, 4, window=3, capacity=2), torch.randn(20, 2, 3), last_step)
    record = json.loads(profile.to_json())
    assert record["layers"][0]["norms"] == pytest.approx(profile.layers[0].norms.tolist())
    assert record["layers"][0]["verdict"] == profile.layers[0].verdict()
    assert len(record["layers"][0]["attention"]["depth"]) == 20
    pytest.importorskip("matplotlib")
    profile.plot(tmp_path / "new" / "norms.svg")
    assert "‖∂L/∂h_t‖" in (tmp_path / "new" / "norms.svg").read_text()


def test_unused_layer_is_reported() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.GRU(3, 4), nn.GRU(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            return self.used(x)[0]

    profile = probe(Half(), torch.randn(6, 2, 3), lambda output: output[-1].sum())
    idle = next(layer for layer in profile.layers if layer.name == "idle: layer 0")
    assert "receives no gradient" in idle.verdict()
    assert idle.norms.tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": None}, r"model: expected a torch.nn.Module, got NoneType"),
        ({"model": nn.GRU}, r"model: expected a torch.nn.Module, got type"),
        (
            {"batch": nn.utils.rnn.pack_sequence([torch.zeros(3, 3)])},
            r"batch: expected padded .*PackedSequence",
        ),
        ({"layers": "layers.0"}, r"layers: expected a list of names, got 'layers.0'"),
        ({"threshold": math.nan}, r"threshold: expected at least 0, got nan"),
        ({"threshold": -1}, r"threshold: expected at least 0, got -1"),
    ],
)
def test_what_cannot_be_probed_is_one_line(arguments: dict[str, Any], message: str) -> None:
    usual = {"model": nn.GRU(3, 4), "batch": torch.zeros(5, 2, 3), "loss": lambda output: output[0].sum()}
    with pytest.raises(ConfigError, match=message):
        probe(**{**usual, **arguments})
