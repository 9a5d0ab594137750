"""Denoise with the hyperparameters of table 7. The supplement publishes no numbers for it."""

from __future__ import annotations

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.untangling.contestants import OURS, SOURCE, contestants, grid
from plait.lab.experiments.untangling.size import Size
from plait.lab.experiments.untangling.table5 import DELAYS

__all__ = ["denoise"]

_NOTES = {
    "published": (
        "From table 7: LSTM, orth-RNN, expRNN, GORU and RelRNN; from the authors' script: RelLSTM.",
        "Ours: MemRNN, SAB, RNN, MemLSTM and uniform writing train as RelRNN does; the Transformer has two "
        "layers, Adam at 0.0002.",
    ),
    "plait": (
        "By the recipe we recommend: that of table5, found on copy by `plait reproduce recipes`, at delays "
        "of 30, 60, … to the row's, equally often; scored at the row's.",
    ),
}


def denoise(size: Size, recipe: str = "published") -> Experiment:
    """Return the experiment: denoise, every model at every delay of figure 4."""
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
        runs=tuple(grid(contestants("denoise", recipe).items(), "denoise", size, *DELAYS)),
        notes=(
            *_NOTES[recipe],
            "The supplement gives no numbers for denoise: these stand alone.",
            *OURS,
        ),
    )
