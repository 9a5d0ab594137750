"""Characters of the Penn Treebank by Transformers of equal size, by how many states a head reads."""

from __future__ import annotations

from typing import Any

from plait.lab.experiments.description import Experiment, PlannedRun
from plait.lab.experiments.untangling.size import Size

__all__ = ["bounded_text"]

_STATES = (16, 32, 64, 128, 256)


def _learned(states: int) -> dict[str, Any]:
    return {"memory": "relevancy", "window": states // 2, "capacity": states // 2, "relevance": "learned"}


def _columns() -> dict[str, dict[str, Any]]:
    sinks = {"memory": "relevancy", "window": 60, "capacity": 0, "sinks": 4, "relevance": "learned"}
    return {
        "all states": {},
        **{f"learned, {states} states": _learned(states) for states in _STATES},
        "window, 64 states": {"memory": "window", "window": 64},
        "4 sinks + window, 64 states": sinks,
    }


def bounded_text(size: Size) -> Experiment:
    """Return the experiment: bits per character at a context of 1,024, by states per head."""
    full = {
        "updates": 918,
        "batch_size": 32,
        "lr": 1e-3,
        "clip": 1.0,
        "precision": "bf16",
        "evaluate_every": 153,
        "evaluate_on": None,
        "until_accuracy": None,
        "record_every": 51,
    }
    shape = {"hidden_size": 320, "num_layers": 4, "heads": 5} if size.published else {"hidden_size": 16}
    task = {"name": "ptb", "span": 1024, "embedding": 64}
    task |= {} if size.published else {"span": 40, "embedding": 16}
    runs = tuple(
        PlannedRun(
            row="characters",
            column=column,
            task=task,
            model={"name": "transformer", **shape, **options},
            recipe=size.training({**full}, until_accuracy=None),
        )
        for column, options in _columns().items()
    )
    return Experiment(
        name="bounded-text",
        title="Penn Treebank, one character at a time: Transformers by states a head",
        source="ours",
        claim="64 states a head that a score chooses are as good as all 1,024.",
        kind="table",
        metric="accuracy; bits per character beside it",
        updates_to=0.5,
        needs="ptb",
        seeds=size.seeds[:1],
        runs=runs,
        notes=(
            "Four layers, width 320, 5 heads: 5 million parameters; spans of 1,024 characters, each beginning"
            " with an empty memory; batches of 32, Adam at 0.001, clipping at 1, bf16, six epochs.",
            "learned: half of the states are the latest, half those of highest score. RelLSTM and LSTM of as "
            "many parameters: table9 by our recipe, in results/untangling.",
        ),
    )
