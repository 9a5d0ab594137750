"""`plait train csv`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from plait.commands.train import described_run, trained
from plait.errors import ConfigError
from plait.marks import flat, given, option, usual
from plait.result import CommandResult
from plait.training.option_defaults import defaults_for
from plait.training.options import MeansOptions, ModelOptions, RecipeOptions

__all__ = ["train_csv"]

_HIDDEN, _EPOCHS, _BATCH = (
    64,
    30,
    32,
)  # where nothing is said: minutes for thousands of sequences on two cores


def _defaults(words: list[str]) -> dict[str, Any] | None:
    """What is taken for the model of a line, and for any table."""
    found = defaults_for(["csv", *words])
    own = {
        "hidden": _HIDDEN, "epochs": _EPOCHS, "batch_size": f"{_BATCH}, or all there are",
        "updates": "as many as the epochs have", "evaluate_every": "an epoch", "evaluate_on": "all",
    }  # fmt: skip
    return None if found is None else {**found, **own, "missing": "refuse"}


@usual(_defaults)
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
    held_out: float = 0.2,
    no_header: bool = False,
    of_model: Annotated[ModelOptions, flat] = ModelOptions(),  # noqa: B008
    of_recipe: Annotated[RecipeOptions, flat] = RecipeOptions(),  # noqa: B008
    epochs: int | None = None,
    backend: str = "auto",
    means: Annotated[MeansOptions, flat] = MeansOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a model on a table of your own: plait train csv visits.csv --target outcome --sequence patient.

    A row of the file is a step, a sequence the rows with one value of --sequence. Words are classes, and so
    are up to twenty whole numbers; other numbers are predicted as numbers and scored by R². What is held out
    is never trained on. A run that was stopped goes on with plait train --resume RUN.

    Args:
        file: CSV, with commas, semicolons, tabs or bars; .gz is unpacked.
        target: the column that is asked.
        sequence: the column that says to which sequence a row belongs.
        order: the column that orders the rows of a sequence; as they stand in the file if left out.
        features: the columns that are seen; all others that hold numbers if left out.
        missing: where a feature has no value: refuse (if left out), mean (of the column), previous (of the
            sequence). A row without a target is seen and not asked. NA, n/a, nan, null, none and ? are no
            value, but in a target of words: there they are classes, and only an empty cell is none.
        answer: class or number, where the target's values leave it open.
        asks: last or every: at the last step of a sequence, or at every row that has a target; if left out,
            last where a sequence has one value of the target.
        length: cut sequences into pieces of so many steps; needed where there is no --sequence.
        held_out: share of the sequences that is held out, by the hash of their names; of one long series, its
            end.
        no_header: the first line holds data; columns are called 1, 2, 3, ….
        epochs: how often the training data are gone through, 30 if left out, instead of --updates.
        backend: of the model's scan; auto chooses.
    """
    from plait.tasks import CsvTask
    from plait.training.callbacks import announce

    if isinstance(held_out, bool) or not 0 < held_out < 1:
        raise ConfigError(f"held_out: expected a share between 0 and 1, got {held_out}")
    said: dict[str, Any] = {
        "sequence": sequence, "order": order, "missing": missing, "answer": answer, "asks": asks,
        "length": length,
    }  # fmt: skip
    task = CsvTask(
        file=str(file), target=target, features=features, share=held_out, header=not no_header,
        **{name: value for name, value in said.items() if value is not None},
    )  # fmt: skip
    model = {"hidden_size": _HIDDEN, **of_model.values()}
    recipe = given(of_recipe)
    if "batch_size" not in recipe:
        of_recipe = dataclasses.replace(of_recipe, batch_size=min(_BATCH, len(task.split().train.lengths)))
    wanted = None if "updates" in recipe and epochs is None else epochs or _EPOCHS
    values = {"name": task.name, **task.options()}
    description = described_run(values, model, of_recipe, wanted, means)
    read = task.facts()
    announce(read, means.quiet)
    result = trained(description, means, backend)
    if result is None:
        return None
    return dataclasses.replace(
        result,
        data={**result.data, "read": read},
        parts=(*result.parts, f"see it as a page: plait report {means.out}"),
    )
