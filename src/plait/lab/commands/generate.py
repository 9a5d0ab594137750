"""The command `plait generate`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

from plait.errors import ConfigError
from plait.lab.annotations import option
from plait.lab.result import CommandResult

__all__ = ["generate"]


def generate(
    run: Annotated[str, option(metavar="RUN")],
    /,
    prompt: str = "",
    length: int = 500,
    temperature: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    backend: str = "auto",
    out: Path = Path("runs"),
) -> CommandResult:
    """Generate text with a character model: plait generate RUN --prompt "the company said".

    Characters are printed as they are sampled. The vocabulary is saved with the run, so no data are needed.

    Args:
        run: a run's folder, its id, or the beginning of its id.
        prompt: the text to continue; if left out, text begins as at the start of a line.
        length: number of characters to generate.
        temperature: sampling temperature; 0 takes the likeliest character every time.
        seed: seed of the sampling.
        device: auto (cuda if there is one), cpu, cuda, cuda:N.
        backend: backend of the model's scan; auto chooses.
        out: the folder of runs in which an id is searched.
    """
    from plait.lab.runs.reading import find_run, read_run
    from plait.lab.tasks import LanguageTask, task_named
    from plait.lab.training.generation import continue_text
    from plait.lab.training.session import load

    folder = find_run(run, out)
    record = read_run(folder)
    task = task_named(**record.description["task"]) if "name" in record.description["task"] else None
    if not isinstance(task, LanguageTask):
        raise ConfigError(f"expected a run on characters (ptb or text), got {record.id} on {record.task}")
    network = load(folder, device=device, backend=backend)
    text = continue_text(network, task, prompt, length, temperature, seed)
    data = {"run": record.id, "prompt": prompt, "length": length, "temperature": temperature, "seed": seed}
    return CommandResult(data, stream=itertools.chain([prompt] if prompt else [], text))
