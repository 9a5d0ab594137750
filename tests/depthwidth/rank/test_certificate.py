"""Certificates: agreement, disagreement, interruption, foreign files."""

import json

import pytest

from plait.depthwidth.rank import Certificate, Problem, certificate, certify, sep_rank_exact
from plait.depthwidth.rank.field import PRIMES
from plait.errors import CheckpointError, ConfigError, OutputError


def test_two_primes_two_seeds():
    made = certify(Problem(2, 4))
    assert [(run.p, run.seed) for run in made.runs] == [(PRIMES[0], 0), (PRIMES[1], 1)]
    assert (made.rank, made.agreed, made.saturated, made.matches_gram, made.complete) == (
        110,
        True,
        True,
        True,
        True,
    )


def test_disagreement_brings_a_third_run():
    """In a field of five elements ranks fall short at random; the maximum is returned."""
    short = next(seed for seed in range(40) if sep_rank_exact(2, 2, p=5, seed=seed).rank < 18)
    made = certify(Problem(2, 2), primes=(5, PRIMES[0]), seeds=(short, 41))
    assert made.runs[0].rank < 18
    assert len(made.runs) == 3
    assert made.rank == 18
    assert made.agreed


def test_round_trip(tmp_path):
    path = tmp_path / "certificate.json"
    made = certify(Problem(2, 4, 2), out=path)
    assert Certificate.read(path) == made
    held = json.loads(path.read_text())
    assert held["rank"] == 107
    assert held["gram_bound"] == 110
    assert held["log3_lower"] <= 4.253 <= held["log3_upper"]


def test_an_interrupted_job_is_continued(tmp_path, monkeypatch):
    path = tmp_path / "certificate.json"
    real, calls = certificate.measure_rank.__globals__["_measure"], []

    def interrupted(*arguments):
        calls.append(arguments[4])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setitem(certificate.measure_rank.__globals__, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify(Problem(2, 4), graded=True, out=path)
    assert [part.rank for part in Certificate.read(path).partial] == [1, 10, 55]
    assert not Certificate.read(path).complete
    made = certify(Problem(2, 4), graded=True, out=path)
    assert made.rank == 110
    assert calls == [0, 1, 2, 3, 3, 4, 0, 1, 2, 3, 4]
    assert certify(Problem(2, 4), graded=True, out=path) == made
    assert len(calls) == 11


def test_foreign_files(tmp_path):
    path = tmp_path / "certificate.json"
    certify(Problem(1, 2), out=path)
    with pytest.raises(OutputError, match="another measurement"):
        certify(Problem(1, 3), out=path)
    with pytest.raises(OutputError, match="other primes"):
        certify(Problem(1, 2), primes=PRIMES[1:], seeds=(4, 5), out=path)
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"rank": held["rank"] + 1}))
    with pytest.raises(CheckpointError, match="was changed after it was written"):
        Certificate.read(path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="is not a certificate"):
        certify(Problem(1, 2), out=path)
    with pytest.raises(OutputError, match="cannot write"):
        certify(Problem(1, 2), out=tmp_path / "nowhere" / "c.json")


def test_one_seed_a_prime():
    with pytest.raises(ConfigError, match="one seed per prime"):
        certify(Problem(1, 2), seeds=(1,))
