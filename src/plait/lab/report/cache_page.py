"""Results of `plait cache eval`: their tables, page.html and README.md, all from the folder's archive."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.errors import CheckpointError, ConfigError
from plait.lab.caches.evaluation import BLOCK, FORMAT, FULL
from plait.lab.figures import Curve, draw_curves, inline_svg, model_places
from plait.lab.report.page import origin, render, write_page
from plait.lab.report.statistics import mean_interval, share_interval
from plait.lab.runs.folder import Journal, read_json
from plait.table import Table, percent

__all__ = [
    "KINDS",
    "CachePage",
    "Scored",
    "cache_readme",
    "perplexity_ratio",
    "read_results",
    "share_right",
    "write_cache_page",
]

KINDS = {
    "one": "one needle",
    "four": "one needle of four",
    "eight": "one needle of eight",
    "tracking": "a variable tracked",
}
_LEVELS = 10  # colour levels in a text
_FEW = 4  # files that are named one by one


@dataclass
class Scored:
    """Results of one cache: losses by document, answers by kind of needle, memory and time."""

    policy: str
    slots: int | None
    window: int
    sinks: int
    scores: str | None = None
    losses: dict[int, float] = field(default_factory=dict)
    blocks: dict[int, list[float]] = field(default_factory=dict)
    right: dict[str, dict[int, bool]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)  # size of a text's cache, by task
    tokens: int = 0
    seconds: float = 0.0
    kept: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """Return the policy's name with its slots."""
        return FULL if self.slots is None else f"{self.policy}, {self.slots} slots"

    @property
    def perplexity(self) -> float | None:
        """Return the exponential of the mean loss; None without documents."""
        return math.exp(sum(self.losses.values()) / len(self.losses)) if self.losses else None


@dataclass(frozen=True)
class CachePage:
    """Files written from a folder of results, and the tables in them."""

    files: list[Path]
    tables: list[Table]


def read_results(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[Scored]]:
    """Return a folder's description, its sessions, and its results: the full cache, then by slots.

    Raises:
        ConfigError: if the folder has no results of `plait cache eval`.
        CheckpointError: if they are damaged.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder}: expected a folder of plait cache eval, got one without config.json")
    description = read_json(folder / "config.json")
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ConfigError(f"{folder}: expected a folder of plait cache eval, got another config.json")
    records = Journal.read(folder / "results.jsonl")
    scored: dict[tuple[Any, ...], Scored] = {}
    try:
        for record in records:
            if "cell" in record:
                _add(scored, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / 'results.jsonl'}: holds a line that is no result ({error})"
        ) from error
    if not scored:
        raise ConfigError(f"{folder}: expected results, got none yet")
    ordered = sorted(scored.values(), key=lambda result: -1 if result.slots is None else result.slots)
    _distinguish(ordered)
    return description, [record["session"] for record in records if "session" in record], ordered


def _add(scored: dict[tuple[Any, ...], Scored], record: dict[str, Any]) -> None:
    cell, task = record["cell"], record["cell"]["task"]
    size = (cell["policy"], cell["slots"], cell["window"], cell["sinks"])
    key = (*size, cell.get("scores"))
    scores = scored.setdefault(key, Scored(*key))
    for number, result in zip(cell["numbers"], record["results"], strict=True):
        if task == "text":
            scores.losses[number] = float(result["loss"])
            scores.blocks[number] = [float(loss) for loss in result["losses"]]
        else:
            scores.right.setdefault(task, {})[number] = bool(result["right"])
    scores.bytes.setdefault(task, sum(record["bytes"].values()))
    scores.tokens += record["tokens"]
    scores.seconds += record["processor_seconds"]
    scores.kept = record.get("kept", scores.kept)


def _distinguish(scored: Sequence[Scored]) -> None:
    """Add to a policy's name the window, sinks or scores that distinguish caches of equal size."""
    differing = {
        (result.policy, name)
        for name in ("window", "sinks", "scores")
        for result, other in itertools.combinations(scored, 2)
        if (result.policy, result.slots) == (other.policy, other.slots)
        and getattr(result, name) != getattr(other, name)
    }
    for result in scored:
        parts = [
            f"{name} {str(getattr(result, name))[:8]}"
            for name in ("window", "sinks", "scores")
            if (result.policy, name) in differing
        ]
        result.policy = f"{result.policy} ({', '.join(parts)})" if parts else result.policy


def write_cache_page(folder: Path) -> CachePage:
    """Write page.html and README.md into a folder of results."""
    description, sessions, scored = read_results(folder)
    tables = [quality_table(scored), *_window_tables(scored)]
    notes = _notes(description, scored)
    values: dict[str, Any] = {
        "headline": headline(description, scored),
        "tables": tables,
        "notes": notes,
        "pictures": list(_pictures(description, scored)),
        "texts": list(_texts(folder, scored)),
        "sessions": sessions_table(sessions),
        "levels": range(_LEVELS + 1),
        "origin": origin(f"plait cache report {folder.name}"),
    }
    page = write_page(folder / "page.html", render("cache.html", **values))
    readme = write_page(folder / "README.md", _readme(description, sessions, scored))
    return CachePage([page, readme], tables)


def cache_readme(folder: Path) -> str:
    """Return the README of a folder of results."""
    return _readme(*read_results(folder))


def _readme(description: dict[str, Any], sessions: Sequence[dict[str, Any]], scored: Sequence[Scored]) -> str:
    lines = [f"# {headline(description, scored)}", "", *quality_table(scored).markdown(), ""]
    lines += [f"- {note}" for note in _notes(description, scored)]
    lines += ["", "## Sessions", "", *sessions_table(sessions).markdown(), ""]
    lines += [f"Commands: {'; '.join(f'`{command}`' for command in _commands(sessions))}.", ""]
    lines += ["Written from results.jsonl by `plait cache report`.", ""]
    return "\n".join(lines)


def headline(description: dict[str, Any], scored: Sequence[Scored]) -> str:
    """Summarise the results in a sentence."""
    name = description["model"]["name"]
    bounded = [
        (result.perplexity, result.slots, result.policy)
        for result in scored
        if result.slots and result.perplexity
    ]
    full = next((result for result in scored if result.slots is None and result.perplexity is not None), None)
    if not bounded:
        return f"{name} with bounded caches"
    perplexity, slots, policy = min(bounded)
    sentence = f"{name}: {policy} with {slots} slots has a perplexity of {perplexity:.2f}"
    return sentence if full is None else f"{sentence}, the full cache {full.perplexity:.2f}"


def quality_table(scored: Sequence[Scored]) -> Table:
    """Return perplexity, needles, memory and speed of every cache."""
    kinds = [kind for kind in KINDS if any(kind in result.right for result in scored)]
    full = next((result for result in scored if result.slots is None), None)
    columns = ["policy", "slots", "perplexity", "ratio to full", *(KINDS[kind] for kind in kinds)]
    rows = []
    for result in scored:
        value = result.perplexity
        ratio = None if full is None or result is full else perplexity_ratio(result, full)
        row: list[Any] = [result.policy, result.slots, None if value is None else f"{value:.2f}", ratio]
        row += [share_right(result.right.get(kind, {})) for kind in kinds]
        size = result.bytes.get("text", max(result.bytes.values()))
        rows.append([*row, f"{size / 2**20:.2f}", f"{result.tokens / max(result.seconds, 1e-9):.0f}"])
    return Table([*columns, "cache (MiB)", "tokens a second"], rows)


def perplexity_ratio(result: Scored, full: Scored) -> str | None:
    """Return the perplexity as a multiple of the full cache's on the same documents, with its interval."""
    common = sorted(result.losses.keys() & full.losses.keys())
    if not common:
        return None
    differences = [result.losses[i] - full.losses[i] for i in common]
    ratio = math.exp(sum(differences) / len(differences))
    interval = mean_interval(differences)
    if interval is None:
        return f"{ratio:.3f}"
    return f"{ratio:.3f} ({math.exp(interval[0]):.3f} to {math.exp(interval[1]):.3f})"


def share_right(answers: dict[int, bool]) -> str | None:
    """Return the share of right answers with its interval and the number of cases."""
    if not answers:
        return None
    right, cases = sum(answers.values()), len(answers)
    low, high = share_interval(right, cases)
    return f"{percent(right / cases)} ({percent(low)} to {percent(high)}), {right}/{cases}"


def _window_tables(scored: Sequence[Scored]) -> list[Table]:
    """Return how the slots are divided, if there are bounded caches."""
    splits = sorted(
        {(result.slots, result.sinks, result.window) for result in scored if result.slots is not None}
    )
    rows: list[list[Any]] = [
        [slots, sinks, window, slots - sinks - window] for slots, sinks, window in splits
    ]
    return [Table(["slots", "sinks", "window", "by policy"], rows)] if rows else []


def _notes(description: dict[str, Any], scored: Sequence[Scored]) -> list[str]:
    settings, model = description["settings"], description["model"]
    count = max((len(result.losses) for result in scored), default=0)
    notes = [
        f"Model: {model['name']}, {model['dtype']}, checksum {model['digest'][:16]}.",
        f"Texts: {_named(description['texts']['names'])}; seed {settings['seed']}, batches of "
        f"{settings['batch']}.",
    ]
    if count:
        notes.append(
            f"Perplexity of tokens {settings['prefix']:,} to {settings['context']:,} of {count} documents, "
            "the same tokens for every cache; the ratio's 95% interval is a bootstrap over documents."
        )
    if any(result.right for result in scored):
        notes.append(
            f"Needles: numbers of five digits in {settings['needle_context']:,} tokens of prose, asked for "
            "at its end; greedy answers, right if all digits are; Wilson's 95% interval."
        )
    if any(result.slots is not None for result in scored):
        splits = sorted(
            {(result.slots, result.sinks, result.window) for result in scored if result.slots is not None}
        )
        kinds = "; ".join(f"{s} slots: {k} sinks, {w} latest, {s - k - w} by policy" for s, k, w in splits)
        notes.append(f"{kinds}.")
    notes.append(
        "Cache: bytes that a document needs, in the layers that are bounded. Tokens a second of processor "
        "time, all tasks together; no policy was replaced by an approximation."
    )
    return notes


def sessions_table(sessions: Sequence[dict[str, Any]]) -> Table:
    """Return date, machine and commit of each session."""
    rows = [
        [
            session["date"],
            session["machine"]["gpu"] or session["machine"]["cpu"],
            session["machine"]["threads"],
            session["machine"]["load_average"],
            session["versions"]["torch"],
            session["commit"] or "unknown",
        ]
        for session in sessions
    ]
    return Table(["began", "machine", "threads", "load", "torch", "commit"], rows)


def _named(names: Sequence[str]) -> str:
    """Return the names of files, or the number of many; config.json has all of them."""
    if len(names) <= _FEW:
        return ", ".join(names)
    return f"{len(names)} files, which config.json names, from {names[0]} to {names[-1]}"


def _commands(sessions: Sequence[dict[str, Any]]) -> list[str]:
    """Return every command once; of a long list of files, results.jsonl has all."""
    return list(dict.fromkeys(_shortened(str(session["command"])) for session in sessions))


def _shortened(command: str) -> str:
    """Leave out all but the first and the last of many values of an option.

    >>> _shortened("plait cache eval M --text a b c d e --slots 4")
    'plait cache eval M --text a … e --slots 4'
    """
    parts = re.split(r" (?=--)", command)
    for i, part in enumerate(parts):
        words = part.split(" ")
        if part.startswith("--") and len(words) > _FEW + 1:
            parts[i] = f"{words[0]} {words[1]} … {words[-1]}"
    return " ".join(parts)


def _pictures(description: dict[str, Any], scored: Sequence[Scored]) -> Iterator[dict[str, str]]:
    """Draw quality against slots, and loss against position at the smallest number of slots."""
    bounded = [result for result in scored if result.slots is not None]
    if not bounded:
        return
    policies = list(dict.fromkeys(result.policy for result in bounded))
    colors = model_places([*policies, FULL])
    slots = sorted({result.slots for result in bounded if result.slots is not None})
    measures = [("perplexity", "Perplexity against slots", lambda result: result.perplexity)]
    measures += [
        (kind, f"{KINDS[kind].capitalize()}: share right against slots", _share_of(kind))
        for kind in KINDS
        if any(kind in result.right for result in scored)
    ]
    for key, title, value in measures:
        curves = []
        for policy in policies:
            points = [(result.slots or 0, value(result)) for result in bounded if result.policy == policy]
            shown = [(x, y) for x, y in points if y is not None]
            if shown:
                x, y = zip(*shown, strict=True)
                curves.append(Curve(x, y, policy, color=colors[policy]))
        limit = next((value(result) for result in scored if result.slots is None), None)
        if limit is not None:
            ends = (1.0 * slots[0], 1.0 * slots[-1]) if len(slots) > 1 else (0.9 * slots[0], 1.1 * slots[0])
            curves.append(Curve(ends, (limit, limit), "full cache", style="dashed", color=colors[FULL]))
        if curves:
            label = "perplexity" if key == "perplexity" else "share right"
            figure = draw_curves(
                curves,
                x_label="slots of a KV head",
                y_label=label,
                log_x=len(slots) > 1,
                y_range=None if key == "perplexity" else (-0.03, 1.03),
            )
            yield _picture(key, title, figure, "")
    yield from _positions(description, scored, slots[0], colors)


def _positions(
    description: dict[str, Any], scored: Sequence[Scored], slots: int, colors: dict[str, int]
) -> Iterator[dict[str, str]]:
    curves = []
    prefix, context = description["settings"]["prefix"], description["settings"]["context"]
    for result in scored:
        if result.slots not in (None, slots) or not result.blocks:
            continue
        means = [sum(column) / len(result.blocks) for column in zip(*result.blocks.values(), strict=True)]
        edges = [*range(prefix, context, BLOCK), context]
        middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
        style = "dashed" if result.slots is None else "solid"
        curves.append(Curve(middles, means, result.policy, style=style, color=colors[result.policy]))
    if curves:
        figure = draw_curves(curves, x_label="position in the document", y_label="loss in nats")
        caption = f"Means of {BLOCK} tokens over all documents."
        yield _picture("positions", f"Loss against position, {slots} slots", figure, caption)


def _share_of(kind: str) -> Any:
    def share(result: Scored) -> float | None:
        answers = result.right.get(kind)
        return sum(answers.values()) / len(answers) if answers else None

    return share


def _picture(key: str, title: str, figure: Any, caption: str) -> dict[str, str]:
    return {"title": title, "svg": inline_svg(figure, f"cache-{key}", title), "caption": caption}


def _texts(folder: Path, scored: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    """Return one document for each cache, in pieces of equal level: how many heads keep them at the end."""
    if not (folder / "text.json").is_file():
        return
    text = read_json(folder / "text.json")
    try:
        tokens, name = [str(token) for token in text["tokens"]], str(text["document"])
        for result in scored:
            if result.kept is None:
                continue
            heads, counts = int(result.kept["heads"]), result.kept["counts"]
            pieces: list[list[Any]] = []
            for token, count in zip(tokens, counts, strict=False):
                level = math.ceil(_LEVELS * count / heads)
                if pieces and pieces[-1][0] == level:
                    pieces[-1][1] += token
                else:
                    pieces.append([level, token])
            yield {"title": result.label, "document": name, "pieces": pieces}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / 'text.json'}: is no text of tokens ({error})") from error
