"""The commands `plait plan shape`, `plait plan judge` and `plait plan table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from plait.answer import Answer, Table
from plait.depthwidth.config_file import ModelConfig, read_config
from plait.depthwidth.cost import Price, price
from plait.depthwidth.count import Architecture
from plait.depthwidth.guideline import BUDGETS, FITTED_DEPTHS, param_count, transition_width
from plait.depthwidth.laws import Evidence, disagreement, evidence
from plait.depthwidth.models import MODELS
from plait.depthwidth.plain import plain
from plait.depthwidth.plan import Judgement, Plan, Shape, compare, judge, plan
from plait.errors import ConfigError
from plait.figures.plane import Guide, Point, draw_plane

__all__ = ["draw", "judge_shape", "parse_budget", "shape", "table"]

_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_DEEPEST = 112
# Where a label would run over another one: offset in points from its marker.
_OFFSETS = {"GPT-3 175B": (-4, 7), "Pythia 12B": (-52, -3), "GPT-3 13B": (6, -6), "GPT-NeoX 20B": (6, 0)}
_CAVEAT = "The guideline is a fit to trained models of 6 to 48 layers; it says nothing about speed or memory."


def parse_budget(text: str) -> float:
    """A number of parameters as people write it.

    >>> parse_budget("1.3B"), parse_budget("125_000_000"), parse_budget("1e9")
    (1300000000.0, 125000000.0, 1000000000.0)
    """
    trimmed = text.strip().upper().replace(",", "").replace("_", "")
    scale = _SUFFIXES.get(trimmed[-1:])
    try:
        value = float(trimmed[:-1] if scale else trimmed) * (scale or 1.0)
    except ValueError:
        raise ConfigError(f"budget: expected parameters such as 125M, 1.3B or 1e9, got {text!r}") from None
    if not BUDGETS[0] <= value <= BUDGETS[1]:
        raise ConfigError(f"budget: expected {BUDGETS[0]:.0e} to {BUDGETS[1]:.0e} parameters, got {text}")
    return value


def shape(
    budget: str,
    /,
    head_size: int | None = None,
    vocab: int = 50257,
    multiple_of: int | None = None,
    total: bool = False,
    context: int = 2048,
    laws: bool = False,
    plot: Path | None = None,
) -> Answer:
    """The balanced depth and width for a parameter budget.

    Args:
        budget: parameters without embeddings, such as 125M, 1.3B or 1e9.
        head_size: width of one attention head; near 64 if not given.
        vocab: tokens in the vocabulary, for the embedding count.
        multiple_of: the width is rounded to a multiple of this; 8 to 128 by the width if not given.
        total: the budget includes the token embeddings.
        context: tokens before the one whose operations are counted.
        laws: what other laws and results say of this size, where each was fitted, and where they disagree.
        plot: draw the shape on the depth-width plane, to this file.
    """
    result = plan(parse_budget(budget), head_size, vocab, multiple_of, total, context)
    if plot:
        draw(plot, result.depth, result.width, "this plan")
    notes = [_extrapolation(result.extrapolated), _off_balance(result), _CAVEAT]
    title = f"Balanced shape for {budget} parameters{' in total' if total else ''}"
    rows = _plan_rows(result, vocab)
    parts: list[str | Table] = [
        Table(["", "plan", "guideline"], rows, title, [note for note in notes if note]),
        _priced([result.shape, *result.alternatives], vocab, context, result.width // result.heads),
    ]
    found = evidence(result.budget) if laws else []
    if laws:
        parts += [_laws(found), disagreement(found)]
    data = {**plain(result), "balanced": result.shape.balanced, "plot": str(plot) if plot else None}
    if laws:
        data |= {"laws": plain(found), "disagreement": disagreement(found)}
    return Answer(data, tuple(parts))


def _plan_rows(result: Plan, vocab: int) -> list[list[Any]]:
    best, optimum = result.shape, result.optimum
    embeddings = result.count.embeddings
    return [
        ["depth", result.depth, f"{optimum.exact_depth:.1f} ± {optimum.depth_error:.1f}"],
        ["width", result.width, f"{optimum.exact_width:,.0f} ± {optimum.width_error:.1%}"],
        ["heads", result.heads, f"of {result.width // result.heads}"],
        ["layers off balance", f"{best.excess_layers:+.1f}", f"within ± {best.tolerance:.1f} is balanced"],
        ["12·L·d²", f"{result.params:,}", f"{result.params / result.budget - 1:+.1%} of the budget"],
        ["layers, exact", f"{result.count.layers:,}", "with biases and norms"],
        ["embeddings", f"{embeddings:,}", f"{vocab:,} tokens, 1,024 positions, tied"],
        ["regime", result.regime, "of the theory (3^L against width)"],
    ]


def _extrapolation(extrapolated: bool) -> str:
    return "Extrapolated: the balanced depth lies outside the fitted 6 to 48 layers." if extrapolated else ""


def _off_balance(result: Plan) -> str:
    if result.shape.balanced:
        return ""
    return "Not balanced: widths on this grid are too coarse for this budget; lower multiple_of or head_size."


def _priced(shapes: list[Shape], vocab: int, context: int, head: int) -> Table:
    """Each shape as a GPT-2-like network, beside what an engineer pays for it."""
    rows = []
    for option in shapes:
        heads = option.width // head if option.width % head == 0 else 1
        cost = price(Architecture(option.depth, option.width, heads, vocab=vocab), context)
        rows.append([*_shape_cells(option), *_price_cells(cost, shapes[0].depth)])
    note = (
        f"operations of one token after {context:,} others; keys and values in 16 bits; latency: depth alone"
    )
    return Table([*_SHAPE_COLUMNS, *_PRICE_COLUMNS], rows, "Shapes of this size, and what they cost", [note])


_SHAPE_COLUMNS = ["depth", "width", "without embeddings", "layers off", "balanced"]
_PRICE_COLUMNS = ["parameters", "FLOPs a token", "cache a token", "layers in series"]


def _shape_cells(option: Shape) -> list[Any]:
    off = f"{option.excess_layers:+.1f} (± {option.tolerance:.1f})"
    return [option.depth, option.width, f"{option.params:,}", off, "yes" if option.balanced else "no"]


def _price_cells(cost: Price, against: int) -> list[Any]:
    cache = f"{cost.cache_bytes / 1024:,.0f} KiB"
    return [f"{cost.params:,}", f"{cost.flops:.3g}", cache, f"{cost.layers} ({cost.layers / against:.2f}×)"]


def _laws(found: list[Evidence]) -> Table:
    rows: list[list[Any]] = [
        [row.name, row.says, row.fitted, "outside" if row.outside else "", row.source] for row in found
    ]
    return Table(["law", "says", "fitted on", "this size", "source"], rows, "What others found")


def judge_shape(
    path: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")] = None,
    /,
    depth: int | None = None,
    width: int | None = None,
    config: Path | None = None,
    plot: Path | None = None,
) -> Answer:
    """Whether a shape is too deep or too shallow for its size, and by how much.

    Args:
        path: a Hugging Face config.json to read depth, width and the real parameter count from.
        depth: layers.
        width: features.
        config: the same file, by name.
        plot: draw the shape on the depth-width plane, to this file.
    """
    given = [item for item in (path, config) if item is not None]
    if len(given) > 1 or (given and (depth is not None or width is not None)):
        raise ConfigError("give either a config.json or --depth and --width, not both")
    parts: list[str | Table] = []
    data: dict[str, Any] = {}
    params = None
    if given:
        model = read_config(given[0])
        depth, width, params = model.depth, model.width, model.count.layers
        data["config"] = plain(model)
        count = model.count
        data["count"] = {
            **plain(count), "layers": count.layers, "active": count.active, "total": count.total
        }  # fmt: skip
        parts.append(_differences(model))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or a config.json")
    result = judge(depth, width, params)
    if plot:
        draw(plot, depth, width, "this shape")
    data.update(plain(result), words=result.words)
    parts += [_verdict(result), _nearest(result)]
    return Answer(data, tuple(parts))


def _verdict(result: Judgement) -> Table:
    rows = [
        ["verdict", result.words],
        [
            "layers too many" if result.excess_layers > 0 else "layers too few",
            f"{abs(result.excess_layers):.1f}; up to {result.tolerance:.1f} count as balanced",
        ],
        [
            "balanced depth at this size",
            f"{result.optimum.exact_depth:.1f} ± {result.depth_error:.1f}",
        ],
        ["width over balanced width", f"{result.width_ratio:.2f}"],
        ["width that would balance this depth", f"{result.transition_width:,.0f}"],
        ["parameters of a layer", f"{result.layer_size:.2f}·width²"],
        [
            "regime of the theory",
            f"{result.regime} (lower bounds meet at depth {result.transition_depth:.1f})",
        ],
    ]
    notes = [_extrapolation(result.extrapolated), _CAVEAT]
    title = f"{result.depth} layers, width {result.width:,}, {result.params:,} parameters without embeddings"
    return Table(["", ""], rows, title, [note for note in notes if note])


def _nearest(result: Judgement) -> Table:
    rows = [_shape_cells(option) for option in result.nearest]
    notes = [] if rows else ["none of these widths is balanced at this size"]
    return Table(list(_SHAPE_COLUMNS), rows, "Nearest balanced shapes of about equal size", notes)


def _differences(model: ModelConfig) -> Table:
    count, depth, width = model.count, model.depth, model.width
    simple = int(param_count(depth, width))
    attention, forward = 4 * depth * width**2, 8 * depth * width**2
    rows: list[list[Any]] = [
        _against("attention", count.attention, attention),
        _against("feed-forward", count.feed_forward, forward),
        ["norms", f"{count.norms:,}", "0", None],
        _against("layers in all", count.layers, simple),
        ["embeddings and output", f"{count.embeddings + count.output:,}", "0", None],
        ["total", f"{count.total:,}", None, None],
    ]
    if count.inactive:
        rows.insert(4, _against("layers, active for a token", count.active, simple))
    if model.architecture is not None and not model.architecture.decoder:
        cost = price(model.architecture)
        rows.append(["FLOPs a token, 2,048 before it", f"{cost.flops:.4g}", None, None])
        rows.append(["cache a token, 16 bits", f"{cost.cache_bytes / 1024:,.0f} KiB", None, None])
    title = f"Counted from the file ({model.family})"
    return Table(["parameters", "real", "12·L·d²", "difference"], rows, title, list(model.assumed))


def _against(name: str, real: int, simple: int) -> list[Any]:
    return [name, f"{real:,}", f"{simple:,}", f"{real / simple - 1:+.1%}"]


def table(plot: Path | None = None) -> Answer:
    """Published shapes of well-known models against the guideline.

    Args:
        plot: draw them all on the depth-width plane, to this file.
    """
    rows = compare()
    if plot:
        draw(plot)
    cells: list[list[Any]] = [
        [
            row.model.name,
            row.model.depth,
            row.model.width,
            f"{row.judgement.params / 1e9:.3g} B",
            f"{row.judgement.optimum.exact_depth:.1f} ± {row.judgement.depth_error:.1f}",
            f"{row.judgement.optimum.exact_width:,.0f}",
            row.judgement.words,
            f"{row.judgement.excess_layers:+.1f} (± {row.judgement.tolerance:.1f})",
        ]
        for row in rows
    ]
    columns = ["model", "depth", "width", "12·L·d²", "balanced depth", "width", "verdict", "layers"]
    return Answer(plain(rows), (Table(columns, cells, notes=[_CAVEAT]),))


def draw(path: str | Path, depth: int | None = None, width: int | None = None, name: str = "") -> Path:
    """Draw the plane to a file, with a shape of interest marked if given."""
    deepest = max(_DEEPEST, (depth or 0) + 8)
    depths = [step / 2 for step in range(2, 2 * deepest + 1)]
    estimates = [transition_width(value) for value in depths]
    guide = Guide(
        depths,
        [estimate.value for estimate in estimates],
        [estimate.low for estimate in estimates],
        [estimate.high for estimate in estimates],
        FITTED_DEPTHS,
    )
    points = _known()
    if depth is not None and width is not None:
        points.append(Point(name, depth, width, (10, -14), highlight=True))
    edge = [value for value in depths if value <= 11]
    return draw_plane(path, guide, points, (edge, [3.0**value for value in edge]))


def _known() -> list[Point]:
    """One point for every published shape; models that share it share the label."""
    names: dict[tuple[int, int], list[str]] = {}
    for model in MODELS:
        names.setdefault((model.depth, model.width), []).append(model.name)
    return [
        Point(", ".join(labels), depth, width, _OFFSETS.get(labels[0], (6, -3)))
        for (depth, width), labels in names.items()
    ]
