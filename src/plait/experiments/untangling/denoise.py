"""Denoise with the hyperparameters of table 7. The supplement publishes no numbers for it."""

from __future__ import annotations

from plait.experiments.description import Experiment
from plait.experiments.untangling.contestants import DENOISE, OURS, SOURCE, grid
from plait.experiments.untangling.size import Size
from plait.experiments.untangling.table5 import DELAYS

__all__ = ["denoise"]


def denoise(size: Size) -> Experiment:
    """Denoise: every model, every delay of figure 4."""
    return Experiment(
        name="denoise",
        title="Denoise: accuracy by model and delay",
        source=f"{SOURCE}, table 7",
        claim="RelRNN and RelLSTM need fewer updates than the baselines on denoise.",
        kind="table",
        metric="accuracy on the last ten steps; chance is 12.5%",
        updates_to=0.99,
        needs="",
        seeds=size.seeds,
        runs=tuple(grid(DENOISE.items(), "denoise", size, *DELAYS)),
        notes=(
            "From table 7: LSTM, orth-RNN, expRNN, GORU and RelRNN, but for the points below.",
            "Ours: MemRNN, SAB, RelLSTM, RNN, MemLSTM and uniform writing train as RelRNN does; the "
            "Transformer has two layers, Adam at 0.0002.",
            "The supplement gives no numbers for denoise: these stand alone.",
            *OURS,
        ),
    )
