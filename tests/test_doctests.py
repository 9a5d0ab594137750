"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import plait

# Modules that cannot be imported everywhere (a GPU kernel file needs triton).
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(plait.__path__, "plait.") if not m.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    result = doctest.testmod(
        module,
        extraglobs={"torch": torch},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert result.failed == 0
