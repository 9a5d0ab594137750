"""The field's words instead of paraphrases: how docstrings begin, and words that are no names."""

import ast
import itertools
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "plait"
# "Whether the mask is dense": start a function with its verb, a class with its noun.
RELATIVE = re.compile(r"(What|Who|Whoever|Whether|Which|How|The same|Of)\b")
# Participles and pronouns as names: `found` does not name the thing that was found.
VAGUE = {"said", "told", "asked", "found", "held", "made", "given", "one", "place"}


def documented(tree):
    """Yield every module, class, function and field of a file that has a docstring, with it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node, text
        if isinstance(node, ast.ClassDef):
            for field, text in itertools.pairwise(node.body):
                match field, text:
                    case ast.AnnAssign(), ast.Expr(ast.Constant(str(words))):
                        yield field, words


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
    return lines + [(line, name) for line, name in names_bound(tree) if name.strip("_") in VAGUE]


def test_every_room_speaks_the_fields_language():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 300
    problems = {str(path.relative_to(SOURCE)): violations(path.read_text(encoding="utf-8")) for path in files}
    assert not {path: lines for path, lines in problems.items() if lines}


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """What f returns."""',
        'class C:\n    """Whoever calls."""',
        '"""The same without a GPU."""',
        'class C:\n    dense: bool\n    """Whether the mask is dense."""',
        'def f(asked):\n    """Return it."""',
        "found = 1",
        "self._told = 1",
        "for made in range(3):\n    pass",
        "key = [one.key for one in rows]",
    ],
)
def test_the_rules_can_fail(source):
    assert violations(source)


def test_plain_sentences_pass():
    assert not violations('def f(runs):\n    """Return the runs that were found: what is on disk."""')
