"""`plait rank`, `plait bounds` and the job that needs numpy alone."""

import json
import subprocess
import sys

import pytest

from plait.lab import cli


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_rank(capsys, tmp_path):
    path = tmp_path / "certificate.json"
    code, out, err = run(capsys, "rank", "--depth", "2", "--width", "4", "--heads", "2", "--out", str(path))
    assert code == 0
    assert err == ""  # no bar where nobody looks
    assert "rank 107" in out
    assert json.loads(path.read_text())["agreed"]
    data = json.loads(run(capsys, "rank", "--depth", "2", "--width", "4", "--graded", "--json")[1])
    assert (data["rank"], data["matches_gram_bound"]) == (110, True)
    assert data["bounds"]["best"]["source"] == "multiset, Gram"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--depth", "0", "--width", "4"], "depth: expected at least 1"),
        (["--depth", "2", "--width", "6", "--heads", "4"], "must divide width 6"),
        (["--depth", "2", "--width", "4", "--heads", "5"], "at most width = 4"),
        (["--depth", "2", "--width", "4", "--tokens", "1"], "tokens: expected at least 2"),
        (["--depth", "2", "--width", "4", "--tokens", "5"], "5 is odd"),
        (["--depth", "2", "--width", "4", "--runs", "9"], "runs: expected 1 to 3"),
        (["--depth", "3", "--width", "8"], "graded, the largest"),
        (["--depth", "2", "--width", "4", "--device", "cuda:99"], "cannot be used here"),
        (["--depth", "2", "--width", "4", "--device", "meta"], "cannot be used here"),
        (["--depth", "two", "--width", "4"], "two"),
    ],
)
def test_bad_ranks_are_one_line(capsys, arguments, words):
    code, _, err = run(capsys, "rank", *arguments)
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1


def test_bounds(capsys):
    code, out, _ = run(capsys, "bounds", "--depth", "12", "--width", "768", "--heads", "12")
    assert code == 0
    assert "2075.00931" in out
    assert "241371.569" in out
    data = json.loads(run(capsys, "bounds", "--depth", "3", "--width", "64", "--json")[1])
    assert data["theorem_2"]["upper"] is None
    assert data["regime"] == "efficient"
    for arguments, words in (
        (["--depth", "2", "--width", "4", "--tokens", "7"], "odd"),
        (["--depth", "2", "--width", "4", "--cut", "2"], "needs tokens"),
    ):
        code, _, err = run(capsys, "bounds", *arguments)
        assert code == 2
        assert words in err


def test_bounds_with_residual_connections(capsys):
    plain = json.loads(run(capsys, "bounds", "--depth", "5", "--width", "64", "--json")[1])
    code, out, _ = run(capsys, "bounds", "--depth", "5", "--width", "64", "--residual")
    assert code == 0
    assert "L·log3 2 = 3.155" in out
    data = json.loads(run(capsys, "bounds", "--depth", "5", "--width", "64", "--residual", "--json")[1])
    for theorem in ("theorem_1", "theorem_2"):
        assert data[theorem]["upper"] - plain[theorem]["upper"] == pytest.approx(5 * 0.6309297535, rel=1e-6)
        assert data[theorem]["lower"] == plain[theorem]["lower"]
    assert data["gram_upper"] == plain["gram_upper"]
    assert data["residual"]


def test_check(capsys, tmp_path):
    path = tmp_path / "certificate.json"
    shape = ["--depth", "2", "--width", "4", "--heads", "2", "--residual"]
    assert run(capsys, "rank", *shape, "--out", str(path))[0] == 0
    code, out, err = run(capsys, "rank", "--check", str(path))
    assert (code, err) == (0, "")
    assert "at least 107" in out
    assert "2^-69 per attempt" in out
    assert "missed it with probability at most 1.0e-07" in out
    data = json.loads(run(capsys, "rank", "--check", str(path), "--json")[1])
    assert (data["rank"], data["gram_bound"], data["certain"]) == (107, 110, False)
    held = json.loads(path.read_text())
    for edit in ({"rank": 500}, {"gram_bound": 107}, {"rank": "110"}, {"rank": -5}, {"runs": []}):
        path.write_text(json.dumps({**held, **edit}))
        code, out, err = run(capsys, "rank", "--check", str(path))
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    for arguments, words in (
        (["--check", str(path), "--depth", "2"], "leave out --depth"),
        ([], "give --depth and --width, or --check FILE"),
        (["--check", str(tmp_path / "nowhere")], "cannot be read"),
    ):
        code, _, err = run(capsys, "rank", *arguments)
        assert code == 2
        assert words in err


def test_bounds_for_few_tokens(capsys):
    data = json.loads(run(capsys, "bounds", "--depth", "2", "--width", "4", "--tokens", "2", "--json")[1])
    assert data["theorem_2"]["certified"]
    assert 3 ** data["gram_upper"] == pytest.approx(70)


def test_room_is_light():
    heavy = {"torch", "numba", "scipy", "matplotlib", "tyro", "rich", "pydantic"}
    for code in (
        "import plait.depthwidth.planner as planner; planner.plan(1e9)",
        "import plait.depthwidth.rank as rank; rank.sep_rank_exact(2, 4); rank.best_bounds(3, 8)",
    ):
        script = f"import sys\n{code}\nprint(*sys.modules)"
        out = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        assert not heavy & {name.split(".")[0] for name in out.split()}, code
