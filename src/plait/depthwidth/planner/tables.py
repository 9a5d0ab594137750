"""Tables of the planner's results: a plan, a judgement, a parameter count, laws, published models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.depthwidth.planner.config_file import ModelConfig
from plait.depthwidth.planner.cost import Price, price, price_stack
from plait.depthwidth.planner.count import Architecture, count_params
from plait.depthwidth.planner.guideline import param_count
from plait.depthwidth.planner.judgement import Comparison, Judgement
from plait.depthwidth.planner.laws import Evidence, listed
from plait.depthwidth.planner.plan import Plan, Shape
from plait.table import Table, percent

__all__ = ["comparison_table", "count_table", "judgement_tables", "law_table", "plan_tables", "shape_table"]

_CAVEAT = "The guideline is a fit to trained models of 6 to 48 layers; it says nothing about speed or memory."
_COARSE = "Not balanced: widths on this grid are too coarse for this budget; lower multiple_of or head_size."
_SHAPE_COLUMNS = ["depth", "width", "without embeddings", "layers off", "balanced"]
_PRICE_COLUMNS = ["parameters", "FLOPs per token", "cache per token", "layers in series"]


def plan_tables(result: Plan, budget: str, vocab: int = 50257, context: int = 2048) -> list[Table]:
    """Return the plan compared with the guideline, and shapes of its size with their costs.

    Args:
        budget: the budget in words, for the title.
    """
    best, optimum = result.shape, result.optimum
    rows: list[list[Any]] = [
        ["depth", result.depth, f"{optimum.exact_depth:.1f} ± {optimum.depth_error:.1f}"],
        ["width", result.width, f"{optimum.exact_width:,.0f} ± {percent(optimum.width_error)}"],
        ["heads", result.heads, f"of {result.width // result.heads}"],
        ["layers off balance", f"{best.excess_layers:+.1f}", f"within ± {best.tolerance:.1f} is balanced"],
        ["12·L·d²", f"{result.params:,}", f"{result.params / result.budget - 1:+.1%} of the budget"],
        ["layers, exact", f"{result.count.layers:,}", "with biases and norms"],
        ["embeddings", f"{result.count.embeddings:,}", f"{vocab:,} tokens, 1,024 positions, tied"],
        ["regime", result.regime, "of the theory (3^L against width)"],
    ]
    notes = _notes(result.extrapolated) if best.balanced else [_COARSE, *_notes(result.extrapolated)]
    shapes = [best, *result.alternatives]
    return [
        Table(["", "plan", "guideline"], rows, f"Balanced shape for {budget}", notes),
        _price_table(shapes, vocab, context, result.width // result.heads),
    ]


def _price_table(shapes: list[Shape], vocab: int, context: int, head: int) -> Table:
    """Return each shape as a GPT-2-like network with its inference costs."""
    rows = []
    for option in shapes:
        heads = option.width // head if option.width % head == 0 else 1
        cost = price(Architecture(option.depth, option.width, heads, vocab=vocab), context)
        rows.append([*_shape_cells(option), *_price_cells(cost, shapes[0].depth)])
    note = (
        f"operations of one token after {context:,} others; keys and values in 16 bits; latency: depth alone"
    )
    return Table([*_SHAPE_COLUMNS, *_PRICE_COLUMNS], rows, "Shapes of this size, and what they cost", [note])


def shape_table(depth: int, width: int, vocab: int, context: int = 2048) -> Table:
    """Return the parameters and inference costs of a GPT-2-like network of this shape."""
    network = Architecture(depth, width, heads=1, vocab=vocab)  # the number of heads changes none of them
    cost = price(network, context)
    rows = [
        ["embeddings", f"{count_params(network).embeddings:,} ({vocab:,} tokens, 1,024 positions, tied)"],
        ["parameters", f"{cost.params:,}"],
        ["FLOPs per token", f"{cost.flops:.3g}"],
        ["cache per token", f"{cost.cache_bytes / 1024:,.0f} KiB"],
    ]
    note = f"operations of one token after {context:,} others; keys and values in 16 bits"
    return Table(["", "GPT-2-like"], rows, "Parameters and costs", [note])


def _shape_cells(option: Shape) -> list[Any]:
    off = f"{option.excess_layers:+.1f} (± {option.tolerance:.1f})"
    return [option.depth, option.width, f"{option.params:,}", off, "yes" if option.balanced else "no"]


def _price_cells(cost: Price, against: int) -> list[Any]:
    cache = f"{cost.cache_bytes / 1024:,.0f} KiB"
    return [f"{cost.params:,}", f"{cost.flops:.3g}", cache, f"{cost.layers} ({cost.layers / against:.2f}×)"]


def law_table(results: Sequence[Evidence], depth: int | None = None) -> Table:
    """Return the statement of every law about one size, and the range it was fitted on.

    Args:
        depth: number of layers, to show its verdict by each law.
    """
    rows: list[list[Any]] = []
    for row in results:
        vote = [] if depth is None else [_VOTES[row.vote(depth)] if row.counts else ""]
        outside = "outside" if row.outside else ""
        rows.append([row.name, row.statement, *vote, row.fitted, outside, row.source])
    votes = [] if depth is None else [f"{depth} layers"]
    columns = ["law", "statement", *votes, "fitted on", "this size", "source"]
    return Table(columns, rows, "Published laws")


_VOTES = {"too shallow": "too few", "balanced": "in range", "too deep": "too many", None: ""}


def judgement_tables(result: Judgement) -> list[Table]:
    """Return the verdict on a shape, the evidence for it, and shapes that the guideline would take."""
    low, high = result.interval
    more = "more" if result.excess_layers > 0 else "fewer"
    rows = [
        ["verdict", result.words],
        ["depths with support at this size", f"{low:.0f} to {high:.0f}, by {listed(result.supported_by)}"],
        ["depth by the 2020 fit", f"{result.optimum.exact_depth:.1f} ± {result.depth_error:.1f}"],
        ["the same with rounding", f"± {result.tolerance:.1f}"],
        ["layers off the fit", f"{abs(result.excess_layers):.1f} {more}"],
        ["width over the fit's", f"{result.width_ratio:.2f}"],
        ["width at which the fit has this depth", f"{result.transition_width:,.0f}"],
        ["parameters of a layer", f"{result.layer_size:.2f}·width²"],
        [
            "regime of the theory",
            f"{result.regime} (lower bounds meet at depth {result.transition_depth:.1f})",
        ],
    ]
    title = f"{result.depth} layers, width {result.width:,}, {result.params:,} parameters without embeddings"
    laws = law_table(result.evidence, result.depth)
    return [Table(["", ""], rows, title, _notes(result.extrapolated)), laws, _nearest(result)]


def _nearest(result: Judgement) -> Table:
    rows = [_shape_cells(option) for option in result.nearest]
    notes = [] if rows else ["none of these widths is balanced at this size"]
    return Table(list(_SHAPE_COLUMNS), rows, "Shapes of about equal size that the fit calls balanced", notes)


def count_table(model: ModelConfig, context: int = 2048) -> Table:
    """Return the parameter count of a file's architecture compared with 12·L·d², and the costs per token."""
    count, depth, width = model.count, model.depth, model.width
    simple = int(param_count(depth, width))
    mixers = " and recurrent parts" if model.stack.recurrent else ""
    attention, forward = 4 * depth * width**2, 8 * depth * width**2
    rows: list[list[Any]] = [
        _difference_row("attention", count.attention, attention),
        _difference_row(f"feed-forward{mixers}", count.feed_forward, forward),
        ["norms", f"{count.norms:,}", "0", None],
        _difference_row("layers in all", count.layers, simple),
        ["embeddings and output", f"{count.embeddings + count.output:,}", "0", None],
        ["total", f"{count.total:,}", None, None],
    ]
    if count.inactive:
        rows.insert(4, _difference_row("layers, active for a token", count.active, simple))
    costs, notes = _costs(model, context)
    title = f"Counted from the file ({model.family})"
    columns = ["parameters", "real", "12·L·d²", "difference"]
    return Table(columns, rows + costs, title, [*model.assumed, *notes])


def _costs(model: ModelConfig, context: int) -> tuple[list[list[Any]], list[str]]:
    """Return table rows with the costs per token, and notes on them."""
    stack = model.stack
    if stack.unknown:
        return [["FLOPs and cache per token", "not counted", None, None]], [f"not counted: {stack.unknown}"]
    positions = model.architecture.positions if model.architecture is not None else 0
    causal = stack.kind != "encoder"  # an encoder's token attends to all tokens, itself included
    context = min(
        context, positions - causal if positions else context
    )  # learned positions limit the context
    cost = price_stack(stack, model.count, context)
    where = f"after {context:,} others" if causal else f"among {context:,}"
    rows: list[list[Any]] = [[f"FLOPs per token, {where}", f"{cost.flops:.4g}", None, None]]
    if stack.kind == "encoder":
        rows.append(["cache per token", "none: an encoder keeps no keys and values", None, None])
    elif stack.attention and stack.kind == "decoder":
        rows.append(["cache per token, 16 bits", _size(cost.cache_bytes), None, None])
    windows = sorted({layer.window for layer in stack.attention if layer.window})
    notes = [f"FLOPs: {stack.note}"] if stack.note else []
    if windows:
        count = sum(1 for layer in stack.attention if layer.window)
        tokens = " or ".join(f"{window:,}" for window in windows)
        notes.append(f"{count} of {stack.depth} layers attend to {tokens} tokens at most")
        if cost.window_bytes:
            rows.append(["cache of windows, once full", _size(cost.window_bytes), None, None])
    if stack.recurrent:
        state = "of fixed but unknown size" if cost.state_bytes is None else _size(cost.state_bytes)
        rows.append(["recurrent states, at any length", state, None, None])
    return rows, notes


def _size(count: int) -> str:
    """Format a number of bytes in the largest fitting binary unit."""
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):,.4g} {unit}"
    return f"{count / 1024:,.4g} KiB"


def _difference_row(name: str, real: int, simple: int) -> list[Any]:
    return [name, f"{real:,}", f"{simple:,}", f"{real / simple - 1:+.1%}"]


def comparison_table(rows: Sequence[Comparison]) -> Table:
    """Return the comparison of published shapes with the guideline and with one another."""
    cells: list[list[Any]] = [
        [
            row.model.name,
            row.model.depth,
            row.model.width,
            f"{row.model.params / 1e9:.3g} B",
            f"{row.judgement.optimum.exact_depth:.1f} ± {row.judgement.depth_error:.1f}",
            f"{row.judgement.excess_layers:+.1f} (± {row.judgement.tolerance:.1f})",
            f"{row.judgement.shallower} shallower, {row.judgement.deeper} deeper",
            row.judgement.verdict or "none",
        ]
        for row in rows
    ]
    columns = [
        "model",
        "depth",
        "width",
        "12·L·d²",
        "fit's depth",
        "layers off",
        "others of its size",
        "verdict",
    ]
    note = (
        "One word of verdict only where the fit, the published models of this size and all other laws agree."
    )
    return Table(columns, cells, notes=[note, _CAVEAT])


def _notes(extrapolated: bool) -> list[str]:
    outside = "Extrapolated: the balanced depth lies outside the fitted 6 to 48 layers."
    return [outside, _CAVEAT] if extrapolated else [_CAVEAT]
