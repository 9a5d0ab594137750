"""Tables of results/cache: bounded caches of a language model, by policy and slots."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from archive_tables.records import DASH, RESULTS, lines, percent, table, whole
from plait.lab.bench.decoding import decoding_table
from plait.lab.caches.evaluation import FULL
from plait.lab.report.cache_page import KINDS, Scored, perplexity_ratio, read_results, share_right

EVALUATIONS = RESULTS / "cache" / "eval"
CONTEXTS = (2048, 4096)
BASE = ("rules", "moving", "learned")  # groups of evaluations of the model as it is
UNTRAINED = ("sinks", "knorm", "random", "h2o", "tova", "keydiff", "earned")
_ORDER = (FULL, "learned", *UNTRAINED)


@dataclass(frozen=True)
class Goal:
    """Largest ratios of perplexity, and smallest shares of what the full cache answers."""

    slots: int
    ratio: float | None
    one: float | None
    four: float | None
    tuned: float | None


GOALS = (
    Goal(512, 1.10, 0.97, 0.80, 1.05),
    Goal(256, 1.18, 0.87, 0.65, 1.10),
    Goal(128, None, 0.50, None, None),
)


@cache
def scored(context: int, *groups: str) -> dict[tuple[str, int | None], Scored]:
    """Return the results of some groups at one context, joined by policy and slots."""
    joined: dict[tuple[str, int | None], Scored] = {}
    models, texts = set(), set()
    for group in groups:
        for folder in sorted((EVALUATIONS / group).glob(f"*-{context}")):
            description, _, results = read_results(folder)
            models.add(json.dumps(description["model"]))
            if description["settings"]["documents"]:
                texts.add(json.dumps([description["settings"], description["texts"]]))
            for result in results:
                own = joined.setdefault((result.policy, result.slots), result)
                own.losses.update(result.losses)
                for kind, answers in result.right.items():
                    own.right.setdefault(kind, {}).update(answers)
    if len(models) > 1 or len(texts) > 1:
        raise SystemExit(f"results/cache/eval: expected one model and the same texts in {', '.join(groups)}")
    return dict(sorted(joined.items(), key=lambda item: (_ORDER.index(item[0][0]), -(item[0][1] or 0))))


@cache
def runs() -> dict[str, Any]:
    """Return description, summary and curves of each training by name."""
    named: dict[str, Any] = json.loads((RESULTS / "cache" / "runs.json").read_text(encoding="utf-8"))
    return named


def goals() -> str:
    """Return the learned scores beside their goals, every cell relative to the full cache's."""
    results = scored(2048, *BASE)
    full, tuned = results[FULL, None], scored(2048, "tuned")
    rows = []
    for goal in GOALS:
        own = results.get(("learned", goal.slots))
        rule, best = _best_rule(results, goal.slots)
        ratio = None if own is None else _log_ratio(own, full)
        is_lowest = ratio is not None and best is not None and ratio < best
        adapted = tuned.get(("learned", goal.slots))
        rows.append(
            [
                goal.slots,
                _judged(
                    _shown(own, full),
                    goal.ratio,
                    ratio is not None and (goal.ratio is None or np.exp(ratio) <= goal.ratio) and is_lowest,
                    "≤",
                ),
                DASH if best is None else f"{np.exp(best):.3f} ({rule})",
                _share_cell(own, full, "one", goal.one),
                _share_cell(own, full, "four", goal.four),
                _tuned_cell(adapted, tuned.get((FULL, None)), goal.tuned),
            ]
        )
    columns = [
        "slots",
        "perplexity, learned",
        "the best untrained rule",
        "one needle",
        "one of four",
        "perplexity, tuned, to its own full cache",
    ]
    return table(columns, rows)


def _best_rule(results: dict[tuple[str, int | None], Scored], slots: int) -> tuple[str, float | None]:
    """Return the untrained rule of lowest perplexity, and the logarithm of its ratio to the full cache."""
    full = results[FULL, None]
    ratios = {
        policy: _log_ratio(result, full)
        for (policy, size), result in results.items()
        if policy in UNTRAINED and size == slots and result.losses
    }
    return min(ratios.items(), key=lambda item: item[1]) if ratios else ("", None)


def _log_ratio(result: Scored, full: Scored) -> float:
    common = sorted(result.losses.keys() & full.losses.keys())
    return float(np.mean([result.losses[i] - full.losses[i] for i in common]))


def _shown(result: Scored | None, full: Scored | None) -> str:
    ratio = None if result is None or full is None else perplexity_ratio(result, full)
    return ratio or DASH


def _judged(text: str, goal: float | None, reached: bool, sign: str) -> str:
    """Return a cell with its goal and whether it is reached."""
    if text == DASH:
        return text
    wanted = f"goal {sign} {goal:.2f}: " if goal is not None else ""
    return f"{text}; {wanted}{'reached' if reached else 'not reached'}"


def _tuned_cell(result: Scored | None, full: Scored | None, goal: float | None) -> str:
    if result is None or full is None:
        return DASH
    reached = goal is not None and np.exp(_log_ratio(result, full)) <= goal
    return _judged(_shown(result, full), goal, bool(reached), "≤")


def _share_cell(result: Scored | None, full: Scored, kind: str, goal: float | None) -> str:
    """Return the share of the full cache's right answers, with a bootstrap interval over the cases."""
    if result is None or kind not in result.right or kind not in full.right:
        return DASH
    common = sorted(result.right[kind].keys() & full.right[kind].keys())
    own, all_states = (np.array([of.right[kind][i] for i in common], dtype=float) for of in (result, full))
    if not all_states.any():
        return DASH
    picks = np.random.default_rng(0).integers(len(common), size=(10_000, len(common)))
    shares = own[picks].sum(axis=1) / np.maximum(all_states[picks].sum(axis=1), 1)
    low, high = np.percentile(shares, [2.5, 97.5])
    share = own.sum() / all_states.sum()
    text = f"{share:.2f} ({low:.2f} to {high:.2f})"
    return text if goal is None else _judged(text, goal, bool(share >= goal), "≥")


def policies(context: int) -> str:
    """Return perplexity and needles of every policy and size."""
    return _quality(scored(context, *BASE))


def _quality(results: dict[tuple[str, int | None], Scored]) -> str:
    full = results.get((FULL, None))
    kinds = [kind for kind in KINDS if any(kind in result.right for result in results.values())]
    rows = []
    for (policy, slots), result in results.items():
        perplexity = result.perplexity
        rows.append(
            [
                policy,
                DASH if slots is None else slots,
                DASH if perplexity is None else f"{perplexity:.2f}",
                DASH if slots is None else _shown(result, full),
                *(share_right(result.right.get(kind, {})) or DASH for kind in kinds),
            ]
        )
    return table(["policy", "slots", "perplexity", "ratio to full", *(KINDS[kind] for kind in kinds)], rows)


def tuned() -> str:
    """Return the model tuned through eviction and its control, each beside its own full cache."""
    parts = []
    for group, name in (("tuned", "through eviction"), ("control", "control, nothing evicted")):
        results = scored(2048, group)
        full = results.get((FULL, None))
        for (_, slots), result in results.items():
            perplexity = result.perplexity
            parts.append(
                [
                    name,
                    "full" if slots is None else f"{slots} slots",
                    DASH if perplexity is None else f"{perplexity:.2f}",
                    DASH if slots is None else _shown(result, full),
                    share_right(result.right.get("one", {})) or DASH,
                ]
            )
    return table(["tuned", "cache", "perplexity", "ratio to its own full cache", KINDS["one"]], parts)


def recipes() -> str:
    """Return scores of each recipe, trained from zero for the same time."""
    full = scored(2048, *BASE)[FULL, None]
    rows = []
    for name, run in runs().items():
        if "judged" not in run:
            continue
        judged = run["judged"]
        recipe, features, moment = judged["arm"]
        figures = judged["held_out"]
        own = scored(2048, name).get(("learned", 256))
        rows.append(
            [
                recipe,
                features,
                moment,
                judged["updates"],
                percent(figures["score"], 1),
                f"{figures['loss']:.3f}",
                f"{figures['answers']:.2f}",
                _shown(own, full),
            ]
        )
    columns = [
        "recipe",
        "features",
        "judged",
        "updates",
        "equal top tokens (%)",
        "divergence, answers ten times",
        "divergence at answers",
        "perplexity to full",
    ]
    return table(columns, rows)


def training() -> str:
    """Return how the kept scores and the tuned models were trained."""
    rows = []
    for name in ("usage", "eviction", "tuned", "control"):
        run = runs()[name]
        summary, description = run["summary"], run["config"]
        held_out = [m["held_out"]["held_out"] for m in run["metrics"] if "held_out" in m]
        rows.append(
            [
                name,
                description["recipe"]["recipe"],
                whole(summary["updates"]),
                description["recipe"]["batch_size"],
                f"{summary['seconds']:.0f}",
                *(f"{held_out[0][key]:.3f} → {held_out[-1][key]:.3f}" for key in ("loss", "score")),
            ]
        )
    return table(["run", "recipe", "updates", "documents each", "seconds", "held-out loss", "score"], rows)


def decoding() -> str:
    """Return the speed and the memory of decoding by cache and length of the prompt, and an earlier run's."""
    data = json.loads((RESULTS / "cache" / "decoding.json").read_text(encoding="utf-8"))
    shown = decoding_table(data, [])
    first = {
        (record["cache"], f"{record['length']:,}"): record["tokens_per_second"]
        for record in lines("cache/decoding-first.jsonl")
    }
    rows = [[*row, f"{first[str(row[0]).partition(',')[0], row[1]]:.0f}"] for row in shown.rows]
    return table([*shown.columns, "tokens a second, earlier run"], rows)


def sessions() -> str:
    """Return machines and commits of the evaluations."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for path in sorted(EVALUATIONS.glob("*/*/results.jsonl")):
        for record in lines(str(path)):
            if "session" in record:
                session = record["session"]
                machine = session["machine"]["gpu"] or session["machine"]["cpu"]
                key = (
                    machine,
                    session["versions"]["torch"],
                    str(session["commit"])[:12],
                    session["date"][:10],
                )
                found.setdefault(key, []).append(path.parent.parent.name)
    rows = [[*key, ", ".join(dict.fromkeys(groups))] for key, groups in found.items()]
    return table(["machine", "torch", "commit", "date", "folders"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "goals": goals,
    "policies, 2,048 tokens": lambda: policies(2048),
    "policies, 4,096 tokens": lambda: policies(4096),
    "tuned": tuned,
    "recipes": recipes,
    "training": training,
    "decoding": decoding,
    "sessions": sessions,
}
