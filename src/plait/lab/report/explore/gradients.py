"""Views of gradient propagation: uniform attention, a window with kept states, and the records of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plait.errors import ConfigError, DataError
from plait.gradients.sparse import Support, best_path, depth_to, path_counts, propagation_to, theorem2
from plait.gradients.sparse.sweep import log_norm
from plait.gradients.uniform.report import (
    Law,
    eigenvalue_name,
    joint_statement,
    law_sentences,
    law_table,
    measure_law,
)
from plait.lab.report.explore.library import Library
from plait.lab.report.explore.query_parameters import number, table_data, whole_number
from plait.lab.report.thinning import kept

__all__ = ["law_view", "norm_runs", "norms_view", "path_view", "reach_view", "support_of"]

USUAL = "0.25,-0.5"
MOST_EIGENVALUES = 4
LONGEST = 10**6
LONGEST_SPARSE, LONGEST_DRAWN = 1000, 24
TEN = math.log(10)


def law_view(query: Mapping[str, str]) -> dict[str, Any]:
    """Return Theorem 1 as printed, the sharp law and a measurement, with the texts of `plait gradients law`.

    Curves are log₁₀|p(λ)| against T. For an eigenvalue on the unit circle there is no law to draw.
    """
    values = _eigenvalues(query)
    length = whole_number(query, "length", 10_000, 100, LONGEST)
    mix = number(query, "mix", 1.0, 0.01, 1.0)
    laws = measure_law(values, length, 1, mix)
    sentences = law_sentences(laws, joint_statement(laws))
    return {
        "parts": [table_data(law_table(laws, length, 1)), *({"text": text} for text in sentences)],
        "laws": [_law_data(law, mix) for law in laws],
    }


def _law_data(law: Law, mix: float) -> dict[str, Any]:
    data: dict[str, Any] = {
        "eigenvalue": eigenvalue_name(law.eigenvalue),
        "lengths": law.lengths.tolist(),
        "measured": _log10(law.log_values),
        "sharp": None,
        "printed": None,
    }
    if law.log_constant is None or not law.reached:
        return data
    at_one = law.log_constant + math.log(mix)  # ln of both laws at T = 1
    for name in ("sharp", "printed"):
        data[name] = _log10(at_one + getattr(law, name) * np.log(law.lengths))
    return data


def support_of(length: int, window: int, capacity: int) -> Support:
    """Return the sets A_m: the last `window` states, and the first `capacity` of those that have left it.

    Screening keeps these states if the first ones are needed later, as in copy.

    >>> [support_of(5, window=2, capacity=1).attended(m).tolist() for m in range(1, 6)]
    [[1], [1, 2], [1, 2, 3], [1, 3, 4], [1, 4, 5]]
    """
    rows = [
        [*range(1, min(capacity, max(0, m - window)) + 1), *range(max(1, m - window + 1), m + 1)]
        for m in range(1, length + 1)
    ]
    return Support.from_lists(rows)


def reach_view(query: Mapping[str, str]) -> dict[str, Any]:
    """Return ‖ds_T/dh_t‖ by t with a window and kept states, Theorem 2's bound, and recurrence alone.

    V is normal with the given eigenvalues; the bound needs one that is real and positive. Values are log₁₀.
    """
    values = _eigenvalues(query)
    length = whole_number(query, "steps", 200, 2, LONGEST_SPARSE)
    window = whole_number(query, "window", 10, 1, LONGEST_SPARSE)
    capacity = whole_number(query, "capacity", 10, 0, LONGEST_SPARSE)
    mix = number(query, "mix", 1.0, 0.01, 1.0)
    support = support_of(length, window, capacity)
    measured = log_norm(propagation_to(support, values, mix=mix).log_abs)
    back = np.arange(length - 1, -1, -1)
    sizes = np.log(np.maximum(np.abs(np.array(values)), 1e-300))
    depth = depth_to(support)
    positive = [value.real for value in values if value.imag == 0 and value.real > 0]
    theorem = theorem2(support, max(positive), mix=mix) if positive else None
    return {
        "back": back.tolist(),
        "measured": _log10(measured),
        "bound": None if theorem is None else _log10(theorem.bound),
        "alone": _log10(log_norm(back[:, None] * sizes[None, :])),
        "depth": depth.tolist(),
        "kappa": support.kappa,
        "summary": _reach_text(support.kappa, int(depth.max()), length, bool(positive)),
    }


def _reach_text(kappa: int, deepest: int, length: int, bounded: bool) -> str:
    text = (
        f"κ = {kappa} states can be read at a step; no state is more than {deepest} recurrent steps away "
        f"from step {length}, against {length - 1} without attention."
    )
    return text if bounded else f"{text} No bound: Theorem 2 needs an eigenvalue that is real and positive."


def path_view(query: Mapping[str, str]) -> dict[str, Any]:
    """Return a small example to draw: the attended states, and the path from h_t to s_T with fewest steps."""
    steps = whole_number(query, "small", 16, 3, LONGEST_DRAWN)
    start = whole_number(query, "start", min(4, steps), 1, steps)
    window = whole_number(query, "window", 3, 1, LONGEST_DRAWN)
    capacity = whole_number(query, "capacity", 2, 0, LONGEST_DRAWN)
    support = support_of(steps, window, capacity)
    # With a tiny eigenvalue the best path is the one with the fewest s → s edges.
    path = best_path(support, 1e-12, start, steps)
    paths = path_counts(support)[start - 1]
    return {
        "sets": [support.attended(m).tolist() for m in range(1, steps + 1)],
        "path": [start, *path.times],
        "summary": (
            f"From h_{start} to s_{steps}: {path.degree} recurrent step{'s' * (path.degree != 1)} with "
            f"attention, {steps - start} without; {paths:,} path{'s' * (paths != 1)} in all."
        ),
    }


def norm_runs(library: Library) -> list[dict[str, str]]:
    """Return the runs that recorded their gradients."""
    return [{"key": key, "name": run.name} for key, run in library.runs().items() if run.gradients]


def norms_view(library: Library, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a run's recorded ‖∂L/∂h_t‖: a line per record and layer, log₁₀ against steps before the last."""
    run = library.run(query.get("run", ""))
    if not run.gradients:
        raise ConfigError(f"{run.name} recorded no gradients: train with --gradients-every")
    lines = []
    try:
        for record in run.gradients:
            layers = record["norms"]
            for layer, norms in enumerate(layers, start=1):
                lines.append(_recorded(int(record["update"]), layer, len(layers), norms))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{run.name}: gradients.jsonl holds a line that is no record ({error!r})") from error
    return {"run": run.name, "lines": lines}


def _recorded(update: int, layer: int, layers: int, norms: Sequence[float]) -> dict[str, Any]:
    backwards = [float(norm) for norm in norms][::-1]
    distances = kept(backwards)
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(backwards)[distances])
    name = f"update {update:,}" + (f", layer {layer}" if layers > 1 else "")
    return {"name": name, "back": distances, "norms": _log10(logs)}


def _eigenvalues(query: Mapping[str, str]) -> list[complex]:
    texts = [text for text in query.get("eigenvalues", USUAL).split(",") if text.strip()]
    if not 1 <= len(texts) <= MOST_EIGENVALUES:
        raise ConfigError(f"eigenvalues: expected 1 to {MOST_EIGENVALUES} between commas, got {len(texts)}")
    values = []
    for text in texts:
        try:
            value = complex(text.strip().replace(" ", "+"))  # a plus in a URL may be decoded as a space
        except ValueError:
            raise ConfigError(f"eigenvalues: expected numbers like 0.25 or 0.3+0.4j, got {text!r}") from None
        if not abs(value) <= 1:
            raise ConfigError(f"eigenvalues: expected |λ| <= 1, got {text.strip()}")
        values.append(value)
    return values


def _log10(logs: Any) -> list[float | None]:
    """Convert natural logarithms to base 10; the logarithm of 0 becomes None."""
    return [round(float(x) / TEN, 5) if math.isfinite(x) else None for x in logs]
