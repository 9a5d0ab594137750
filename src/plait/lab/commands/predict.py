"""The command `plait predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from plait.lab.annotations import option
from plait.lab.result import CommandResult

__all__ = ["predict"]


def predict(
    run: Annotated[str, option(metavar="RUN")],
    file: Annotated[Path, option(metavar="FILE")],
    /,
    *,
    output: Annotated[Path, option(aliases=("-o",))] = Path("predictions.csv"),
    missing: str | None = None,
    device: str = "auto",
    backend: str = "auto",
    out: Path = Path("runs"),
) -> CommandResult:
    """Predict from a new table with a model of plait train csv: plait predict RUN new.csv -o predictions.csv.

    The table has the columns of training; the target may be absent. Where the model predicts at every row,
    the result is the table with a prediction in each row; where it predicts at the last step, it has a row
    for each sequence. Classes come by their names, with the model's probability. If the table has targets,
    the score on them is reported.

    Args:
        run: a run's folder, its id, or the beginning of its id.
        file: a CSV file; .gz is decompressed.
        output: the CSV file to write.
        missing: how to fill missing feature values: refuse, mean (of the training data), previous (of the
            sequence); as in training if left out.
        device: auto (cuda if there is one), cpu, cuda, cuda:N.
        backend: backend of the model's scan; auto chooses.
        out: the folder of runs in which an id is searched.
    """
    from plait.errors import OutputError
    from plait.files import destination, write_whole
    from plait.lab.runs.reading import find_run
    from plait.lab.training.prediction import predict_table
    from plait.table import percent

    target = destination(output)
    if target.exists() and file.exists() and target.samefile(file):
        raise OutputError(
            f"--output: expected another file than the table, which it would replace, got {output}"
        )
    result = predict_table(find_run(run, out), file, missing=missing, device=device, backend=backend)
    write_whole(target, result.csv())
    count = len(result.columns["prediction"])
    lines = [f"{count:,} predictions"]
    if "accuracy" in result.scores:
        lines.append(f"accuracy {percent(result.scores['accuracy'])} on {result.scores['targets']:,} targets")
    elif result.scores:
        share = f", R² {result.scores['R²']:.3f}" if "R²" in result.scores else ""
        lines.append(f"RMSE {result.scores['rmse']:.4g}{share} on {result.scores['targets']:,} targets")
    data = {"file": str(target), "predictions": count, "scores": result.scores}
    return CommandResult(
        {**data, "notes": list(result.notes)}, ("; ".join(lines), *result.notes, str(target))
    )
