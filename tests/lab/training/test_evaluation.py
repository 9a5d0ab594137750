"""Looks at held-out sequences."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError
from plait.lab.tasks import IGNORE, MultiQueryRecallTask, TransferCopyTask
from plait.lab.training.description import Network
from plait.lab.training.fit import fit
from plait.lab.training.supervised import answer
from plait.models import LSTM, RelLSTM


class Exploding(torch.nn.Module):
    """Logits that are not finite on long sequences."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, state=None):
        logits = torch.zeros(*inputs.shape[:2], 9) + self.weight
        return (logits / 0 if len(inputs) > 30 else logits), None


def test_a_non_finite_loss_is_left_out_and_the_run_continues(tmp_path):
    """A model may be lost at delays it was not trained at; its run is not."""
    task = TransferCopyTask(delay=3, test_delays=(20,))
    fitted = fit(
        Exploding(),
        task,
        folder=tmp_path / "run",
        updates=4,
        batch_size=2,
        evaluate_on=2,
        evaluate_every=2,
        device="cpu",
        progress=True,
    )
    assert fitted.status == "complete"
    short, long = fitted.summary["held_out"].values()
    assert "loss" in short
    assert set(long) == {"score"}


@pytest.mark.parametrize("model", [RelLSTM, LSTM])
def test_logits_are_computed_only_at_target_steps(model):
    """What it says there, its loss, score and gradients are those of one that answers everywhere."""
    torch.manual_seed(0)
    task = MultiQueryRecallTask(16, 3, vocab=32, embedding=5)
    network = Network(model(5, 8), 32, vocabulary=32)
    batch = task.batch(6, torch.Generator().manual_seed(1))

    def gradients(logits, targets):
        found = torch.autograd.grad(task.loss(logits, targets), list(network.parameters()))
        return [task.score(logits, targets), *found]

    everywhere = network(batch.inputs)[0]
    logits, targets, _ = answer(network, task, batch, None, "fp32")
    assert logits.shape == (3, 6, 32)
    assert torch.equal(targets.t().flatten(), batch.targets.t()[batch.targets.t() != IGNORE])
    for one, other in zip(gradients(logits, targets), gradients(everywhere, batch.targets), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_not_our_network_answers_everywhere():
    task = MultiQueryRecallTask(16, 3, vocab=32, embedding=5)
    inner = Network(LSTM(5, 8), 32, vocabulary=32)

    class Wrapped(torch.nn.Module):
        def forward(self, inputs, state=None):
            return inner(inputs, state)

    batch = task.batch(2, torch.Generator().manual_seed(1))
    logits, targets, _ = answer(Wrapped(), task, batch, None, "fp32")
    assert logits.shape == (16, 2, 32)
    assert torch.equal(targets, batch.targets)


def test_more_targets_than_a_task_says_are_refused():
    class Fewer(MultiQueryRecallTask):
        answers = 2

    with pytest.raises(ConfigError, match="answers: expected how many targets a row has, got 2; one has 3"):
        fit(LSTM(5, 8), Fewer(16, 3, vocab=32, embedding=5), updates=1, device="cpu")
