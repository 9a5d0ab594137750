"""The command `plait train csv`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from plait.errors import ConfigError
from plait.lab.annotations import defaults_from, explicit_options, option
from plait.lab.commands.train import to_spec, trained
from plait.lab.result import CommandResult
from plait.lab.training.option_defaults import defaults_for
from plait.lab.training.options import ModelOptions, RecipeOptions, RuntimeOptions
from plait.lab.training.recipe import Recipe, usual_batch

if TYPE_CHECKING:
    from plait.lab.tasks import CsvTask

__all__ = ["train_csv"]

_MODEL, _HIDDEN, _EPOCHS = "rellstm", 64, 30  # defaults: minutes for thousands of sequences on two cores
_UPDATES = 600  # fewest updates of a run by default, in more epochs where there are few sequences
_EVALUATIONS = 30  # most evaluations of a run by default
_FORECAST = {"lr": 4e-3, "schedule": "halve"}  # a forecast improves from the first update, and overfits


def _defaults(words: list[str]) -> dict[str, Any] | None:
    """Return the defaults of the line's model, with those of this command for any table."""
    named = any(word.partition("=")[0] == "--model" for word in words)
    defaults = defaults_for(["csv", *([] if named else ["--model", _MODEL]), *words])
    own = {
        "hidden_size": _HIDDEN,
        "epochs": f"{_EPOCHS}, or more until there are {_UPDATES} updates",
        "batch_size": "an eighth of the sequences, from 8 to 32",
        "updates": "as many as the epochs have",
        "evaluate_every": "one or more epochs",
        "evaluate_on": "all",
        "lr": f"{Recipe.lr}, with --horizon {_FORECAST['lr']}",
        "schedule": f"{Recipe.schedule}, with --horizon {_FORECAST['schedule']}",
    }
    return None if defaults is None else {**defaults, **own, "missing": "refuse", "name": _MODEL}


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
    of_model: ModelOptions = ModelOptions(name=_MODEL),  # noqa: B008
    of_recipe: RecipeOptions = RecipeOptions(),  # noqa: B008
    epochs: int | None = None,
    backend: str = "auto",
    runtime: RuntimeOptions = RuntimeOptions(),  # noqa: B008
) -> CommandResult | None:
    """Train a model on a table of your own: plait train csv visits.csv --target outcome --sequence patient.

    A row of the file is a step, a sequence the rows with one value of --sequence. A target of words, or of
    up to twenty whole numbers, is classified; other numbers are regressed and scored by R². Held-out
    sequences are never trained on. A run that was stopped continues with plait train --resume RUN.

    To forecast a column from its own past: plait train csv sales.csv --target value --horizon 7.

    Args:
        file: a CSV file with commas, semicolons, tabs or bars; .gz is decompressed.
        target: the column to predict.
        sequence: the column that identifies the sequence of a row.
        order: the column that orders the rows of a sequence; their order in the file if left out.
        features: the input columns; if left out, all others: numbers, dates as 2026-01-31 (time of the day,
            the week and the year), and words if there are at most 50 (one input for each).
        missing: how to fill missing feature values: refuse (if left out), mean (of the column), previous (of
            the sequence). A row without a target is an input without a loss. NA, n/a, nan, null, none and ?
            count as missing, except in a target of words: there they are classes, and only an empty cell is
            missing.
        answer: class or number, where the target's values allow both.
        asks: last or every: predict at the last step of a sequence, or at every row that has a target; if
            left out, last where every sequence has a single target value.
        length: cut sequences into pieces of this many steps; required without --sequence. With --horizon
            the pieces overlap by half, and are 50 steps long or more if left out.
        horizon: forecast: at every row predict the target of this many rows later, from the features and the
            target's own past; 0 predicts the target of the row itself.
        held_out: share of the sequences that is held out, chosen by the hash of their names; of a single
            series, and of every series with --horizon, its end.
        no_header: the first line holds data; columns are named 1, 2, 3, ….
        epochs: passes over the training data, instead of --updates.
        backend: backend of the model's scan; auto chooses.
    """
    from plait.lab.tasks import CsvTask
    from plait.lab.training.callbacks import announce

    if isinstance(held_out, bool) or not 0 < held_out < 1:
        raise ConfigError(f"held_out: expected a share between 0 and 1, got {held_out}")
    options: dict[str, Any] = {
        "sequence": sequence,
        "order": order,
        "missing": missing,
        "answer": answer,
        "asks": asks,
        "length": length,
        "horizon": horizon or None,
    }
    task = CsvTask(
        file=str(file),
        target=target,
        features=features,
        share=held_out,
        header=not no_header,
        **{name: value for name, value in options.items() if value is not None},
    )
    model = {"hidden_size": _HIDDEN, **explicit_options(of_model)}
    of_recipe, num_epochs = _budget(task, of_recipe, epochs)
    spec = to_spec(task, model, of_recipe, num_epochs, runtime)
    facts = task.facts()
    announce(facts, runtime.quiet)
    result = trained(spec, runtime, backend)
    if result is None:
        return None
    naive = task.latest_value()
    beside = [f"the latest value as the prediction: RMSE {naive['rmse']:.4g}"] if naive else []
    return dataclasses.replace(
        result,
        data={**result.data, "read": facts, **({"latest_value": naive} if naive else {})},
        parts=(
            *result.parts,
            *beside,
            f"see it as a page: plait report {runtime.out}",
            f"predict for new rows: plait predict {result.data['folder']} NEW.csv",
        ),
    )


def _budget(task: CsvTask, recipe: RecipeOptions, epochs: int | None) -> tuple[RecipeOptions, int | None]:
    """Return hyperparameters and epochs, with enough updates where there are few sequences."""
    explicit, count = explicit_options(recipe), len(task.split().train.lengths)
    changes: dict[str, Any] = {name: value for name, value in _FORECAST.items() if task.horizon}
    changes["batch_size"] = batch = explicit.get("batch_size", usual_batch(count))
    if "updates" in explicit and epochs is None:
        return dataclasses.replace(recipe, **{**changes, **explicit}), None
    per_epoch = max(1, count // batch) if isinstance(batch, int) and batch > 0 else 1
    epochs = epochs or max(_EPOCHS, -(-_UPDATES // per_epoch))
    changes["evaluate_every"] = per_epoch * -(-epochs // _EVALUATIONS)
    return dataclasses.replace(recipe, **{**changes, **explicit}), epochs
