"""‖∂L/∂h_t‖ against a network unrolled by hand."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn.functional import cross_entropy

from plait.errors import ConfigError
from plait.lab.tasks import CopyTask
from plait.lab.training.description import Network
from plait.lab.training.fit import fit
from plait.lab.training.gradient_record import gradient_norms
from plait.models import LSTM, RNN, RelRNN, Transformer


def unrolled(network, batch, length):
    """Every h_t of an Elman network as a leaf's child, and the gradient of the last ten steps' loss."""
    cell = network.recurrent.layers[0].cell
    h, states = torch.zeros(batch.inputs.shape[1], cell.hidden_size, dtype=torch.float64), []
    for x in batch.inputs.double():
        h = torch.tanh(x @ cell.weight_ih.T + h @ cell.weight_hh.T + cell.bias)
        h.retain_grad()
        states.append(h)
    losses = [cross_entropy(network.decoder(h), y) for h, y in zip(states, batch.targets, strict=True)]
    (sum(losses[-10:]) / length).backward()
    return [h.grad.norm().item() for h in states]


def test_against_an_unrolled_network():
    torch.manual_seed(0)
    network = Network(RNN(10, 5, dtype=torch.float64), 9)
    task = CopyTask(4)
    batch = task.batch(6, torch.Generator().manual_seed(1))
    (norms,) = gradient_norms(network, task, batch, [(0, 6)])
    assert norms == pytest.approx(unrolled(network, batch, 24), rel=1e-10)
    network.zero_grad()
    (in_parts,) = gradient_norms(network, task, batch, [(0, 2), (2, 6)])
    assert in_parts == pytest.approx(norms, rel=1e-10)
    assert all(p.grad is None for p in network.parameters())


def test_by_layer_and_without_touching_the_mode():
    torch.manual_seed(0)
    network = Network(RelRNN(10, 5, num_layers=2, dropout=0.5, window=3, capacity=2), 9).train()
    batch = CopyTask(4).batch(3, torch.Generator().manual_seed(1))
    first, again = (gradient_norms(network, CopyTask(4), batch, [(0, 3)]) for _ in range(2))
    assert first == again, "dropout is off"
    assert (len(first), len(first[0])) == (2, 24)
    assert network.training


def test_for_a_transformer_by_block():
    torch.manual_seed(0)
    network = Network(Transformer(10, 8, num_layers=2), 9)
    batch = CopyTask(4).batch(3, torch.Generator().manual_seed(1))
    below, above = gradient_norms(network, CopyTask(4), batch, [(0, 3)])
    assert len(below) == len(above) == 24
    assert min(below) > 0, "attention reaches every step"
    assert max(above[:14]) == 0 < min(above[14:]), (
        "the last block's outputs are read by the output layer alone"
    )


def test_what_has_vanished_in_float32_is_still_seen():
    torch.manual_seed(0)
    network = Network(LSTM(10, 4), 9)
    with torch.no_grad():
        for layer in network.recurrent.layers:
            layer.cell.weight_hh.mul_(1e-3)
            layer.cell.bias.fill_(-8.0)
    batch = CopyTask(30).batch(2, torch.Generator().manual_seed(1))
    (norms,) = gradient_norms(network, CopyTask(30), batch, [(0, 2)])
    assert 0 < min(norm for norm in norms if norm) < 1e-23, "the square of this is 0 in float32"


def test_other_modules_are_refused(small_fit):
    from plait.lab.training.fit import fit

    with pytest.raises(ConfigError, match="gradients_every: expected a plait model"):
        fit(torch.nn.LSTM(10, 4), CopyTask(3), updates=1, gradients_every=1, device="cpu")


def test_recorded_at_the_beginning_in_between_and_at_the_end(small_fit):
    fitted = small_fit(updates=12, gradients_every=5)
    assert [record["update"] for record in fitted.gradients] == [0, 5, 10, 12]
    assert all(len(record["norms"][0]) == 21 for record in fitted.gradients)


def test_recorded_at_the_delay_that_is_scored(tmp_path):
    """Batches of training have shorter delays too; a record is of the one that is asked for."""
    task = CopyTask(16, shortest_delay=2)
    folder = tmp_path / "run"
    fit(
        RelRNN(10, 4),
        task,
        folder=folder,
        updates=4,
        batch_size=2,
        evaluate_on=2,
        gradients_every=1,
        device="cpu",
    )
    records = [json.loads(line) for line in (folder / "gradients.jsonl").read_text().splitlines()]
    assert [len(record["norms"][0]) for record in records] == [36] * 5
