"""`check_certificate`: true certificates pass, every edited one is refused, and the check stands alone."""

import ast
import base64
import copy
import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from plait.depthwidth.rank import (
    Problem,
    certificate_check as check_module,
    certify,
    check_certificate,
    claim,
    miss_chance,
    sep_rank_exact,
)
from plait.depthwidth.rank.certificate_matrix import entries, sides
from plait.depthwidth.rank.claim import Claim, digest_of, num_right_hand_sides, right_hand_sides
from plait.depthwidth.rank.field import PRIMES
from plait.depthwidth.rank.network import draw_weights, linear_attention_forward, random_residues
from plait.depthwidth.rank.witness import network_of, solve
from plait.errors import DataError

DEPTHWIDTH = Path(check_module.__file__).parents[1]
P = PRIMES[0]
SHAPES = [
    (Problem(1, 4), False, 5),
    (Problem(2, 4), False, 110),
    (Problem(2, 4, 2, coordinate=3), False, 107),
    (Problem(2, 4, 4, residual=True), False, 85),
    (Problem(2, 4, 1, 8, cut=1), False, 80),
    (Problem(3, 2, 2, residual=True), False, 215),
    (Problem(4, 1), False, 41),
    (Problem(2, 4, 2), True, 107),
    (Problem(3, 2), True, 232),
]


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A certificate of rank 110 (equal to the bound) and one of 107 (below it), as objects."""
    folder = tmp_path_factory.mktemp("certificates")
    found = {}
    for heads, rank in ((1, 110), (2, 107)):
        certify(Problem(2, 4, heads), out=folder / f"{heads}.json")
        found[rank] = json.loads((folder / f"{heads}.json").read_text())
    return found


def written(held, tmp_path, mend=True):
    """The file of an object; `mend` makes its digest again, as a forger would."""
    if mend:
        held = {**held, "digest": digest_of(held)}
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(held))
    return path


@pytest.mark.parametrize(("problem", "graded", "rank"), SHAPES)
def test_true_certificates_pass(problem, graded, rank, tmp_path):
    path = tmp_path / "certificate.json"
    certify(problem, graded=graded, out=path)
    found = check_certificate(path)
    assert (found.rank, found.certain) == (rank, rank == problem.gram())
    assert found.forged_log2 <= -64
    assert found.entries >= 1


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("depth", "width", "heads"), [(1, 3, 1), (2, 4, 2), (3, 2, 1), (3, 4, 2)])
def test_entries_are_those_of_the_definition(depth, width, heads, residual):
    """Entry by entry against the network as it is defined, tokens and all, without any Gram matrix."""
    problem = Problem(depth, width, heads, 5, cut=2, residual=residual, coordinate=width - 1)
    described = Claim(network_of(problem), P, 7, None, ((1, 4),), ((0, 2), (3, 4)))
    found = np.asarray(entries(sides(described)))
    weight_rng, left_rng, right_rng = np.random.default_rng(7).spawn(3)
    weights = draw_weights(depth, width, heads, P, weight_rng)
    left = random_residues(left_rng, P, 4, 2, width)[[1, 2, 3]]
    right = random_residues(right_rng, P, 4, 3, width)[[0, 1, 3]]
    for m in range(3):
        for n in range(3):
            tokens = np.concatenate([left[m], right[n]])
            y = linear_attention_forward(tokens, weights, residual, P)[0, width - 1]
            assert (found[m, n] - y) % P == 0


def test_a_tile_is_a_part_and_torch_agrees(monkeypatch, honest, tmp_path):
    path = written(honest[107], tmp_path)
    monkeypatch.setattr(check_module, "_TILE", 13)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = []
    check_certificate(path, progress=lambda done, most: seen.append((done, most)))
    assert seen[-1] == (107, 107)
    assert check_certificate(path, device="torch:cpu").rank == 107


def throughout(held, number, **changes):
    """Edit a run and its only component."""
    held["runs"][number].update(changes)
    held["runs"][number]["components"][0].update(changes)


def shown(held):
    return held["witness"]["parts"][0]


# What is edited, and a word of the one line that refuses it. Digests are made again: these are forgers.
EDITS = {
    "rank 500": (lambda h: h.update(rank=500), "exceeds the proven bound 110"),
    "rank 500 everywhere": (
        lambda h: (h.update(rank=500), throughout(h, 0, rank=500), throughout(h, 1, rank=500)),
        "exceeds the proven bound 110",
    ),
    "bound 107": (lambda h: h.update(gram_bound=107), "the proven bound of this network is 110, got 107"),
    "bound 500": (lambda h: h.update(gram_bound=500), "the proven bound of this network is 110"),
    "a string": (lambda h: h.update(rank="110"), "rank: expected a whole number"),
    "negative": (lambda h: h.update(rank=-5), "rank: expected a whole number"),
    "a fraction": (lambda h: h.update(rank=110.0), "rank: expected a whole number"),
    "a boolean": (lambda h: h.update(rank=True), "rank: expected a whole number"),
    "null": (lambda h: h.update(rank=None), "rank: expected a whole number"),
    "huge": (lambda h: h.update(rank=10**100), "rank: expected a whole number"),
    "deep network": (lambda h: h["network"].update(depth=10**9), "network: depth: expected"),
    "wide network": (lambda h: h["network"].update(width=10**9), "network: width: expected"),
    "heads": (lambda h: h["network"].update(heads=3), "must divide width 4"),
    "other network": (lambda h: h["network"].update(width=3), "the proven bound of this network is 49"),
    "other cut": (lambda h: h["network"].update(tokens_a=5), "the witness does not hold"),
    "given weights": (lambda h: h["network"].update(weights="given"), "only generic ones"),
    "missing": (lambda h: h.pop("runs"), "without 'runs'"),
    "missing in a run": (lambda h: h["runs"][0].pop("p"), "run 1: without 'p'"),
    "unknown key": (lambda h: h.update(note="trust me"), "unknown key 'note'"),
    "no witness": (lambda h: h.update(witness=None), "witness: expected an object"),
    "other seed": (lambda h: h["witness"].update(seed=5), "no run has its prime and seed"),
    "seed throughout": (
        lambda h: (h["witness"].update(seed=5), throughout(h, 1, seed=5)),
        "the witness does not hold",
    ),
    "the same run twice": (lambda h: h.update(runs=[h["runs"][1]] * 2), "have the same prime and seed"),
    "not a prime": (
        lambda h: (h["witness"].update(p=8388589), throughout(h, 1, p=8388589)),
        "expected an odd prime",
    ),
    "agreed": (lambda h: h.update(agreed=False), "agreed: its runs give True"),
    "matches": (lambda h: h.update(matches_gram_bound=False), "matches_gram_bound: its runs give True"),
    "lower bound": (lambda h: h.update(log3_lower=4.2), "log3_lower: expected"),
    "infinite": (lambda h: h["runs"][0].update(seconds=1e308), "seconds: expected a finite number"),
    "not complete": (lambda h: h.update(complete=False), "not complete"),
    "saturated": (lambda h: h["runs"][0]["components"][0].update(templates=110), "templates beyond the rank"),
    "rows repeated": (lambda h: shown(h).update(rows=[[0, 60], [59, 109]]), "without repetition"),
    "rows touching": (lambda h: shown(h).update(rows=[[0, 60], [60, 110]]), "without repetition"),
    "rows reversed": (lambda h: shown(h).update(rows=[[110, 0]]), "without repetition"),
    "too few rows": (lambda h: shown(h).update(rows=[[0, 109]]), "expected 110 of them, got 109"),
    "out of range": (lambda h: shown(h).update(columns=[[10**9, 10**9 + 110]]), "out of range"),
    "other columns": (lambda h: shown(h).update(columns=[[1, 111]]), "the witness does not hold"),
    "short solution": (lambda h: shown(h).update(solution="AAAA"), "solution: expected"),
    "no base64": (lambda h: shown(h).update(solution="?" * 2000), "solution: expected base64"),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_certificates_are_refused_in_one_line(name, honest, tmp_path):
    edit, words = EDITS[name]
    held = copy.deepcopy(honest[110])
    edit(held)
    with pytest.raises(DataError, match=re.escape(words)) as refused:
        check_certificate(written(held, tmp_path))
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "110",
        "not JSON",
        '{"rank": NaN}',
        '{"rank": Infinity}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"rank": ' + "9" * 5000 + "}",
        "\x00",
    ],
)
def test_files_that_are_not_certificates_are_refused(text, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        check_certificate(path)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_json_does_not_have_are_refused(word, honest, tmp_path):
    held = copy.deepcopy(honest[110])
    held["runs"][0]["seconds"] = "here"
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(held).replace('"here"', word))
    with pytest.raises(DataError, match=f"{word} is not a number"):
        check_certificate(path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_certificate_of_eleven_thousand_is_checked_within_a_minute_of_two_cores():
    path = Path(__file__).parents[3] / "results/depthwidth/rank-depth2-width16.json"
    began = time.process_time()
    found = check_certificate(path)
    assert (found.rank, found.certain, found.entries) == (11645, True, 11645**2)
    assert time.process_time() - began < 2 * 60  # however busy they are


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        check_certificate(tmp_path / "nowhere.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a certificate"):
        check_certificate(tmp_path / "bytes.json")


def test_an_edit_by_accident_shows_in_the_digest(honest, tmp_path):
    held = copy.deepcopy(honest[110])
    held["environment"]["commit"] = "another"
    with pytest.raises(DataError, match="the digest is not that of its contents"):
        check_certificate(written(held, tmp_path, mend=False))


def test_one_number_of_the_solution_matters(honest, tmp_path):
    for place in (0, 500, 329):
        held = copy.deepcopy(honest[110])
        part = held["witness"]["parts"][0]
        plain = bytearray(base64.b64decode(part["solution"]))
        plain[place] ^= 1
        part["solution"] = base64.b64encode(bytes(plain)).decode()
        with pytest.raises(DataError, match="A w = b fails in 110 of 110 rows"):
            check_certificate(written(held, tmp_path))


def test_a_rank_below_the_bound_that_is_not_there_cannot_be_shown(honest, tmp_path):
    """108 is within the bound of 110, but the rank is 107: every square of 108 is singular."""
    problem = Problem(2, 4, 2)
    described = Claim(network_of(problem), PRIMES[1], 1, None, ((0, 108),), ((0, 108),))
    assert solve(problem, described) is None
    held = copy.deepcopy(honest[107])
    part = held["witness"]["parts"][0]
    honest_part = claim.unpack(part["solution"], PRIMES[1], (107, 3))
    made_up = np.concatenate([honest_part, honest_part[:1]])
    part.update(rank=108, rows=[[0, 108]], columns=[[0, 108]], solution=claim.pack(made_up, PRIMES[1]))
    held["rank"] = 108
    for run in held["runs"]:
        run["rank"] = run["components"][0]["rank"] = 108
    with pytest.raises(DataError, match="the witness does not hold"):
        check_certificate(written(held, tmp_path))


def test_singular_systems_are_solvable_about_once_in_p():
    """Why the chance is 1/p a right-hand side: over GF(5), A of rank 107 in 108 columns, one b in five."""
    p, tries = 5, 400
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, p, (6, 5)) @ rng.integers(0, p, (5, 6)) % p  # 6 × 6, rank 5 at most
    null = next(
        v for v in np.ndindex(*(p,) * 6) if any(v) and not (np.array(v) @ matrix % p).any()
    )  # A w = b needs null · b = 0
    hits = sum(int(np.dot(null, rng.integers(0, p, 6)) % p == 0) for _ in range(tries))
    assert 0.13 < hits / tries < 0.27
    assert P ** num_right_hand_sides(P) >= 2**64 > P ** (num_right_hand_sides(P) - 1)


def test_right_hand_sides_depend_on_everything():
    base = Claim(network_of(Problem(2, 4)), P, 0, None, ((0, 110),), ((0, 110),))
    others = [
        Claim({**base.network, "residual": True}, P, 0, None, base.rows, base.columns),
        Claim(base.network, P, 1, None, base.rows, base.columns),
        Claim(base.network, P, 0, 2, base.rows, base.columns),
        Claim(base.network, P, 0, None, ((1, 111),), base.columns),
        Claim(base.network, P, 0, None, base.rows, ((1, 111),)),
    ]
    first = right_hand_sides(base)
    assert first.shape == (110, 3)
    assert (first >= 0).all()
    assert (first < P).all()
    assert np.array_equal(first, right_hand_sides(base))
    for other in others:
        assert (right_hand_sides(other) == first).mean() < 0.01


def test_the_check_shares_nothing_with_what_it_checks():
    """Its files, and all they import of this package, hold neither the elimination nor the evaluation."""
    forbidden = {"echelon", "evaluate", "field", "network", "arrays", "exact", "witness", "certificate"}
    seen, waiting = set(), ["rank.certificate_check"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        tree = ast.parse((DEPTHWIDTH / f"{name.replace('.', '/')}.py").read_text())
        for node in ast.walk(tree):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                parts = (module or "").split(".")
                assert parts[0] in {"__future__", "numpy", "plait"} or parts[0] in sys.stdlib_module_names
                if parts[:2] == ["plait", "depthwidth"]:
                    inside = ".".join(parts[2:])
                    assert (DEPTHWIDTH / f"{inside.replace('.', '/')}.py").exists(), (
                        f"{name} imports a package"
                    )
                    if inside not in seen:
                        waiting.append(inside)
    modules = {name.removeprefix("rank.") for name in seen}
    shared = {
        "claim",
        "certificate_matrix",
        "certificate_schema",
        "gram",
        "best_bounds",
        "bounds",
        "multiset",
    }
    assert modules == {"certificate_check", *shared}
    assert not modules & forbidden


def test_the_chance_of_falling_short_is_the_rigorous_one():
    """(rank + 1)·degree/p a run, by Schwartz and Zippel; what small fields do stays below it."""
    assert miss_chance(2, 107910, list(PRIMES[:2])) == pytest.approx(
        (107911 * 25 / PRIMES[0]) * (107911 * 25 / PRIMES[1])
    )
    assert miss_chance(3, 3101, [P]) == pytest.approx(3102 * 79 / P)
    assert miss_chance(2, 17, [5]) == 1.0
    p, draws = 1009, 60
    missed = sum(sep_rank_exact(2, 2, p=p, seed=seed).rank < 18 for seed in range(draws)) / draws
    assert missed <= miss_chance(2, 17, [p]) < 0.5


def test_degree_of_an_entry():
    """y is homogeneous: scaling all weights and tokens by 2 scales it by 2^(3^(L+1) − 2)."""
    for depth in (1, 2, 3):
        weights = draw_weights(depth, 2, 1, P, 0)
        tokens = random_residues(np.random.default_rng(1), P, 3, 2)
        doubled = type(weights)(*(2 * x for x in (weights.query, weights.key, weights.value, weights.output)))
        once = linear_attention_forward(tokens, weights, p=P)
        twice = linear_attention_forward(2 * tokens, doubled, p=P)
        scale = pow(2, check_module.degree_of_minor(depth, 1), P)
        assert ((twice.astype(object) - scale * once.astype(object)) % P == 0).all()
