"""Ten models with known behaviour, and the sentence the probe says of each."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import plait
from plait.gradients import GradientProfile, probe

DOUBLE = torch.float64
REACHES = "Nothing to fix (docs/gradients.md#when-it-reaches)."
VANISHES = (
    "Gates that begin open (chrono), an orthogonal recurrence or a memory to attend to reach farther "
    "(docs/gradients.md#when-it-vanishes)."
)


def scaled_identity(factor: float) -> GradientProfile:
    model = plait.RNN(3, 4, nonlinearity="identity", dtype=DOUBLE)
    with torch.no_grad():
        model.layers[0].cell.weight_hh.copy_(factor * torch.eye(4))
    return probe(model, torch.randn(80, 2, 3, dtype=DOUBLE), lambda output: output[0][-1].sum())


def test_half_the_identity_vanishes() -> None:
    steps = math.ceil(math.log(1e-6) / math.log(0.5))
    assert scaled_identity(0.5).layers[0].verdict() == (
        f"vanishes: felt at {steps} of 80 positions, below a millionth from {steps} steps off. It follows a "
        f"factor of 0.5 per step (R² 1.00). {VANISHES}"
    )


def test_one_and_a_half_times_the_identity_explodes() -> None:
    steps = math.ceil(math.log(1e3) / math.log(1.5))
    assert scaled_identity(1.5).layers[0].verdict() == (
        f"explodes: felt at 80 of 80 positions, 1000 times larger {steps} steps off than where the loss is. "
        "It follows a factor of 1.5 per step (R² 1.00). Clip the norm of the gradient, or bring the "
        "recurrence to norm 1 (OrthRNN, ExpRNN) (docs/gradients.md#when-it-explodes)."
    )


def lstm(chrono: bool) -> GradientProfile:
    torch.manual_seed(0)
    module, length = nn.LSTM(3, 16), 200
    if chrono:  # forget gates open for up to `length` steps, input gates closed as much
        with torch.no_grad():
            open_for = torch.log(1 + (length - 2) * torch.rand(16))
            module.bias_hh_l0.zero_()
            module.bias_ih_l0.copy_(torch.cat([-open_for, open_for, torch.zeros(32)]))
    return probe(module, torch.randn(length, 4, 3), lambda output: output[0][-1].square().sum())


def test_an_lstm_vanishes_and_one_with_chrono_reaches() -> None:
    plain, chrono = lstm(chrono=False).inputs[0], lstm(chrono=True).inputs[0]
    assert plain.decay is not None
    assert plain.decay.reached < 40
    assert plain.verdict().startswith(f"vanishes: felt at {plain.decay.reached} of 200 positions, below a ")
    assert "It follows a factor of 0.6" in plain.verdict()
    assert plain.verdict().endswith(VANISHES)
    assert chrono.verdict().startswith("reaches: felt at 200 of 200 positions, the farthest at 0.0")
    assert "It follows" not in chrono.verdict()  # many time scales, no one law
    assert chrono.verdict().endswith(REACHES)


@pytest.fixture(scope="module")
def hub() -> Any:
    return pytest.importorskip("transformers", reason="these are its models")


TOKENS = torch.arange(512).reshape(2, 256) % 97


def gpt2(hub: Any) -> nn.Module:
    torch.manual_seed(0)
    config = hub.GPT2Config(
        vocab_size=100,
        n_positions=256,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        attn_implementation="eager",
    )
    return hub.GPT2LMHeadModel(config).eval()


def test_gpt2_reads_256_positions_and_reaches_them(hub: Any) -> None:
    batch = {"input_ids": TOKENS, "output_attentions": True}
    profile = probe(gpt2(hub), batch, lambda output: output.logits[:, -1].logsumexp(-1).sum())
    below, top = profile.layers
    assert below.verdict().startswith("reaches: felt at 256 of 256 positions, the farthest at 0.000")
    assert " A step reads 128 of 128 states effectively. " in below.verdict()
    assert below.verdict().endswith(REACHES)
    assert top.verdict().startswith("felt at 1 of 256 positions, where it is read: nothing above it mixes")
    assert profile.inputs[0].verdict().startswith("reaches: felt at 256 of 256 positions")
    assert profile.summary().endswith(
        "attention connects what the loss reads to 256 of 256 positions within 1 hop, by weights of at "
        "least 0.5 of an even share."
    )


def test_a_loss_on_every_position_is_taken_apart(hub: Any) -> None:
    model, batch = gpt2(hub), {"input_ids": TOKENS, "labels": TOKENS}
    profile = probe(model, batch, lambda output: output.loss)
    found = profile.layers[0]
    assert found.reach is not None
    assert found.reach.positions == (86, 170, 255)
    assert found.verdict().startswith(
        "is read at 255 of 256 positions, so there is no one distance; what is read at position 255 reaches: "
        "felt at 255 of 256 positions (1 comes after what the loss reads), the farthest at 0.00"
    )
    # The same by a loss on that position alone: labels are shifted by one, and the loss is a mean of 510.
    one = probe(
        model,
        {"input_ids": TOKENS},
        lambda output: (
            nn.functional.cross_entropy(output.logits[:, 169], TOKENS[:, 170], reduction="sum") / 510
        ),
    )
    assert found.reach.norms[1] == pytest.approx(one.layers[0].norms, rel=1e-4, abs=1e-9)
    assert not found.reach.norms[0][86:].any()


def test_llama_reaches(hub: Any) -> None:
    torch.manual_seed(0)
    config = hub.LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    batch = {"input_ids": TOKENS[:, :128], "output_attentions": True}
    profile = probe(
        hub.LlamaForCausalLM(config).eval(), batch, lambda output: output.logits[:, -1].logsumexp(-1).sum()
    )
    assert (
        profile.layers[0].verdict().startswith("reaches: felt at 128 of 128 positions, the farthest at 0.00")
    )
    assert profile.layers[0].verdict().endswith(f" A step reads 64.5 of 64.5 states effectively. {REACHES}")


def test_bert_with_a_loss_on_its_first_token_does_not_explode(hub: Any) -> None:
    torch.manual_seed(0)
    config = hub.BertConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    batch = {"input_ids": TOKENS[:, :64], "output_attentions": True}
    profile = probe(
        hub.BertModel(config).eval(), batch, lambda output: output.last_hidden_state[:, 0].exp().sum()
    )
    assert profile.layers[0].acting == (1,)
    assert profile.layers[0].verdict().startswith("reaches: felt at 64 of 64 positions, the farthest at 0.0")
    assert profile.layers[0].verdict().endswith(f" A step reads 64 of 64 states effectively. {REACHES}")
    assert profile.layers[1].verdict().startswith("felt at 1 of 64 positions")
    assert profile.hops is not None
    assert profile.hops.tolist() == [0] + [1] * 63


def test_one_block_shows_its_input() -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    profile = probe(model, torch.randn(2, 20, 16), lambda output: output[:, -1].exp().sum())
    (input_,), (top,) = profile.inputs, profile.layers
    assert input_.name == "input"
    assert input_.verdict().startswith("reaches: felt at 20 of 20 positions, the farthest at 0.0")
    assert top.verdict().startswith(
        "felt at 1 of 20 positions, where it is read: nothing above it mixes positions. A step reads 1"
    )
    x = torch.randn(2, 20, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[:, -1].exp().sum(), x)
    again = probe(model, x.detach(), lambda output: output[:, -1].exp().sum()).inputs[0].norms
    assert again == pytest.approx(gradient.transpose(0, 1).flatten(1).norm(dim=1).tolist(), rel=1e-4)


def test_encoder_and_decoder_of_different_lengths() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True)
    batch = {
        "src": torch.randn(2, 11, 16),
        "tgt": torch.randn(2, 7, 16),
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(7),
    }
    profile = probe(model, batch, lambda output: output[:, -1].exp().sum())
    by_name = {layer.name: layer.verdict() for layer in profile.layers}
    assert by_name["encoder.layers.0"].startswith(
        "is read at 11 of 11 positions, so there is no one distance; felt at 11 of 11 positions. A step "
    )
    assert by_name["decoder.layers.0"].startswith("reaches: felt at 7 of 7 positions, the farthest at 0.")
    assert " of 4 states effectively" in by_name["decoder.layers.0"]  # its own positions, not the encoder's
    assert by_name["decoder.layers.1"].startswith("felt at 1 of 7 positions")
    assert profile.hops is not None
    assert profile.hops.shape == (7,)


class Remembering:
    """A symbol at the first of `length` steps, asked for at the last; 120 updates learn it."""

    def __init__(self, length: int, rows: int = 16) -> None:
        torch.manual_seed(0)
        self.length, self.rows = length, rows
        self.model, self.head = plait.RelLSTM(4, 16, window=4, capacity=4), nn.Linear(16, 3)

    def draw(self) -> tuple[Tensor, Tensor]:
        symbol, x = torch.randint(3, (self.rows,)), torch.zeros(self.length, self.rows, 4)
        x[..., 3] = torch.randn(self.length, self.rows) / 2
        x[0, torch.arange(self.rows), symbol] = 1.0
        return x, symbol

    def loss(self, output: Any, symbol: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.head(output[0][-1]), symbol)

    def train(self, updates: int = 120) -> float:
        weights = [*self.model.parameters(), *self.head.parameters()]
        optimizer = torch.optim.Adam(weights, lr=0.01)
        for _ in range(updates):
            x, symbol = self.draw()
            loss = self.loss(self.model(x), symbol)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
        return loss.item()

    def profile(self) -> GradientProfile:
        x, symbol = self.draw()
        return probe(self.model, x, lambda output: self.loss(output, symbol))


def test_an_untrained_memory_has_a_hole() -> None:
    """The first four states are kept, those after them were dropped: many hops away, one in sixty felt."""
    begin = Remembering(100).profile().inputs[0]
    assert begin.decay is not None
    assert begin.decay.hole is not None
    first, last = begin.decay.hole
    assert first == 5
    assert 40 < last < 90
    assert begin.verdict().startswith(
        f"has a hole: felt at {begin.decay.reached} of 100 positions, not at 5 to {last}, the farthest at 0.0"
    )
    assert begin.verdict().endswith(
        "What lies in the hole is not learned from: a larger memory, or training one to keep it "
        "(docs/gradients.md#when-there-is-a-hole)."
    )


def test_a_trained_memory_reaches() -> None:
    task = Remembering(25)
    begin = task.profile().inputs[0].decay
    assert task.train() < 0.05
    end = task.profile().inputs[0]
    assert end.verdict().startswith("reaches: felt at 25 of 25 positions, the farthest at 0.")
    assert end.verdict().endswith(REACHES)
    assert ", and the deepest state is 5 hops away." in task.profile().layers[0].verdict()
    assert begin is not None
    assert end.decay is not None
    assert end.decay.farthest > begin.farthest  # what it was asked for


class Loop(nn.Module):
    """An LSTM cell in a loop, batch first as people write it."""

    def __init__(self, detached: bool = False) -> None:
        super().__init__()
        self.cell, self.detached = nn.LSTMCell(3, 6, dtype=DOUBLE), detached

    def forward(self, x: Tensor) -> Tensor:
        hidden = cell_state = x.new_zeros(len(x), 6)
        outputs = []
        for step in x.unbind(1):
            hidden, cell_state = self.cell(step, (hidden * 1 if self.detached else hidden, cell_state))
            outputs.append(hidden)
        return torch.stack(outputs, 1)


def test_cells_in_a_loop_are_steps() -> None:
    torch.manual_seed(0)
    loop, x = Loop(), torch.randn(5, 30, 3, dtype=DOUBLE)
    layer = nn.LSTM(3, 6, batch_first=True, dtype=DOUBLE)
    with torch.no_grad():
        for name, parameter in loop.cell.named_parameters():
            getattr(layer, name + "_l0").copy_(parameter)
    for where in (slice(-1, None), slice(None)):
        found = probe(loop, x, lambda output, w=where: output[:, w].square().sum()).layers[0]
        expected = probe(layer, x, lambda output, w=where: output[0][:, w].square().sum()).layers[0]
        assert found.norms == pytest.approx(expected.norms, rel=1e-9)
        assert found.verdict() == expected.verdict()
        assert " of 30 positions" in found.verdict()
    touched = probe(Loop(detached=True), x, lambda output: output[:, -1].sum()).layers[0]
    assert touched.acting == (30,)  # not told from recurrence: the last that has a gradient


def test_convolutions_have_positions_out_of_reach() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv1d(8, 8, 3, padding=1))
    profile = probe(model, torch.randn(2, 3, 30), lambda output: output[:, :, 15].sum())
    assert (
        profile.layers[0]
        .verdict()
        .startswith(
            "ends: felt at 3 of 30 positions, nothing arrives from 2 steps off on, by construction (a "
            "window, a mask or a detached state): 27 can never be felt, the farthest at "
        )
    )
    assert profile.inputs[0].decay is not None
    assert profile.inputs[0].decay.reached == 5
