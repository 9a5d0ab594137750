"""The command `plait train csv`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from plait.errors import ConfigError
from plait.lab.annotations import defaults_from, explicit_options, option
from plait.lab.commands.train import described_run, trained
from plait.lab.result import CommandResult
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import MeansOptions, ModelOptions, RecipeOptions

__all__ = ["train_csv"]

_HIDDEN, _EPOCHS, _BATCH = (
    64,
    30,
    32,
)  # defaults: minutes for thousands of sequences on two cores


def _defaults(words: list[str]) -> dict[str, Any] | None:
    """Return the defaults of the line's model, with those of this command for any table."""
    defaults = defaults_for(["csv", *words])
    own = {
        "hidden_size": _HIDDEN, "epochs": _EPOCHS, "batch_size": f"{_BATCH}, or all there are",
        "updates": "as many as the epochs have", "evaluate_every": "an epoch", "evaluate_on": "all",
    }  # fmt: skip
    return None if defaults is None else {**defaults, **own, "missing": "refuse"}


@defaults_from(_defaults)
def train_csv(
    file: Annotated[Path, option(metavar="FILE")],
    /,
    *,
    target: str,
    sequence: str | None = None,
    order: str | None = None,
    features: tuple[str, ...] = (),
    missing: str | None = None,
    answer: str | None = None,
    asks: str | None = None,
    length: int | None = None,
    horizon: int = 0,
    held_out: float = 0.2,
    no_header: bool = False,
    of_model: ModelOptions = ModelOptions(),  # noqa: B008
    of_recipe: RecipeOptions = RecipeOptions(),  # noqa: B008
    epochs: int | None = None,
    backend: str = "auto",
    means: MeansOptions = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a model on a table of your own: plait train csv visits.csv --target outcome --sequence patient.

    A row of the file is a step, a sequence the rows with one value of --sequence. A target of words, or of
    up to twenty whole numbers, is classified; other numbers are regressed and scored by R². Held-out
    sequences are never trained on. A run that was stopped continues with plait train --resume RUN.

    Args:
        file: a CSV file with commas, semicolons, tabs or bars; .gz is decompressed.
        target: the column to predict.
        sequence: the column that identifies the sequence of a row.
        order: the column that orders the rows of a sequence; their order in the file if left out.
        features: the input columns; all other numeric columns if left out.
        missing: how to fill missing feature values: refuse (if left out), mean (of the column), previous (of
            the sequence). A row without a target is an input without a loss. NA, n/a, nan, null, none and ?
            count as missing, except in a target of words: there they are classes, and only an empty cell is
            missing.
        answer: class or number, where the target's values allow both.
        asks: last or every: predict at the last step of a sequence, or at every row that has a target; if
            left out, last where every sequence has a single target value.
        length: cut sequences into pieces of this many steps; required without --sequence.
        horizon: forecast: at every row predict the target of this many rows later, from the features and the
            target's own past; 0 predicts the target of the row itself.
        held_out: share of the sequences that is held out, chosen by the hash of their names; of a single
            series, its end.
        no_header: the first line holds data; columns are named 1, 2, 3, ….
        epochs: passes over the training data, 30 if left out, instead of --updates.
        backend: backend of the model's scan; auto chooses.
    """
    from plait.lab.tasks import CsvTask
    from plait.lab.training.callbacks import announce

    if isinstance(held_out, bool) or not 0 < held_out < 1:
        raise ConfigError(f"held_out: expected a share between 0 and 1, got {held_out}")
    options: dict[str, Any] = {
        "sequence": sequence, "order": order, "missing": missing, "answer": answer, "asks": asks,
        "length": length, "horizon": horizon or None,
    }  # fmt: skip
    task = CsvTask(
        file=str(file), target=target, features=features, share=held_out, header=not no_header,
        **{name: value for name, value in options.items() if value is not None},
    )  # fmt: skip
    model = {"hidden_size": _HIDDEN, **explicit_options(of_model)}
    recipe = explicit_options(of_recipe)
    if "batch_size" not in recipe:
        of_recipe = dataclasses.replace(of_recipe, batch_size=min(_BATCH, len(task.split().train.lengths)))
    num_epochs = None if "updates" in recipe and epochs is None else epochs or _EPOCHS
    spec = described_run(task, model, of_recipe, num_epochs, means)
    facts = task.facts()
    announce(facts, means.quiet)
    result = trained(spec, means, backend)
    if result is None:
        return None
    return dataclasses.replace(
        result,
        data={**result.data, "read": facts},
        parts=(*result.parts, f"see it as a page: plait report {means.out}"),
    )
