"""The commands `plait plan …`, `plait rank` and `plait bounds`."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from plait.answer import Answer, Table
from plait.depthwidth.best import best_bounds
from plait.depthwidth.bounds import (
    multiset_lower,
    regime,
    thm1_bounds,
    thm2_bounds,
    transition_depth,
)
from plait.depthwidth.certificate import Certificate, certify
from plait.depthwidth.config_file import read_config
from plait.depthwidth.count import count_params
from plait.depthwidth.field import PRIMES
from plait.depthwidth.gram import log3_gram_upper, sides_of
from plait.depthwidth.guideline import BUDGETS, param_count
from plait.depthwidth.multiset import log3
from plait.depthwidth.picture import draw
from plait.depthwidth.plan import Judgement, Plan, Shape, compare, judge, plan
from plait.depthwidth.rank import Problem, Progress
from plait.errors import ConfigError

__all__ = ["bounds", "judge_shape", "rank", "shape", "table"]

_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_CAVEAT = "The guideline is a fit to trained models of 6 to 48 layers; it says nothing about speed or memory."


def parse_budget(text: str) -> float:
    """A number of parameters as people write it.

    >>> parse_budget("1.3B"), parse_budget("125_000_000"), parse_budget("1e9")
    (1300000000.0, 125000000.0, 1000000000.0)
    """
    trimmed = text.strip().upper().replace(",", "").replace("_", "")
    scale = _SUFFIXES.get(trimmed[-1:], None)
    try:
        value = float(trimmed[:-1] if scale else trimmed) * (scale or 1.0)
    except ValueError:
        raise ConfigError(
            f"budget: expected parameters such as 125M, 1.3B or 1e9, got {text!r}"
        ) from None
    if not BUDGETS[0] <= value <= BUDGETS[1]:
        raise ConfigError(
            f"budget: expected {BUDGETS[0]:.0e} to {BUDGETS[1]:.0e} parameters, got {text}"
        )
    return value


def plain(value: Any) -> Any:
    """Results as JSON can hold them: dataclasses as objects, what is not finite as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def shape(
    budget: str,
    /,
    head_size: int = 64,
    vocab: int = 50257,
    multiple_of: int = 128,
    total: bool = False,
    plot: Path | None = None,
) -> Answer:
    """The balanced depth and width for a parameter budget.

    Args:
        budget: parameters without embeddings, such as 125M, 1.3B or 1e9.
        head_size: width of one attention head.
        vocab: tokens in the vocabulary, for the embedding count.
        multiple_of: the width is rounded to a multiple of this.
        total: the budget includes the token embeddings.
        plot: draw the shape on the depth-width plane, to this file.
    """
    result = plan(parse_budget(budget), head_size, vocab, multiple_of, total)
    if plot:
        draw(plot, result.depth, result.width, "this plan")
    rows = [
        [
            "depth",
            result.depth,
            f"{result.optimum.exact_depth:.1f} ± {result.optimum.depth_error:.1f}",
        ],
        [
            "width",
            result.width,
            f"{result.optimum.exact_width:,.0f} ± {result.optimum.width_error:.1%}",
        ],
        ["heads", result.heads, f"of {head_size}"],
        [
            "12·L·d²",
            f"{result.params:,}",
            f"{result.params / result.budget - 1:+.1%} of the budget",
        ],
        ["layers, exact", f"{result.count.layers:,}", "with biases and norms"],
        ["embeddings", f"{result.count.embeddings:,}", f"{vocab:,} tokens, 1,024 positions, tied"],
        ["regime", result.regime, "of the theory (3^L against width)"],
    ]
    notes = [_extrapolation(result.extrapolated), _CAVEAT]
    title = f"Balanced shape for {budget} parameters{' in total' if total else ''}"
    return Answer(
        {**plain(result), "plot": str(plot) if plot else None},
        (
            Table(["", "plan", "guideline"], rows, title, [note for note in notes if note]),
            _others(result),
        ),
    )


def _extrapolation(extrapolated: bool) -> str:
    return (
        "Extrapolated: the balanced depth lies outside the fitted 6 to 48 layers."
        if extrapolated
        else ""
    )


def _others(result: Plan) -> Table:
    return _shapes(result.alternatives, "Other shapes of this size")


def _shapes(shapes: tuple[Shape, ...], title: str) -> Table:
    rows = [
        [s.depth, s.width, f"{s.params:,}", f"{math.expm1(s.log_distance):+.0%}"] for s in shapes
    ]
    return Table(["depth", "width", "12·L·d²", "width against guideline"], rows, title)


def judge_shape(
    depth: int | None = None,
    width: int | None = None,
    config: Path | None = None,
    plot: Path | None = None,
) -> Answer:
    """Whether a shape is too deep or too shallow for its size, and by how much.

    Args:
        depth: layers.
        width: features.
        config: a Hugging Face config.json to read depth, width and the real parameter count from.
        plot: draw the shape on the depth-width plane, to this file.
    """
    parts: list[str | Table] = []
    data: dict[str, Any] = {}
    params = None
    if config is not None:
        if depth is not None or width is not None:
            raise ConfigError("give either --config or --depth and --width, not both")
        model = read_config(config)
        count = count_params(model.architecture)
        depth, width, params = model.architecture.depth, model.architecture.width, count.layers
        data["config"] = plain(model)
        data["count"] = {**plain(count), "layers": count.layers, "total": count.total}
        parts.append(_differences(count, depth, width, model.assumed, model.family))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or --config config.json")
    result = judge(depth, width, params)
    if plot:
        draw(plot, depth, width, "this shape")
    data.update(plain(result))
    parts += [_verdict(result), _shapes(result.nearest, "Nearest balanced shapes of equal size")]
    return Answer(data, tuple(parts))


def _verdict(result: Judgement) -> Table:
    rows = [
        ["verdict", result.verdict],
        [
            "layers too many" if result.excess_layers > 0 else "layers too few",
            f"{abs(result.excess_layers):.1f}",
        ],
        [
            "balanced depth at this size",
            f"{result.optimum.exact_depth:.1f} ± {result.depth_error:.1f}",
        ],
        ["width over balanced width", f"{result.width_ratio:.2f}"],
        ["width that would balance this depth", f"{result.transition_width:,.0f}"],
        [
            "regime of the theory",
            f"{result.regime} (lower bounds meet at depth {result.transition_depth:.1f})",
        ],
    ]
    notes = [_extrapolation(result.extrapolated), _CAVEAT]
    title = f"{result.depth} layers, width {result.width:,}, {result.params:,} parameters without embeddings"
    return Table(["", ""], rows, title, [note for note in notes if note])


def _differences(
    count: Any, depth: int, width: int, assumed: tuple[str, ...], family: str
) -> Table:
    simple = int(param_count(depth, width))
    attention, forward = 4 * depth * width**2, 8 * depth * width**2
    rows = [
        [
            "attention",
            f"{count.attention:,}",
            f"{attention:,}",
            f"{count.attention / attention - 1:+.1%}",
        ],
        [
            "feed-forward",
            f"{count.feed_forward:,}",
            f"{forward:,}",
            f"{count.feed_forward / forward - 1:+.1%}",
        ],
        ["norms", f"{count.norms:,}", "0", None],
        ["layers in all", f"{count.layers:,}", f"{simple:,}", f"{count.layers / simple - 1:+.1%}"],
        ["embeddings and output", f"{count.embeddings + count.output:,}", "0", None],
        ["total", f"{count.total:,}", None, None],
    ]
    notes = [f"assumed: {item}" for item in assumed]
    return Table(
        ["parameters", "real", "12·L·d²", "difference"],
        rows,
        f"Counted from the file ({family})",
        notes,
    )


def table(plot: Path | None = None) -> Answer:
    """Published shapes of well-known models against the guideline.

    Args:
        plot: draw them all on the depth-width plane, to this file.
    """
    rows = compare()
    if plot:
        draw(plot)
    cells = [
        [
            row.model.name,
            row.model.depth,
            row.model.width,
            f"{row.judgement.params / 1e9:.3g} B",
            f"{row.judgement.optimum.exact_depth:.1f} ± {row.judgement.depth_error:.1f}",
            f"{row.judgement.optimum.exact_width:,.0f}",
            row.judgement.verdict,
            f"{row.judgement.excess_layers:+.1f}",
        ]
        for row in rows
    ]
    columns = ["model", "depth", "width", "12·L·d²", "balanced depth", "width", "verdict", "layers"]
    return Answer(plain(rows), (Table(columns, cells, notes=[_CAVEAT]),))


def bounds(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    cut: int | None = None,
) -> Answer:
    """Every bound on the separation rank of one network.

    Args:
        depth: layers.
        width: features.
        heads: attention heads.
        tokens: sequence length; without it, long enough that the rank no longer grows.
        cut: tokens in the first part, for a cut that is not balanced.
    """
    data, rows = _bound_rows(depth, width, heads, tokens, cut)
    notes = [
        "Values are log3 of the rank. A lower bound of 0 or less says nothing.",
        "The published deep upper bound is not proven beyond two tokens; the Gram bound is.",
    ]
    title = f"{depth} layers, width {width:,}, {heads} heads: {data['regime']} regime"
    return Answer(data, (Table(["bound", "lower", "upper", "remark"], rows, title, notes),))


def _bound_rows(
    depth: int, width: int, heads: int, tokens: int | None, cut: int | None
) -> tuple[dict[str, Any], list[list[Any]]]:
    if tokens is not None:
        sides_of(tokens, cut)
    elif cut is not None:
        raise ConfigError("cut: needs tokens, the length of the sequence")
    first, second = thm1_bounds(depth, width, heads), thm2_bounds(depth, width, heads, tokens)
    best = best_bounds(depth, width, heads, tokens, cut=cut)
    published = best_bounds(depth, width, heads, tokens, certified=False, cut=cut)
    multiset = multiset_lower(depth, width, heads)
    gram = best.upper if best.source.endswith("Gram") else _gram_or_none(depth, width, tokens, cut)
    data = {
        "depth": depth,
        "width": width,
        "heads": heads,
        "tokens": tokens,
        "regime": regime(depth, width),
        "transition_depth": transition_depth(width, heads) if width > heads else None,
        "theorem_1": plain(first),
        "theorem_2": plain(second),
        "multiset_lower": multiset,
        "gram_upper": gram,
        "best": plain(best),
        "best_with_published": plain(published),
    }
    rows: list[list[Any]] = [
        [
            "Theorem 1",
            _number(first.lower),
            _number(first.upper),
            "" if first.stated else "not stated at this depth",
        ],
        [
            "Theorem 2",
            _number(second.lower),
            _number(second.upper),
            _remark(second.certified, second.stated),
        ],
        ["multiset", _number(multiset), None, "behind both lower sides"],
        ["Gram", None, _number(gram), "proven"],
        ["best, certified", _number(best.lower), _number(best.upper), best.source],
    ]
    return data, rows


def _gram_or_none(depth: int, width: int, tokens: int | None, cut: int | None) -> float | None:
    try:
        return log3_gram_upper(width=width, depth=depth, tokens=tokens, cut=cut)
    except ConfigError:
        return None


def _remark(certified: bool, stated: bool) -> str:
    words = [] if stated else ["not stated at this depth"]
    return ", ".join(words if certified else [*words, "upper side published, not certified"])


def _number(value: float | None) -> str | None:
    """Nine digits: bounds differ in their last ones."""
    if value is None or math.isinf(value):
        return None
    return f"{value:.9g}"


def rank(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    cut: int | None = None,
    residual: bool = False,
    graded: bool = False,
    templates: int | None = None,
    device: str | None = None,
    runs: int = 2,
    out: Path | None = None,
) -> Answer:
    """The exact separation rank of one network, measured over a finite field, against all bounds.

    Args:
        depth: layers.
        width: features.
        heads: attention heads; must divide the width.
        tokens: sequence length, 2·width if not given.
        cut: tokens in the first part; half of them if not given.
        residual: with skip connections.
        graded: measure by degree and add up: more, smaller matrices.
        templates: matrix size; by default what the proven bound needs.
        device: cuda for a GPU; numpy on the processor otherwise.
        runs: repetitions with other primes and seeds (1 to 3).
        out: write the certificate to this JSON file, after every run.
    """
    if not 1 <= runs <= len(PRIMES):
        raise ConfigError(f"runs: expected 1 to {len(PRIMES)}, got {runs}")
    problem = Problem(depth, width, heads, tokens, cut, residual)
    with _progress_bar() as progress:
        certificate = certify(
            problem,
            primes=PRIMES[:runs],
            seeds=range(runs),
            graded=graded,
            templates=templates,
            device=device,
            progress=progress,
            out=out,
        )
    return _rank_answer(problem, certificate)


def _rank_answer(problem: Problem, certificate: Certificate) -> Answer:
    data, rows = _bound_rows(
        problem.depth, problem.width, problem.heads, problem.length, problem.cut
    )
    value = f"{log3(certificate.rank):.9g}" if certificate.rank else None
    rows.append(["measured", value, value, f"rank {certificate.rank:,}"])
    if certificate.matches_gram:
        verdict = "equal to the proven upper bound: the generic rank is certain"
    else:
        verdict = (
            f"the proven upper bound is {certificate.gram:,}; a measured rank can only be too small"
        )
    notes = [
        f"{len(certificate.runs)} runs (other primes and seeds): "
        + ", ".join(f"{run.rank:,} mod {run.p} in {run.seconds:.1f} s" for run in certificate.runs),
        verdict
        if certificate.saturated
        else "not saturated: rank = number of templates; take more",
        "Values are log3 of the rank.",
    ]
    title = (
        f"Separation rank of {problem.depth} layers, width {problem.width}, {problem.heads} heads"
    )
    return Answer(
        {**plain(certificate.as_dict()), "bounds": data},
        (Table(["", "lower", "upper", "remark"], rows, title, notes),),
    )


@contextlib.contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress as Bar,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rank")

        def show(label: str, found: int, most: int) -> None:
            bar.update(task, description=f"rank of {label}", completed=found, total=most)

        yield show
