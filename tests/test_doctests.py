"""Every example in a docstring runs."""

import contextlib
import doctest
import importlib
import io
import pkgutil

import torch

import plait

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(plait.__path__, "plait.") if not m.name.endswith("__main__")
)


def failed_examples(module):
    """Return the report of a module's failed examples, empty if all pass, and the number of examples."""
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = doctest.testmod(
            module,
            extraglobs={"torch": torch},
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
        )
    return report.getvalue() if result.failed else "", result.attempted


def test_docstring_examples():
    failures, examples = [], 0
    for name in MODULES:
        try:
            report, attempted = failed_examples(importlib.import_module(name))
        except Exception as error:
            report, attempted = f"{name} cannot be imported: {error!r}", 0
        failures += [report] if report else []
        examples += attempted
    assert not failures, "\n".join(failures)
    assert examples > 400
