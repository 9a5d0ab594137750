"""A measured rank with what is needed to trust it: primes, seeds, the proven bound, and a witness."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plait._version import __version__
from plait.depthwidth.rank.arrays import arrays_on
from plait.depthwidth.rank.best_bounds import best_bounds
from plait.depthwidth.rank.certificate_schema import read_json
from plait.depthwidth.rank.claim import SCHEMA, digest_of
from plait.depthwidth.rank.exact import Component, Problem, Progress, RankResult, measure_rank
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.witness import make_witness, network_of
from plait.errors import CheckpointError, ConfigError, DataError, OutputError
from plait.files import destination, write_whole
from plait.provenance import commit, processor

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Certificate:
    """Repeated exact measurements of one separation rank.

    Attributes:
        rank: the largest of the measured ranks; errors are one-sided, so it can only be too small.
        agreed: at least two runs, with different primes and seeds, gave this rank.
        saturated: templates beyond the rank were tried and added nothing.
        gram: the proven upper bound; `matches_gram` makes the rank certain from both sides.
        partial: components of a graded run that is still going on.
        complete: False while runs are still to come.
        witness: what `check_certificate` needs to see the rank for itself: rows, columns, and the solution of
            a linear system in the matrix they name. None in memory; a finished file has one.
    """

    network: dict[str, Any]
    graded: bool
    gram: int
    runs: tuple[RankResult, ...] = ()
    partial: tuple[Component, ...] = ()
    complete: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    witness: dict[str, Any] | None = None

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
        """Plain values, for JSON; bounds are log3. `digest` is over all the rest."""
        net = self.network
        tokens = net["tokens_a"] + net["tokens_b"]
        best = best_bounds(
            net["depth"], net["width"], net["heads"], tokens, cut=net["tokens_a"], residual=net["residual"]
        )
        held = {
            "schema": SCHEMA,
            "rank": self.rank,
            "agreed": self.agreed,
            "saturated": self.saturated,
            "gram_bound": self.gram,
            "matches_gram_bound": self.matches_gram,
            "log3_lower": best.lower,
            "log3_upper": best.upper,
            "complete": self.complete,
            "network": net,
            "graded": self.graded,
            "runs": [asdict(run) for run in self.runs],
            "partial": [asdict(part) for part in self.partial],
            "witness": self.witness,
            "environment": self.environment,
        }
        return {**held, "digest": digest_of(held)}

    def write(self, path: str | Path) -> None:
        """Write as JSON; a reader never sees half a file."""
        write_whole(Path(path), (json.dumps(self.as_dict(), indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate back, finished or not, to continue it; `check_certificate` is for doubt.

        Raises:
            CheckpointError: the file is not one, or was changed.
        """
        try:
            held = _untouched(read_json(path))
            runs = [{**run, "components": _components(run["components"])} for run in held["runs"]]
            return cls(
                network=held["network"],
                graded=held["graded"],
                gram=held["gram_bound"],
                runs=tuple(RankResult(**run) for run in runs),
                partial=_components(held["partial"]),
                complete=held["complete"],
                environment=held["environment"],
                witness=held["witness"],
            )
        except (DataError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: is not a certificate of a rank ({error})") from error


def _untouched(held: dict[str, Any]) -> dict[str, Any]:
    if held.get("schema") != SCHEMA or held["digest"] != digest_of(held):
        raise ValueError("another schema, or changed after it was written")
    return held


def _components(held: list[dict[str, Any]]) -> tuple[Component, ...]:
    return tuple(Component(**part) for part in held)


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
        out: a JSON file, rewritten after every run and component. Where it exists, what it holds of the
            same measurement is not repeated. Generic weights get a witness at the end, from the last run that
            gave the rank: one elimination more.

    >>> certificate = certify(Problem(2, 4, 2))
    >>> certificate.rank, certificate.agreed, certificate.gram, certificate.matches_gram
    (107, True, 110, False)
    """
    if len(primes) != len(seeds) or not primes:
        raise ConfigError(f"expected one seed a prime, got {len(primes)} primes and {len(seeds)} seeds")
    for prime in primes:
        problem.check(prime)
    certificate = _begin(problem, graded, device, out)

    def keep(**changes: Any) -> None:
        nonlocal certificate
        certificate = replace(certificate, **changes)
        if out is not None:
            certificate.write(out)

    def keep_component(part: Component) -> None:
        if graded:
            keep(partial=(*certificate.partial, part))

    planned = list(zip(primes, seeds, strict=True))
    for position, (prime, seed) in enumerate(planned):
        if position < len(certificate.runs):
            _same_run(certificate.runs[position], prime, seed, templates, out)
            continue
        run = measure_rank(
            problem,
            seed=seed,
            p=prime,
            templates=templates,
            graded=graded,
            device=device,
            progress=progress,
            done=certificate.partial,
            on_component=keep_component,
        )
        keep(runs=(*certificate.runs, run), partial=())
        if len(planned) == len(primes) == position + 1 > 1 and len({r.rank for r in certificate.runs}) > 1:
            unused = [p for p in PRIMES if p not in primes] or list(primes)
            planned.append((unused[0], max(seeds) + 1))
    if out is not None and problem.weights is None and certificate.witness is None:
        shown = next(run for run in reversed(certificate.runs) if run.rank == certificate.rank)
        keep(witness=make_witness(problem, shown, device, progress))
    keep(complete=True)
    return certificate


def _begin(problem: Problem, graded: bool, device: str | None, out: str | Path | None) -> Certificate:
    """A fresh certificate, or the one a previous job left at `out`."""
    network = network_of(problem)
    fresh = Certificate(network, graded, problem.gram(), environment=_environment(device))
    if out is None or not destination(out).exists():
        return fresh
    held = Certificate.read(out)
    if held.network != network or held.graded != graded or problem.weights is not None:
        raise OutputError(f"{out} holds the certificate of another measurement; name another file")
    return replace(held, complete=False)


def _same_run(run: RankResult, prime: int, seed: int, templates: int | None, out: str | Path | None) -> None:
    if (run.p, run.seed) != (prime, seed) or (templates is not None and run.templates != templates):
        raise OutputError(f"{out} holds runs with other primes, seeds or templates; name another file")


def _environment(device: str | None) -> dict[str, str]:
    found = {
        "plait": __version__,
        "commit": commit() or "unknown",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": arrays_on(device).name,
        "processor": processor(),
    }
    if device is not None and device.startswith("cuda"):
        import torch

        found["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name(torch.device(device))
    return found
