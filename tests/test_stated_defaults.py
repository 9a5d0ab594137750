"""Defaults that docstrings and help state are those the code has.

A statement is a number, or a word before "if left out", in what is written of one argument, field or option.
It is compared with the signature; where that has None, with what `ELSEWHERE` looks up in the code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.lab.experiments import processes
from plait.lab.runs.kinds import kind_of
from plait.lab.tasks import CopyTask

SOURCE = Path(plait.__file__).parent
NUMBER = r"(-?\d[\d_,]*(?:\.\d+)?(?:e-?\d+)?)(?![\w.·]*[\w·])"
STATEMENTS = [
    rf"None(?: for|:| means) {NUMBER}",
    rf"defaults?(?: to| is|:)? {NUMBER}",
    rf"(?<!if )left out, {NUMBER}",
    rf"left out, [^.;,]*, {NUMBER} of a task",
    rf"{NUMBER} (?:unless said|by default)",
    r"[,;] (\w+) if left out",
    rf"\({NUMBER}\)\.?$",
]
MAYBE = re.compile(r"None(?: for|:| means)\s+-?\d|default\w*:?\s|left\s+out|unless\s+said|\(\d+\)\.?\s*\n")
UNKNOWN = object()


def learned(name: str) -> float:
    return float(getattr(plait.RelevancyMemory(relevance="learned"), name))


# What a None stands for, by file and argument: computed, so that another constant in the code shows here.
ELSEWHERE = {
    "noise": lambda: learned("exploration"),
    "usage": lambda: learned("usage_weight"),
    "checkpoint_every": lambda: kind_of({}).checkpoint_every,
    "device": lambda: kind_of({}).device,
    "hidden": lambda: _constant("lab/bench/layers.py", r"usual = \[(\d+)\] if quick"),
    "together": lambda: processes._TOGETHER_ON_A_GPU,
    "sequences": lambda: sum(len(b.inputs[0]) for b in CopyTask(1).sweep(None, 64, _generator, "cpu")),
    "output": lambda: re.search(
        r'output or Path\("(\w+)"\)', (SOURCE / "lab/commands/report.py").read_text()
    )[1],
    "starts": lambda: _constant("lab/tasks/environments/actions.py", r"starts or \[(\d+)\]"),
}


def _generator(index: int) -> Any:
    import torch

    return torch.Generator().manual_seed(index)


def _found(file: str, pattern: str) -> str:
    return re.search(pattern, (SOURCE / file).read_text())[1]


def _constant(file: str, pattern: str) -> int:
    return int(_found(file, pattern))


def stated(text: str) -> list[Any]:
    """Every default that a text states."""
    text = " ".join(text.split())
    found = [match[1] for pattern in STATEMENTS for match in re.finditer(pattern, text)]
    return [_plain(word) for word in dict.fromkeys(found)]


def _plain(word: str) -> Any:
    try:
        return float(word.replace(",", ""))
    except ValueError:
        return word


def arguments_of(docstring: str) -> Iterator[tuple[str, str]]:
    """What an `Args:` section says of each argument."""
    section = re.search(r"^Args:\n((?: +.*\n|\n)+)", inspect.cleandoc(docstring) + "\n", re.M)
    for entry in re.split(r"\n(?=    \w)", section[1]) if section else ():
        name, _, text = entry.strip().partition(":")
        yield name, text


def defaults_of(function: ast.FunctionDef) -> dict[str, Any]:
    spec = function.args
    named = [*spec.posonlyargs, *spec.args]
    pairs = zip(named[len(named) - len(spec.defaults) :], spec.defaults, strict=True)
    values = {one.arg: value for one, value in [*pairs, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]}
    return {name: _literal(value) for name, value in values.items() if value is not None}


def fields_of(cls: ast.ClassDef) -> dict[str, Any]:
    found = {
        part.target.id: _literal(part.value)
        for part in cls.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None
    }
    for part in cls.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            found |= defaults_of(part)
    return found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def documented(tree: ast.Module) -> Iterator[tuple[str, str, Any]]:
    """Argument or field, what is written of it, its default in the signature."""
    inside = list(tree.body)
    for node in inside:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        inside += node.body
        defaults = defaults_of(node) if isinstance(node, ast.FunctionDef) else fields_of(node)
        for name, text in arguments_of(ast.get_docstring(node) or ""):
            yield name, text, defaults.get(name, UNKNOWN)
        for part, after in zip(node.body, node.body[1:], strict=False):
            if not (isinstance(part, ast.AnnAssign) and isinstance(after, ast.Expr)):
                continue
            if isinstance(after.value, ast.Constant) and isinstance(part.target, ast.Name):
                yield part.target.id, str(after.value.value), defaults.get(part.target.id, UNKNOWN)


def everything() -> Iterator[tuple[str, str, str, Any]]:
    for path in sorted(SOURCE.rglob("*.py")):
        code = path.read_text()
        if not MAYBE.search(code):  # most files: parsing all of them takes seconds
            continue
        for name, text, default in documented(ast.parse(code)):
            yield path.relative_to(SOURCE).as_posix(), name, text, default


def test_what_is_stated_is_what_the_code_does():
    wrong, looked_up = [], set()
    for where, name, text, default in everything():
        for value in stated(text):
            actual = default
            if default in (None, UNKNOWN, "", ()):
                looked_up.add(name)
                actual = ELSEWHERE[name]() if name in ELSEWHERE else "nothing that this test knows of"
            if actual != value:
                wrong.append(f"{where}: {name} says {value}, and it is {actual}")
    assert not wrong, "\n".join(wrong)
    assert looked_up == set(ELSEWHERE), "a lookup that nothing needs, or a statement that is not seen"


def test_the_second_default_of_a_policy_is_stated_too():
    policy = kind_of({"task": {"name": "minigrid"}})
    text = (SOURCE / "lab/training/options.py").read_text()
    assert f"500 if left out, {policy.checkpoint_every} for a policy" in text
    assert f"auto if left out, {policy.device} for a policy" in text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("noise on it; None for 0.3.", [0.3]),
        ("so much. None: 1.", [1.0]),
        ("updates; 500 if left out, 10 for a policy", [500.0]),
        ("one of two; auto if left out", ["auto"]),
        ("sizes, by default 128, and 256 too", [128.0]),
        ("on a GPU for each (4).", [4.0]),
        ("0.3 unless said", [0.3]),
        ("how many; left out, all of a data set, 256 of a task that draws them.", [256.0]),
        ("None means 2·width, and (T, B) is its shape; 1 is usual, None for torch's.", []),
    ],
)
def test_statements_are_seen(text, found):
    assert stated(text) == found
