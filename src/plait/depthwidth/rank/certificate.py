"""Certificate of a measured rank: primes, seeds, the proven bound, and a witness that others can check."""

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
    """Repeated exact measurements of one separation rank, as written to a file.

    Attributes:
        rank: largest measured rank; errors are one-sided, so it can only be too small.
        agreed: at least two runs, with different primes and seeds, measured this rank.
        saturated: further templates did not increase the rank.
        gram: proven upper bound; if `matches_gram`, the rank is certain.
        partial: components of a graded run that is not finished.
        complete: all runs are finished.
        witness: data from which `check_certificate` verifies the rank: rows, columns, and the solution of a
            linear system in the matrix they select. None in memory; a finished file has one.
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
        """Return the certificate as JSON values; bounds are log3, `digest` is the checksum of the rest."""
        net = self.network
        tokens = net["tokens_a"] + net["tokens_b"]
        best = best_bounds(
            net["depth"], net["width"], net["heads"], tokens, cut=net["tokens_a"], residual=net["residual"]
        )
        content = {
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
        return {**content, "digest": digest_of(content)}

    def write(self, path: str | Path) -> None:
        """Write the certificate as JSON, atomically."""
        write_whole(Path(path), (json.dumps(self.as_dict(), indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate, finished or not, to continue it; use `check_certificate` to verify one.

        Raises:
            CheckpointError: if the file is not a certificate, or was changed.
        """
        try:
            content = _check_digest(read_json(path))
            runs = [{**run, "components": _components(run["components"])} for run in content["runs"]]
            return cls(
                network=content["network"],
                graded=content["graded"],
                gram=content["gram_bound"],
                runs=tuple(RankResult(**run) for run in runs),
                partial=_components(content["partial"]),
                complete=content["complete"],
                environment=content["environment"],
                witness=content["witness"],
            )
        except (DataError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: is not a certificate of a rank ({error})") from error


def _check_digest(content: dict[str, Any]) -> dict[str, Any]:
    if content.get("schema") != SCHEMA or content["digest"] != digest_of(content):
        raise ValueError("it has another schema, or was changed after it was written")
    return content


def _components(content: list[dict[str, Any]]) -> tuple[Component, ...]:
    return tuple(Component(**part) for part in content)


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
    """Measure the rank once per (prime, seed) pair; if the runs disagree, once more with a third pair.

    Args:
        out: a JSON file, rewritten after every run and component. If it exists, the runs in it are not
            repeated. With generic weights a witness is added at the end, which costs one more elimination.

    >>> certificate = certify(Problem(2, 4, 2))
    >>> certificate.rank, certificate.agreed, certificate.gram, certificate.matches_gram
    (107, True, 110, False)
    """
    if len(primes) != len(seeds) or not primes:
        raise ConfigError(f"expected one seed per prime, got {len(primes)} primes and {len(seeds)} seeds")
    for prime in primes:
        problem.check(prime)
    certificate = _begin(problem, graded, device, out)

    def update(**changes: Any) -> None:
        nonlocal certificate
        certificate = replace(certificate, **changes)
        if out is not None:
            certificate.write(out)

    def add_component(part: Component) -> None:
        if graded:
            update(partial=(*certificate.partial, part))

    planned = list(zip(primes, seeds, strict=True))
    for position, (prime, seed) in enumerate(planned):
        if position < len(certificate.runs):
            _check_same_run(certificate.runs[position], prime, seed, templates, out)
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
            on_component=add_component,
        )
        update(runs=(*certificate.runs, run), partial=())
        if len(planned) == len(primes) == position + 1 > 1 and len({r.rank for r in certificate.runs}) > 1:
            unused = [p for p in PRIMES if p not in primes] or list(primes)
            planned.append((unused[0], max(seeds) + 1))
    if out is not None and problem.weights is None and certificate.witness is None:
        best_run = next(run for run in reversed(certificate.runs) if run.rank == certificate.rank)
        update(witness=make_witness(problem, best_run, device, progress))
    update(complete=True)
    return certificate


def _begin(problem: Problem, graded: bool, device: str | None, out: str | Path | None) -> Certificate:
    """Return a new certificate, or the unfinished one at `out`."""
    network = network_of(problem)
    fresh = Certificate(network, graded, problem.gram(), environment=_environment(device))
    if out is None or not destination(out).exists():
        return fresh
    content = Certificate.read(out)
    if content.network != network or content.graded != graded or problem.weights is not None:
        raise OutputError(f"{out} is the certificate of another measurement; name another file")
    return replace(content, complete=False)


def _check_same_run(
    run: RankResult, prime: int, seed: int, templates: int | None, out: str | Path | None
) -> None:
    if (run.p, run.seed) != (prime, seed) or (templates is not None and run.templates != templates):
        raise OutputError(f"{out} holds runs with other primes, seeds or templates; name another file")


def _environment(device: str | None) -> dict[str, str]:
    environment = {
        "plait": __version__,
        "commit": commit() or "unknown",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": arrays_on(device).name,
        "processor": processor(),
    }
    if device is not None and device.startswith("cuda"):
        import torch

        environment["torch"] = torch.__version__
        environment["device"] = torch.cuda.get_device_name(torch.device(device))
    return environment
