"""The mutants that are drawn, which blocks a test enters, and a small project from end to end."""

import ast
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.mutants import __main__ as command, cover, draw
from tests.mutants.copied import Ended
from tests.mutants.workers import Queue, side_by_side

ROOT = Path(__file__).parent.parent.parent


def changed(text, kind=None):
    """Return the source after each mutant, in the parser's spelling."""
    drawn = [one for one in draw.mutants("m.py", text) if kind in (None, one.kind)]
    return {ast.unparse(ast.parse(one.apply(text.encode()))) for one in drawn}


MUTATED = [
    ("a = b < c", "comparison", {"a = b <= c", "a = b >= c"}),
    ("a = b == c", "comparison", {"a = b != c"}),
    ("a = b not in c", "comparison", {"a = b in c"}),
    (
        "a = 0 < b <= c",
        "comparison",
        {"a = 0 <= b <= c", "a = 0 >= b <= c", "a = 0 < b < c", "a = 0 < b > c"},
    ),
    ("a = 2 * (b + c)", "operator", {"a = 2 / (b + c)", "a = 2 * (b - c)"}),
    ("a = b ** -c", "operator", {"a = b * -c"}),
    ("a = b and c", "and/or", {"a = b or c"}),
    ("a = not b", "sign or not removed", {"a = b"}),
    ("a = -b ** 2", "sign or not removed", {"a = b ** 2"}),
    ("a = 7", "number", {"a = 8", "a = 6"}),
    ("a = 0", "number", {"a = 1"}),
    ("a = 0.5", "number", {"a = 0.75"}),
    ("a = True", "constant", {"a = False"}),
    ("a = b if c else d", "branches swapped", {"a = d if c else b"}),
    ("a = f(b, c, d)", "arguments swapped", {"a = f(c, b, d)", "a = f(b, d, c)"}),
    ("a = f(*b, c)", "arguments swapped", set()),
    ("a = f(b, c=1, **d)", "keyword removed", {"a = f(b, **d)"}),
    ("a = max(b, key=c)", "min/max, any/all", {"a = min(b, key=c)"}),
    ("if b:\n    a = c", "condition negated", {"if not b:\n    a = c"}),
    ("if b:\n    raise E(f'{c + 1}')", "statement removed", {"if b:\n    pass"}),
    (
        "a.b = c\nd += e\nf(g)\nh = i",
        "statement removed",
        {"pass\nd += e\nf(g)\nh = i", "a.b = c\npass\nf(g)\nh = i", "a.b = c\nd += e\npass\nh = i"},
    ),
    (
        "def f(a, b=3):\n    return a",
        "number",
        {"def f(a, b=4):\n    return a", "def f(a, b=2):\n    return a"},
    ),
    (
        "a = [b + c for b in d if b > e]",
        None,
        {f"a = [b {c} for b in d if b {e}]" for c, e in (("- c", "> e"), ("+ c", ">= e"), ("+ c", "<= e"))},
    ),
    ('é = "é" if b < c else d', "comparison", {"é = 'é' if b <= c else d", "é = 'é' if b >= c else d"}),
]


@pytest.mark.parametrize(("text", "kind", "expected"), MUTATED, ids=[f"{m[1]}: {m[0][:20]}" for m in MUTATED])
def test_mutants_of_a_line(text, kind, expected):
    assert changed(text, kind) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"""A module with 3 words."""',
        '__all__ = ["f"] + g',
        "a: Annotated[int, 3]",
        "@cache(3)\nclass A:\n    pass",
        "@triton.jit\ndef f(a):\n    return a + 1",
        "if TYPE_CHECKING:\n    from a import b",
        "a = f'{b + 1:>3}'",
        "a = 'b' + c",
        "def f(a: Array[3]) -> Array[3]:\n    return a",
        "import a, b",
    ],
)
def test_text_annotations_and_kernels_are_left_alone(text):
    assert changed(text) == set()


def test_a_message_is_left_alone_but_not_what_raises_it():
    assert changed("raise E('expected 3, got ' + str(a + 1))") == {"pass"}
    assert changed("warn('3' * 2, stacklevel=2)") == set()


PROGRAM = '''"""Text."""
from __future__ import annotations
LIMIT = 3
def sign(x, most=LIMIT + 1):
    """Text."""
    if x < 0:
        return -1
    for _ in range(2):
        x = x * 1
    return 1
class A:
    def b(self):
        return [sign(c) for c in (1, 2)]
def loop(x):
    return x + 1
quick = compiled(loop)
'''


def test_blocks_are_what_runs_together():
    blocks = {mutant.line: mutant.block for mutant in draw.mutants("m.py", PROGRAM)}
    assert blocks == {3: 0, 4: 6, 6: 6, 7: 7, 8: 8, 9: 9, 10: 8, 13: 13, 15: 0}


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("sign(-1)", {6, 7}),
        ("sign(1)", {6, 8, 9}),
        ("A().b()", {6, 8, 9, 13}),
        ("A()", set()),
        ("quick(1)", set()),
    ],
)
def test_entered_blocks_are_recorded(monkeypatch, call, lines):
    recorder = types.ModuleType("_plait_cover")
    exec(cover.RECORDER, recorder.__dict__)
    recorder.main = os.getpid()
    monkeypatch.setitem(sys.modules, "_plait_cover", recorder)
    names: dict = {"compiled": lambda loop: loop}
    numbers = cover.number_blocks({"a.py": "def f():\n    pass\n", "m.py": PROGRAM})["m.py"]
    exec(cover.instrument(PROGRAM, numbers), names)
    exec(call, names)
    assert {line for line, number in numbers.items() if number in recorder.seen} == lines


def covered(room="sums"):
    file = f"src/plait/{room}/m.py"
    numbers = cover.number_blocks({file: PROGRAM})[file]
    records = [
        {"test": name}
        if passed is None
        else {"test": name, "passed": passed, "seconds": seconds, "blocks": [numbers[line] for line in lines]}
        for name, passed, seconds, lines in (
            ("tests/far/test_o.py::a", True, 0.01, (6, 7)),
            ("tests/sums/test_o.py::b", True, 0.01, (6, 7)),
            ("tests/sums/test_m.py::c[0]", True, 0.01, (6, 7)),
            ("tests/sums/test_m.py::c[1]", True, 0.02, (6, 7)),
            ("tests/sums/test_m.py::dear", True, 20.0, (6, 7)),
            ("tests/sums/test_m.py::c[2]", None, 0.0, ()),
            ("tests/sums/test_m.py::fails", False, 0.0, (6, 7, 8)),
        )
    ]
    return cover.Cover({file: PROGRAM}, records)


def test_the_nearest_and_cheapest_come_first_and_further_cases_last():
    every = covered()
    mutant = next(one for one in draw.mutants("src/plait/sums/m.py", PROGRAM) if one.line == 7)
    assert [name.partition("::")[2] for name in every.tests_of(mutant)] == [
        "c[0]",
        "b",
        "a",
        "dear",
        "c[2]",
        "c[1]",
    ]


def test_a_seed_draws_the_same_mutants_of_executed_lines():
    every = covered()
    six = command.chosen(every, 3, 6, [""])
    assert six[:2] == command.chosen(every, 3, 2, [""])
    assert {one.line for one in six} <= {3, 4, 6, 7, 15}  # no test that passes enters the rest
    assert any(command.chosen(every, seed, 6, [""]) != six for seed in range(4, 8))
    assert command.chosen(every, 3, 6, ["other"]) == []


@pytest.mark.parametrize(
    ("status", "events", "result"),
    [
        (0, [["began", "a"]], {"result": "survived"}),
        (5, [], {"result": "survived"}),
        (1, [["began", "a"], ["failed", "a"]], {"result": "killed", "by": "a"}),
        (4, [], {"result": "killed", "by": "import", "how": "text"}),
        (-11, [["began", "a"]], {"result": "killed", "by": "a", "how": "text"}),
        (-24, [["began", "a"]], {"result": "timeout", "by": "a"}),
        (None, [["began", "a"]], {"result": "timeout", "by": "a"}),
    ],
)
def test_how_a_run_is_judged(status, events, result):
    assert command._judged(Ended(status, 1.0, "text"), events) == result


def test_a_mutant_without_results_has_no_verdict():
    with pytest.raises(RuntimeError, match="exit code 70"):
        command._judged(Ended(70, 1.0, "text"), [])


SMALL = {
    "src/plait/__init__.py": "",
    "src/plait/lab/cli.py": "",
    "src/plait/sums.py": "def double(x):\n    return 2 * x\n"
    "def half(x):\n    return x / 2\n"
    "def never(x):\n    return x + 1\n"
    "def mean(x):\n    return sum(x) / len(x)\n",
    "tests/test_sums.py": "import os, subprocess, sys\nfrom plait import sums\n"
    "def test_double():\n    assert sums.double(3) == 6\n"
    "def test_half():\n    code = 'from plait import sums; sums.half(1)'\n"
    "    subprocess.run([sys.executable, '-c', code], check=True)\n"
    "def test_mean():\n    assert sums.mean([3, 3]) == 3\n",
    "pytest.ini": "[pytest]\naddopts = --import-mode=importlib\nmarkers = slow\n",
}
RUN = """
import sys
from pathlib import Path
from tests.mutants import __main__ as command, copied, cover
copied.ROOT = command.ROOT = cover.ROOT = Path(sys.argv.pop(1))
copied.LIBRARIES = "pytest"
sys.exit(command.main())
"""


def test_a_project_from_end_to_end(tmp_path):
    project, work = tmp_path / "project", tmp_path / "work"
    for name, text in SMALL.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "tests" / "fuzz").mkdir()
    (project / "tests" / "fuzz" / "forked.py").write_text((ROOT / "tests" / "fuzz" / "forked.py").read_text())
    subprocess.run(["git", "init", "-q", str(project)], check=True)

    # pytest's plugins take a second to import, each time; none is needed here.
    alone = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def run(mutants, seconds=1, together=1):
        words = ["--seed", "1", "--mutants", str(mutants), "--seconds", str(seconds), "--work", str(work)]
        words += ["--together", str(together)]
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(project), *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=alone,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    out = run(9, together=2)
    log = (work / "mutants-1.jsonl").read_text()
    assert "3 in mutants-1.jsonl already" in run(9)
    assert (work / "mutants-1.jsonl").read_text() == log
    results = {line["line"]: line["result"] for line in map(json.loads, log.splitlines())}
    assert results[2] == "killed"
    assert results[4] == "survived"  # seen to be executed in a process of its own, where nothing is asserted
    assert results.keys() == {2, 4, 8}
    assert results[8] == "killed"
    assert "src/plait/sums.py:4" in out
    assert "2 in mutants-1.jsonl already" in run(9, seconds=2)  # what survived is tried on more tests
    assert (project / "src/plait/sums.py").read_text() == SMALL["src/plait/sums.py"]


def test_workers_share_a_list_and_one_that_fails_is_named(tmp_path):
    waiting = Queue(range(40))

    def work(worker):
        for number in waiting:
            (tmp_path / f"{number}-{worker}").touch(exist_ok=False)

    side_by_side(3, work)
    assert sorted(int(path.name.partition("-")[0]) for path in tmp_path.iterdir()) == [*range(40)]
    with pytest.raises(RuntimeError, match=r"workers \[1\] of 2"):
        side_by_side(2, lambda worker: sys.exit(worker))


@pytest.mark.parametrize(
    ("status", "events", "expected"),
    [
        (0, [["began", "a.py::b"]], False),
        (1, [["began", "a.py::b"], ["failed", "a.py::b"]], True),
        (70, [], True),
    ],
)
def test_tests_that_fail_without_a_mutant_give_no_verdict(monkeypatch, status, events, expected):
    monkeypatch.setattr(command, "_pytest", lambda copied, names, seconds: (Ended(status, 1.0, ""), events))
    lines = []
    assert command._red_anyway(None, {"a.py::b", "import"}, lines.append) is expected
    assert bool(lines) is expected
