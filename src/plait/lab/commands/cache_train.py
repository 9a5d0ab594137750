"""The command `plait cache train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from plait.errors import ConfigError
from plait.lab.annotations import option
from plait.lab.result import CommandResult
from plait.table import Table, show

__all__ = ["train_cache"]


def train_cache(
    model: Annotated[Path, option(metavar="MODEL")],
    /,
    *,
    text: Annotated[tuple[Path, ...], option(metavar="FILE")],
    window: int,
    capacity: int,
    sinks: int = 4,
    out: Annotated[Path, option(metavar="FOLDER", aliases=("-o",))],
    recipe: Literal["usage", "choice", "eviction", "full"] = "usage",
    minutes: float | None = None,
    updates: Annotated[int | None, option(default="one pass over the texts")] = None,
    context: int = 1024,
    batch_size: int = 1,
    lr: Annotated[float | None, option(default="2e-3 for usage and choice, 5e-4 for eviction")] = None,
    width: int = 64,
    features: Literal["states", "hidden"] = "states",
    sizes: str = "1",
    held_out: int = 4,
    facts: float = 0.5,
    answer_weight: float = 10.0,
    tune: Literal["none", "lora"] = "none",
    rank: int = 16,
    adapter_lr: float = 3e-4,
    start: Annotated[Path | None, option(metavar="FOLDER")] = None,
    seed: int = 0,
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
    quiet: bool = False,
) -> CommandResult:
    """Train what a bounded cache keeps: plait cache train MODEL --text FILE --window 64 --capacity 60 -o OUT.

    The language model stays as it is; a small head for each of its layers learns to rank states. The recipe
    usage predicts how strongly later queries read a state, from one forward pass a document; choice learns
    which states that would keep, at the same cost; eviction trains
    through the bounded cache to change the model's output least, at about five times the cost, and is best
    begun with scores of another (--start). The folder is a run like any other (plait runs FOLDER) and has
    scores.safetensors and scores.json, for plait.hf.BoundedCache(…, scores=FOLDER).

    Args:
        model: a folder of transformers (config.json, safetensors, tokenizer), or a .gguf file.
        text: text files, UTF-8; a tenth of the documents they are cut into is held out.
        window: latest states that the cache keeps.
        capacity: older states that the cache keeps.
        sinks: first states that the cache keeps.
        out: folder of the run and of the scores.
        recipe: usage, choice or eviction; full tunes as eviction does, with the full cache, as a control.
        minutes: as many updates as fit into this time, instead of --updates; a few are timed first.
        updates: updates in all; each takes --batch-size documents.
        context: tokens of a document; at least sinks + 2 · window + capacity.
        batch_size: documents of an update.
        lr: largest learning rate.
        width: hidden features of a head; 0 for a linear one.
        features: input of a head: states (keys and values) or the hidden state that they come from.
        sizes: comma-separated multiples of window and capacity; the updates take them in turn.
        held_out: held-out documents of an evaluation.
        facts: share of the documents into which facts and questions about them are written.
        answer_weight: weight of a token of an answer in the loss of eviction.
        tune: part of the model that is trained along: none, or lora, adapters of its attention (eviction).
        rank: rank of the adapters.
        adapter_lr: largest learning rate of the adapters.
        start: folder of scores to begin with; zero scores if left out.
        seed: of the initial weights and of the order of documents.
        resume: continue the run in the folder; all other options as at the start.
        threads: of the CPU; as many as torch chooses if left out.
        device: auto (cuda if there is one), cpu, cuda or cuda:N.
        dtype: of the language model; auto is float32 on a CPU, and that of its weights on a GPU.
        quiet: show no progress.
    """
    if minutes is not None and updates is not None:
        raise ConfigError("minutes: expected either --minutes or --updates, got both; leave one out")
    from plait.hf import Scores
    from plait.lab.bench.timing import limit_threads
    from plait.lab.caches.models import open_model
    from plait.lab.caches.texts import documents, part_of
    from plait.lab.caches.training import ScoresOptions, train_scores
    from plait.lab.training.process import device_named

    options = ScoresOptions(
        window=window,
        capacity=capacity,
        sinks=sinks,
        recipe=recipe,
        updates=updates or 1,
        batch_size=batch_size,
        lr=lr or 0.0,
        width=width,
        features=features,
        sizes=_sizes(sizes),
        held_out=held_out,
        facts=facts,
        answer_weight=answer_weight,
        tune=tune,
        rank=rank,
        adapter_lr=adapter_lr,
        seed=seed,
    )
    options.check(context)
    with limit_threads(threads):
        language = open_model(model, device_named(device), dtype)
        pieces = documents(text, language.tokenizer, context)
        if updates is None:
            options = options.with_updates(len(part_of(pieces, "train")) // batch_size)
        scores, fitted = train_scores(
            language,
            pieces,
            options,
            out,
            minutes=minutes,
            resume=resume,
            progress=not quiet,
            start=None if start is None else Scores.load(start, language.model),
        )
    evaluated = fitted.summary["held_out"]["held_out"] if fitted.summary["held_out"] else {}
    rows = [
        ["updates", f"{fitted.summary['updates']:,} of {scores.trained['of_updates']:,}"],
        ["documents", f"{len(pieces):,} of {context:,} tokens, a tenth of them held out"],
        ["held-out loss", show(evaluated.get("loss"))],
        [f"held-out {scores.trained['score']}", show(evaluated.get("score"))],
        ["seconds", show(fitted.summary["seconds"])],
    ]
    parts: tuple[str | Table, ...] = (
        Table(["", "value"], rows, f"Scores for {language.name}"),
        f"use them: plait.hf.BoundedCache(model, window={window}, capacity={capacity}, sinks={sinks}, "
        f"scores={str(out)!r})",
    )
    data = {"scores": str(out), "model": language.name, **fitted.summary, "trained": scores.trained}
    return CommandResult(data, parts)


def _sizes(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"sizes: expected numbers between commas, got {text!r}") from None
