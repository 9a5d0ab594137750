"""Looks at held-out sequences."""

from __future__ import annotations

import torch

from plait.tasks import TransferCopyTask
from plait.training import fit


class Exploding(torch.nn.Module):
    """Logits that are not finite on long sequences."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, state=None):
        logits = torch.zeros(*inputs.shape[:2], 9) + self.weight
        return (logits / 0 if len(inputs) > 30 else logits), None


def test_a_loss_that_is_not_finite_is_left_out_and_the_run_goes_on(tmp_path):
    """A model may be lost at delays it was not trained at; its run is not."""
    task = TransferCopyTask(delay=3, test_delays=(20,))
    fitted = fit(Exploding(), task, folder=tmp_path / "run", updates=4, batch_size=2, evaluate_on=2,
                 evaluate_every=2, device="cpu", progress=True)  # fmt: skip
    assert fitted.status == "complete"
    short, long = fitted.summary["held_out"].values()
    assert "loss" in short
    assert set(long) == {"score"}
