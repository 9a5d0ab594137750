"""`plait gradients …` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plait.cli import main


def run(capsys: Any, *args: str) -> tuple[int, str, str]:
    code = main(["gradients", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_law_prints_three_laws_side_by_side(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "0.25", "--eigenvalue", "-0.5", "--length", "1e5")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split("  ")[0] == "eigenvalue"
    assert lines[2].split() == ["0.25", "T^-0.7500", "T^-0.6667", "-0.6667", "yes"]
    assert lines[3].split() == ["-0.5", "T^-1.0000", "T^-1.3333", "-1.333", "no"]
    assert "follows T^-0.6667" in out


def test_law_as_json(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "-0.3+0.6j", "--length", "1e5", "--json")
    assert code == 0
    record = json.loads(out)
    (law,) = record["laws"]
    assert law["eigenvalue"] == "-0.3+0.6j"
    assert law["measured"] == pytest.approx(-1.3659, abs=2e-3)
    assert record["together"]["reaches_inverse_length"] is False
    assert len(law["lengths"]) == len(law["log_abs"]) > 100


def test_law_with_mix_and_start(capsys: Any) -> None:
    code, out, _ = run(
        capsys, "law", "--eigenvalue", "1", "--mix", "0.5", "--start", "3", "--length", "20000", "--json"
    )
    assert code == 0
    law = json.loads(out)["laws"][0]
    assert law["sharp"] == pytest.approx(0)
    assert law["measured"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("count", [2, 8])
def test_law_draws(capsys: Any, tmp_path: Path, count: int) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "law.svg"
    values = [f"--eigenvalue={0.1 * i:.1f}" for i in range(count)]
    code, out, _ = run(capsys, "law", *values, "--length", "1e4", "--plot", str(picture))
    assert code == 0
    assert str(picture) in out
    assert picture.read_text().startswith("<?xml")


def test_unit_circle_is_a_documented_limit(capsys: Any) -> None:
    code, out, _ = run(capsys, "law", "--eigenvalue", "1j", "--length", "1e5")
    assert code == 0
    assert "T^0.5000" in out
    assert "does not apply" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "eigenvalue: expected at least one"),
        (("--eigenvalue", "1"), "no power of T"),
        (("--eigenvalue", "1.5"), "|λ| < 1"),
        (("--eigenvalue", "nan"), "finite"),
        (("--eigenvalue", "abc"), "got 'abc'"),
        (("--eigenvalue", "0.5", "--length", "10"), "to fit a slope"),
        (("--eigenvalue", "0.5", "--length", "1000.5"), "whole number"),
        (("--eigenvalue", "0.5", "--plot", "a.txt"), "ending in .png"),
        (("--eigenvalue", "0.5", "--start", "0"), "start: expected at least 1"),
    ],
)
def test_mistakes_are_one_line(capsys: Any, args: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, "law", *args)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_ten_million_steps_of_fifty_eigenvalues(capsys: Any) -> None:
    import time

    pytest.importorskip("numba")
    values = [f"--eigenvalue={-0.95 + 0.036 * i:.3f}" for i in range(50)]
    begin = time.perf_counter()
    code, _, _ = run(capsys, "law", *values, "--length", "1e7")
    assert code == 0
    assert time.perf_counter() - begin < 10
