"""A measured rank with what is needed to trust it: primes, seeds, templates, and the proven bound."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plait._version import __version__
from plait.depthwidth.arrays import arrays_on
from plait.depthwidth.best import best_bounds
from plait.depthwidth.field import PRIMES
from plait.depthwidth.gram import sides_of
from plait.depthwidth.rank import Problem, Progress, RankResult, measure_rank
from plait.errors import ConfigError, OutputError

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Certificate:
    """Repeated exact measurements of one separation rank.

    Attributes:
        rank: the largest of the measured ranks; errors are one-sided, so it is a proven lower bound on the
            generic rank in its characteristic.
        agreed: at least two runs, with different primes and seeds, gave this rank.
        saturated: templates beyond the rank were tried and added nothing.
        gram: the proven upper bound; `matches_gram` makes the rank certain from both sides.
        complete: False while runs are still to come.
    """

    depth: int
    width: int
    heads: int
    left: int
    right: int
    residual: bool
    graded: bool
    gram: int
    runs: tuple[RankResult, ...]
    complete: bool
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return max((run.rank for run in self.runs), default=0)

    @property
    def agreed(self) -> bool:
        return sum(run.rank == self.rank for run in self.runs) >= 2

    @property
    def saturated(self) -> bool:
        return any(run.saturated for run in self.runs if run.rank == self.rank)

    @property
    def matches_gram(self) -> bool:
        return self.rank == self.gram

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; bounds are log3."""
        best = best_bounds(self.depth, self.width, self.heads, self.left + self.right, cut=self.left)
        return {
            "rank": self.rank,
            "agreed": self.agreed,
            "saturated": self.saturated,
            "gram_bound": self.gram,
            "matches_gram_bound": self.matches_gram,
            "complete": self.complete,
            "network": {
                "depth": self.depth,
                "width": self.width,
                "heads": self.heads,
                "tokens_a": self.left,
                "tokens_b": self.right,
                "residual": self.residual,
            },
            "log3_lower": best.lower,
            "log3_upper": best.upper,
            "graded": self.graded,
            "runs": [asdict(run) for run in self.runs],
            "environment": self.environment,
        }

    def write(self, path: str | Path) -> None:
        """Write as JSON; a reader never sees half a file."""
        path = Path(path)
        draft = path.with_name(path.name + ".part")
        try:
            draft.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
            os.replace(draft, path)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error


def certify(
    problem: Problem,
    *,
    primes: Sequence[int] = PRIMES[:2],
    seeds: Sequence[int] = (0, 1),
    graded: bool = False,
    templates: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
) -> Certificate:
    """Measure once per (prime, seed) pair; where runs disagree, once more with a third prime and seed.

    Args:
        out: a JSON file, rewritten after every run, so that an interrupted job leaves what it has.

    >>> certificate = certify(Problem(2, 4, 2))
    >>> certificate.rank, certificate.agreed, certificate.gram, certificate.matches_gram
    (107, True, 110, False)
    """
    if len(primes) != len(seeds) or not primes:
        raise ConfigError(f"expected one seed a prime, got {len(primes)} primes and {len(seeds)} seeds")
    left, right = sides_of(problem.length, problem.cut)
    environment = _environment(device)
    for prime in primes:
        problem.check(prime)

    def certificate(runs: list[RankResult], complete: bool) -> Certificate:
        made = Certificate(
            depth=problem.depth,
            width=problem.width,
            heads=problem.heads,
            left=left,
            right=right,
            residual=problem.residual,
            graded=graded,
            gram=problem.gram(),
            runs=tuple(runs),
            complete=complete,
            environment=environment,
        )
        if out is not None:
            made.write(out)
        return made

    runs: list[RankResult] = []
    plan = list(zip(primes, seeds, strict=True))
    third = (
        next(p for p in PRIMES if p not in primes) if len(primes) < 3 else primes[0],
        max(seeds) + 1,
    )
    while plan:
        prime, seed = plan.pop(0)
        runs.append(
            measure_rank(
                problem,
                seed=seed,
                p=prime,
                templates=templates,
                graded=graded,
                device=device,
                progress=progress,
            )
        )
        if not plan and len(runs) == len(primes) > 1 and len({run.rank for run in runs}) > 1:
            plan.append(third)
        certificate(runs, complete=False)
    return certificate(runs, complete=True)


def _environment(device: str | None) -> dict[str, str]:
    found = {
        "plait": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": arrays_on(device).name,
        "processor": platform.machine(),
    }
    if device is not None and device.startswith("cuda"):
        import torch

        found["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name(torch.device(device))
    return found
