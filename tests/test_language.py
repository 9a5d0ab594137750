"""The field's words instead of paraphrases: how docstrings begin, and words that are no names."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "plait"
# Rooms whose language has been revised, and files that begin with it; the others follow one by one.
REVISED = [
    "cells",
    "depthwidth",
    "lab/caches",
    "lab/cli",
    "lab/commands",
    "lab/doctor",
    "lab/experiments",
    "lab/figures",
    "gradients",
    "hf",
    "memory",
    "ops/bounded_attention",
    "ops/lifetimes",
    "ops/plain_scan",
    "lab/report",
    "lab/runs",
    "lab/tasks",
    "lab/training",
]
# "Whether the mask is dense": start a function with its verb, a class with its noun.
RELATIVE = re.compile(r"(What|Who|Whoever|Whether|Which|How|The same|Of)\b")
# Participles as names: `found` says nothing of what was found.
PARTICIPLES = {"said", "told", "asked", "found", "held", "made", "given"}


def revised_files():
    assert all((SOURCE / room).is_dir() for room in REVISED)
    return sorted(path for room in REVISED for path in (SOURCE / room).rglob("*.py"))


def documented(tree):
    """Yield every module, class and function of a file that has a docstring, with it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def names_bound(tree):
    """Yield every name that a file gives to a variable, argument, function, class or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def violations(source):
    """Return what a file's text does against the rules, by line."""
    tree = ast.parse(source)
    lines = [
        (getattr(node, "lineno", 1), text.splitlines()[0])
        for node, text in documented(tree)
        if RELATIVE.match(text)
    ]
    return lines + [(line, name) for line, name in names_bound(tree) if name.strip("_") in PARTICIPLES]


def test_revised_rooms_speak_the_fields_language():
    problems = {str(path.relative_to(SOURCE)): violations(path.read_text()) for path in revised_files()}
    assert not {path: lines for path, lines in problems.items() if lines}


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """What f returns."""',
        'class C:\n    """Whoever calls."""',
        '"""The same without a GPU."""',
        'def f(asked):\n    """Return it."""',
        "found = 1",
        "self._told = 1",
        "for made in range(3):\n    pass",
    ],
)
def test_the_rules_can_fail(source):
    assert violations(source)


def test_plain_sentences_pass():
    assert not violations('def f(runs):\n    """Return the runs that were found: what is on disk."""')
