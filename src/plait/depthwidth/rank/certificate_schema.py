"""Schema of a certificate file: every key, its type, and the consistency of derived values.

A valid file is consistent with itself and with the Gram bound. `certificate_check` then verifies its witness.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait.depthwidth.rank.best_bounds import best_bounds
from plait.depthwidth.rank.certificate_matrix import max_products
from plait.depthwidth.rank.claim import SCHEMA, digest_of, num_right_hand_sides
from plait.depthwidth.rank.gram import gram_dimensions, gram_upper
from plait.errors import ConfigError, DataError
from plait.files import plain_bytes

__all__ = ["read_certificate", "read_json"]

_MOST_BYTES = 64 * 2**20
_DEEPEST, _WIDEST, _LONGEST = 8, 512, 4096  # limits of the exact arithmetic
_SPARE = 8  # templates beyond the bound, which a witness may use
_MARGIN = 4  # dependent templates after which a run is saturated
Bad = Callable[[str], DataError]


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object from an untrusted file: no NaN, duplicate keys, deep nesting or huge files."""

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) != len(pairs):
            raise ValueError("duplicate key")
        return unique

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not a number")

    try:
        raw = plain_bytes(path, _MOST_BYTES)
        content = json.loads(raw.decode(), object_pairs_hook=reject_duplicates, parse_constant=no_constant)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except RecursionError as error:
        raise DataError(f"{path}: is not a certificate of a rank (nested too deeply)") from error
    except ValueError as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{path}: is not a certificate of a rank ({reason})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is not a certificate of a rank (expected an object)")
    return content


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Read a certificate and check that it is complete, valid, and consistent with the Gram bound."""

    def bad(words: str) -> DataError:
        return DataError(f"{path}: {words}")

    content = read_json(path)
    if content.get("schema") != SCHEMA:
        raise bad(
            f"expected the schema {SCHEMA!r}, got {_short(content.get('schema'))}; measure again to get a "
            "certificate that can be checked"
        )
    _keys(content, _CERTIFICATE, "certificate", bad)
    _network(content["network"], bad)
    _witness_form(content["witness"], bad)
    for number, run in enumerate(content["runs"], start=1):
        _keys(run, _RUN, f"run {number}", bad)
        for part in run["components"]:
            _keys(part, _COMPONENT, f"run {number}: component", bad)
    _keys(content["environment"], _ENVIRONMENT, "environment", bad, others=True)
    if content["digest"] != digest_of(content):
        raise bad("the digest is not that of its contents: the file was changed after it was written")
    _consistent(content, bad)
    _witness(content, bad)
    return content


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(low: int, high: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"a whole number from {low} to {high}"
        return None

    return check


def _is(kind: type, words: str) -> Callable[[Any], str | None]:
    return lambda value: None if isinstance(value, kind) else words


def _number(value: Any) -> str | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return None if plain and -1e300 < value < 1e300 else "a finite number"


def _ranges(value: Any) -> str | None:
    """Check half-open, increasing, disjoint ranges."""
    words = "increasing ranges [[start, stop], …] without repetition"
    if not isinstance(value, list) or not value:
        return words
    before = -1
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or any(_integer(0, 2**40)(item) for item in pair):
            return words
        if not before < pair[0] < pair[1]:  # adjacent ranges must be merged
            return words
        before = pair[1]
    return None


_BOOL, _TEXT, _LIST = _is(bool, "true or false"), _is(str, "text"), _is(list, "a list")
_OBJECT = _is(dict, "an object")
_RANK, _PRIME, _SEED = _integer(0, 2**40), _integer(2, 2**28), _integer(0, 2**63 - 1)
Schema = dict[str, Callable[[Any], str | None]]


def _degree(value: Any) -> str | None:
    return None if value is None else _integer(0, 2**40)(value)


_CERTIFICATE: Schema = {
    "schema": _TEXT,
    "rank": _RANK,
    "agreed": _BOOL,
    "saturated": _BOOL,
    "gram_bound": _RANK,
    "matches_gram_bound": _BOOL,
    "log3_lower": _number,
    "log3_upper": _number,
    "complete": _BOOL,
    "network": _OBJECT,
    "graded": _BOOL,
    "runs": _LIST,
    "partial": _LIST,
    "witness": _OBJECT,
    "environment": _OBJECT,
    "digest": _TEXT,
}
_NETWORK: Schema = {
    "depth": _integer(1, _DEEPEST),
    "width": _integer(1, _WIDEST),
    "heads": _integer(1, _WIDEST),
    "tokens_a": _integer(1, _LONGEST),
    "tokens_b": _integer(1, _LONGEST),
    "residual": _BOOL,
    "coordinate": _integer(0, _WIDEST - 1),
    "weights": _TEXT,
}
_RUN: Schema = {
    "rank": _RANK,
    "p": _PRIME,
    "seed": _SEED,
    "templates": _RANK,
    "saturated": _BOOL,
    "gram": _RANK,
    "graded": _BOOL,
    "components": _LIST,
    "seconds": _number,
}
_COMPONENT: Schema = {
    "degree": _degree,
    "p": _PRIME,
    "seed": _SEED,
    "rank": _RANK,
    "bound": _RANK,
    "templates": _RANK,
    "saturated": _BOOL,
    "seconds": _number,
}
_WITNESS: Schema = {"p": _PRIME, "seed": _SEED, "parts": _LIST}
_PART: Schema = {"degree": _degree, "rank": _RANK, "rows": _ranges, "columns": _ranges, "solution": _TEXT}
_ENVIRONMENT: Schema = {"plait": _TEXT, "commit": _TEXT}


def _keys(value: Any, form: Schema, where: str, bad: Bad, others: bool = False) -> None:
    if not isinstance(value, dict):
        raise bad(f"{where}: expected an object, got {_short(value)}")
    missing = [key for key in form if key not in value]
    unknown = [] if others else [key for key in value if key not in form]
    if missing or unknown:
        which = f"without {missing[0]!r}" if missing else f"with the unknown key {_short(unknown[0])}"
        raise bad(f"{where}: {which}")
    for key, check in form.items():
        if words := check(value[key]):
            raise bad(f"{where}: {key}: expected {words}, got {_short(value[key])}")


def _network(net: Any, bad: Bad) -> None:
    _keys(net, _NETWORK, "network", bad)
    if net["width"] % net["heads"]:
        raise bad(f"network: heads: must divide width {net['width']}, got {net['heads']}")
    if net["coordinate"] >= net["width"]:
        raise bad(f"network: coordinate: expected 0 to {net['width'] - 1}, got {net['coordinate']}")
    if net["weights"] != "generic":
        raise bad(f"network: weights: only generic ones can be drawn again, got {_short(net['weights'])}")


def _witness_form(witness: Any, bad: Bad) -> None:
    _keys(witness, _WITNESS, "witness", bad)
    for part in witness["parts"]:
        _keys(part, _PART, "witness: part", bad)


def _consistent(content: dict[str, Any], bad: Bad) -> None:
    """Check the derived values."""
    net, runs = content["network"], content["runs"]
    sizes = {"width": net["width"], "depth": net["depth"], "left": net["tokens_a"], "right": net["tokens_b"]}
    try:
        gram = gram_upper(**sizes)
        best = best_bounds(
            net["depth"],
            net["width"],
            net["heads"],
            net["tokens_a"] + net["tokens_b"],
            cut=net["tokens_a"],
            residual=net["residual"],
        )
    except ConfigError as error:
        raise bad(str(error)) from error
    if content["gram_bound"] != gram:
        raise bad(f"gram_bound: the proven bound of this network is {gram:,}, got {content['gram_bound']:,}")
    if content["rank"] > gram:
        raise bad(f"rank: {content['rank']:,} exceeds the proven bound {gram:,} of this network")
    if not content["complete"] or content["partial"] or not runs:
        raise bad("the measurement is not complete; run the same command again to finish it")
    for number, run in enumerate(runs, start=1):
        _run(run, content, sizes, f"run {number}: ", bad)
    if len({(run["p"], run["seed"]) for run in runs}) != len(runs):
        raise bad("runs: two have the same prime and seed, so they are not independent")
    rank = max(run["rank"] for run in runs)
    derived = {
        "rank": rank,
        "agreed": sum(run["rank"] == rank for run in runs) >= 2,
        "saturated": any(run["saturated"] for run in runs if run["rank"] == rank),
        "matches_gram_bound": rank == gram,
    }
    for key, value in derived.items():
        if content[key] != value:
            raise bad(f"{key}: its runs give {value}, got {content[key]}")
    for key, bound in (("log3_lower", best.lower), ("log3_upper", best.upper)):
        if abs(content[key] - bound) > 1e-9 * max(1.0, abs(bound)):
            raise bad(f"{key}: expected {bound!r}, got {content[key]!r}")


def _run(run: dict[str, Any], content: dict[str, Any], sizes: dict[str, int], where: str, bad: Bad) -> None:
    parts, graded = run["components"], content["graded"]
    degrees = list(range((3 ** sizes["depth"] - 1) // 2 + 1)) if graded else [None]
    if run["graded"] != graded or [part["degree"] for part in parts] != degrees:
        raise bad(f"{where}its components are not those of this measurement")
    if run["rank"] != sum(part["rank"] for part in parts):
        raise bad(f"{where}rank: its components add up to {sum(part['rank'] for part in parts):,}")
    if run["gram"] != content["gram_bound"] or run["rank"] > run["gram"]:
        raise bad(f"{where}rank {run['rank']:,} and bound {run['gram']:,} contradict each other")
    bounds = [min(pair) for pair in gram_dimensions(**sizes)] if graded else [content["gram_bound"]]
    for part, bound in zip(parts, bounds, strict=True):
        if (part["p"], part["seed"]) != (run["p"], run["seed"]) or part["rank"] > min(
            bound, part["templates"]
        ):
            raise bad(
                f"{where}a component of rank {part['rank']:,} is impossible ({part['templates']:,} templates)"
            )
        if part["saturated"] and part["templates"] - part["rank"] < _MARGIN:
            raise bad(f"{where}saturated: expected {_MARGIN} templates beyond the rank")
    if run["saturated"] != all(part["saturated"] for part in parts):
        raise bad(f"{where}saturated: its components contradict it")
    if run["templates"] != max(part["templates"] for part in parts):
        raise bad(f"{where}templates: its components contradict it")


def _witness(content: dict[str, Any], bad: Bad) -> None:
    """Check that the witness is for a run of the file, its rank, and templates that a run can have."""
    witness, p = content["witness"], content["witness"]["p"]
    run = next((r for r in content["runs"] if (r["p"], r["seed"]) == (p, witness["seed"])), None)
    if run is None:
        raise bad("witness: no run has its prime and seed")
    _prime(p, content["network"], bad)
    expected = [(part["degree"], part["rank"]) for part in run["components"] if part["rank"]]
    if [(part["degree"], part["rank"]) for part in witness["parts"]] != expected or run["rank"] != content[
        "rank"
    ]:
        witness_rank = sum(part["rank"] for part in witness["parts"])
        raise bad(f"witness: it is for rank {witness_rank:,}, the certificate for {content['rank']:,}")
    for part in witness["parts"]:
        for side in ("rows", "columns"):
            count = sum(stop - start for start, stop in part[side])
            if count != part["rank"]:
                raise bad(f"witness: {side}: expected {part['rank']:,} of them, got {count:,}")
            if part[side][-1][1] > content["gram_bound"] + _SPARE:
                raise bad(f"witness: {side}: {part[side][-1][1] - 1:,} is out of range")
        least = part["rank"] * num_right_hand_sides(p) * ((p.bit_length() + 7) // 8)
        if len(part["solution"]) < least:
            raise bad(f"witness: solution: expected {least:,} bytes in base64, got {len(part['solution']):,}")


def _prime(p: int, net: dict[str, Any], bad: Bad) -> None:
    """Check a prime above C(L), with sums of products below 2^53; trial division suffices below 2^28."""
    if p < 3 or p % 2 == 0 or any(p % q == 0 for q in range(3, int(p**0.5) + 1, 2)):
        raise bad(f"witness: p: expected an odd prime, got {p}")
    if p <= (3 ** net["depth"] - 1) // 2:
        raise bad(f"witness: p: expected more than C(L) = {(3 ** net['depth'] - 1) // 2}, got {p}")
    if max(max_products(net), 512) * (p // 2 + 3) ** 2 >= 2**53:
        raise bad(f"witness: p: {p} is too large for exact sums at this width")
