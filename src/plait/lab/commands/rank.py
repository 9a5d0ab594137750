"""The commands `plait rank` and `plait bounds`."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plait.depthwidth.bounds import (
    multiset_lower,
    regime,
    residual_correction,
    thm1_bounds,
    thm2_bounds,
    transition_depth,
)
from plait.depthwidth.multiset import log3
from plait.depthwidth.rank.best_bounds import best_bounds
from plait.depthwidth.rank.certificate import Certificate, certify
from plait.depthwidth.rank.certificate_check import CertificateCheck, check_certificate, miss_chance
from plait.depthwidth.rank.exact import Problem, Progress
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.gram import log3_gram_upper, sides_of
from plait.errors import ConfigError
from plait.files import jsonable
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["bounds", "rank"]

_SECONDS = 5.0  # seconds between two progress lines


def bounds(
    depth: int,
    width: int,
    heads: int = 1,
    tokens: int | None = None,
    cut: int | None = None,
    residual: bool = False,
) -> CommandResult:
    """List all bounds on the separation rank of one network.

    Args:
        depth: number of layers.
        width: number of features.
        heads: attention heads.
        tokens: sequence length; if not given, long enough that the rank no longer grows.
        cut: tokens in the first part of the partition, if it is not balanced.
        residual: with residual connections.
    """
    data, rows = _bound_rows(depth, width, heads, tokens, cut, residual)
    notes = [
        "Values are log3 of the rank. A lower bound of 0 or less is vacuous.",
        "The published deep upper bound is not proven beyond two tokens; the Gram bound is.",
    ]
    if residual:
        notes.append(
            f"Residual connections: the theorems' upper bounds include the published correction L·log3 2 = "
            f"{residual_correction(depth):.4g}; the lower bounds and the Gram bound need none."
        )
    title = f"{depth} layers, width {width:,}, {heads} heads: {data['regime']} regime"
    return CommandResult(data, (Table(["bound", "lower", "upper", "remark"], rows, title, notes),))


def _bound_rows(
    depth: int, width: int, heads: int, tokens: int | None, cut: int | None, residual: bool
) -> tuple[dict[str, Any], list[list[Any]]]:
    if tokens is not None:
        sides_of(tokens, cut)
    elif cut is not None:
        raise ConfigError("cut: needs tokens, the length of the sequence")
    first = thm1_bounds(depth, width, heads, residual)
    second = thm2_bounds(depth, width, heads, tokens, residual)
    best = best_bounds(depth, width, heads, tokens, cut=cut, residual=residual)
    published = best_bounds(depth, width, heads, tokens, certified=False, cut=cut, residual=residual)
    multiset = multiset_lower(depth, width, heads)
    gram = best.upper if best.source.endswith("Gram") else _gram_or_none(depth, width, tokens, cut)
    data = {
        "depth": depth,
        "width": width,
        "heads": heads,
        "tokens": tokens,
        "residual": residual,
        "regime": regime(depth, width),
        "transition_depth": transition_depth(width, heads) if width > heads else None,
        "theorem_1": jsonable(first),
        "theorem_2": jsonable(second),
        "multiset_lower": multiset,
        "gram_upper": gram,
        "best": jsonable(best),
        "best_with_published": jsonable(published),
    }
    rows: list[list[Any]] = [
        *(
            [
                f"Theorem {number}",
                _number(bound.lower),
                _number(bound.upper),
                _remark(bound.certified, bound.stated),
            ]
            for number, bound in enumerate((first, second), 1)
        ),
        ["multiset", _number(multiset), None, "basis of both lower bounds"],
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
    return ", ".join(words if certified else [*words, "upper bound published, not certified"])


def _number(value: float | None) -> str | None:
    """Return nine significant digits, because bounds differ only in the last ones."""
    if value is None or math.isinf(value):
        return None
    return f"{value:.9g}"


def rank(
    depth: int | None = None,
    width: int | None = None,
    heads: int = 1,
    tokens: int | None = None,
    cut: int | None = None,
    residual: bool = False,
    graded: bool = False,
    templates: int | None = None,
    device: str | None = None,
    runs: int = 2,
    out: Path | None = None,
    check: Path | None = None,
) -> CommandResult:
    """Measure the exact separation rank of one network over a finite field, and compare it with all bounds.

    Args:
        depth: number of layers.
        width: number of features.
        heads: attention heads; must divide the width.
        tokens: sequence length, 2·width if not given.
        cut: tokens in the first part of the partition; half of them if not given.
        residual: with residual connections.
        graded: measure the rank by degree and add up: more, but smaller matrices.
        templates: matrix size; by default as large as the proven bound requires.
        device: cuda for a GPU; numpy on the CPU otherwise.
        runs: repetitions with different primes and seeds (1 to 3).
        out: write the certificate to this JSON file, after every run, with a witness at the end.
        check: check this certificate instead of measuring.
    """
    if check is not None:
        if depth is not None or width is not None or out is not None:
            raise ConfigError("check: the file says what was measured; leave out --depth, --width and --out")
        with _progress_bar() as progress:
            return _check_result(check, check_certificate(check, device=device, progress=_rows(progress)))
    if depth is None or width is None:
        raise ConfigError("give --depth and --width, or --check FILE")
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
    return _rank_result(problem, certificate)


def _rank_result(problem: Problem, certificate: Certificate) -> CommandResult:
    data, rows = _bound_rows(
        problem.depth, problem.width, problem.heads, problem.length, problem.cut, problem.residual
    )
    value = f"{log3(certificate.rank):.9g}" if certificate.rank else None
    rows.append(["measured", value, value, f"rank {certificate.rank:,}"])
    if certificate.matches_gram:
        verdict = "equal to the proven upper bound: the generic rank is certain"
    else:
        short = miss_chance(problem.depth, certificate.rank, [run.p for run in certificate.runs])
        verdict = (
            f"the proven upper bound is {certificate.gram:,}; had the rank been larger, all runs would have "
            f"missed it with a chance of at most {short:.1e}"
        )
    notes = [
        f"{len(certificate.runs)} runs (different primes and seeds): "
        + ", ".join(f"{run.rank:,} mod {run.p} in {run.seconds:.1f} s" for run in certificate.runs),
        verdict if certificate.saturated else "not saturated: rank = number of templates; take more",
        "Values are log3 of the rank.",
    ]
    title = f"Separation rank of {problem.depth} layers, width {problem.width}, {problem.heads} heads"
    return CommandResult(
        {**jsonable(certificate.as_dict()), "bounds": data},
        (Table(["", "lower", "upper", "remark"], rows, title, notes),),
    )


def _rows(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, most: progress("the witness", done, most)


def _check_result(path: Path, checked: CertificateCheck) -> CommandResult:
    certificate, net = checked.certificate, checked.certificate["network"]
    sides = f"{net['tokens_a']} + {net['tokens_b']} tokens"
    shape = f"{net['depth']} layers, width {net['width']}, {net['heads']} heads, {sides}"
    rows = [
        ["network", shape + (", residual connections" if net["residual"] else "")],
        ["shown", f"the generic separation rank is at least {checked.rank:,}"],
        ["proven bound", f"{checked.gram:,}" + (": the rank is certain" if checked.certain else "")],
        ["a false witness passes", f"with probability 2^{checked.forged_log2:.0f} per attempt"],
        [
            "entries computed",
            f"{checked.entries:,} mod {certificate['witness']['p']}, seed {certificate['witness']['seed']}",
        ],
        [
            "written by",
            f"plait {certificate['environment']['plait']}, commit {certificate['environment']['commit']}",
        ],
    ]
    notes = []
    if not checked.certain:
        notes.append(
            f"Not checked: that the rank is not larger. {len(certificate['runs'])} runs found no more; if it "
            f"were, all of them would have missed it with probability at most {checked.miss_chance:.1e}."
        )
    data = {
        "file": str(path),
        "rank": checked.rank,
        "gram_bound": checked.gram,
        "certain": checked.certain,
        "forged_log2": checked.forged_log2,
        "miss_chance": checked.miss_chance,
        "entries": checked.entries,
        "network": net,
        "environment": certificate["environment"],
    }
    return CommandResult(data, (Table(["", ""], rows, f"{path} holds", notes),))


@contextlib.contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Show progress on stderr: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield _lines(time.monotonic())
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rank")

        def show(label: str, rank: int, most: int) -> None:
            bar.update(task, description=f"rank of {label}", completed=rank, total=most)

        yield show


def _lines(began: float) -> Progress:
    last = began

    def show(label: str, rank: int, most: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _SECONDS:
            last = now
            sys.stderr.write(f"{now - began:8.1f} s  {label}  rank {rank:,} of at most {most:,}\n")
            sys.stderr.flush()

    return show
