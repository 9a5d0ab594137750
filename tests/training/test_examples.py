"""The examples in the docstrings of these two rooms are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import plait.tasks
import plait.training

MODULES = [
    module.name
    for room in (plait.tasks, plait.training)
    for module in pkgutil.iter_modules(room.__path__, room.__name__ + ".")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
