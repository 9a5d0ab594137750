"""A builder's options are the same to a reader, to Python and to a type checker."""

import inspect
import pydoc
import subprocess
import sys
from typing import get_type_hints

import pytest

import plait
from plait.models import MODELS, Transformer, keywords
from plait.models.keywords import WORDS

BUILDERS = {name: model for name, model in MODELS.items() if model is not Transformer}
# What stands in NamedModel's own signature and in torch's order, before the options.
TORCH = (
    "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
    "device", "dtype",
)  # fmt: skip


def typed(model):
    """The TypedDict whose options the class between a builder and NamedModel says to a type checker."""
    source = inspect.getsource(model.__mro__[1])
    return next(
        getattr(keywords, name)
        for name in keywords.__all__
        if f"**options: Unpack[{name}]," in source and f"**options: Unpack[{name}])" in source
    )


@pytest.mark.parametrize("name", BUILDERS)
def test_a_type_checker_sees_the_options_that_there_are(name):
    shown = inspect.signature(BUILDERS[name]).parameters
    assert tuple(shown)[:10] == TORCH
    assert set(get_type_hints(typed(BUILDERS[name]))) == set(shown) - set(TORCH)
    assert not [p for p in shown.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@pytest.mark.parametrize("name", MODELS)
def test_help_says_what_every_argument_is(name):
    model = MODELS[name]
    text = pydoc.render_doc(model, renderer=pydoc.plaintext)
    assert "options: " not in text.split("Method resolution order")[0]
    assert "__init__(self, input_size: 'int', hidden_size: 'int', num_layers: 'int' = 1, bias" in text
    for argument in inspect.signature(model).parameters:
        assert f"\n |      {argument}: " in text, argument


def test_words_are_of_options_that_there_are():
    known = {name for model in BUILDERS.values() for name in inspect.signature(model).parameters}
    assert set(WORDS) == known


def test_a_class_of_ones_own_keeps_its_signature():
    class Mine(plait.RelLSTM):
        """Mine."""

        def __init__(self, size):
            super().__init__(3, size, window=2)

    assert list(inspect.signature(Mine).parameters) == ["size"]
    assert Mine.__doc__ == "Mine."
    assert Mine(4).hidden_size == 4


@pytest.mark.slow
def test_mypy_finds_a_misspelt_option(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "import plait\nfrom torch import nn\n"
        "plait.RelLSTM(3, 4, window=5, capacity=5, forget_bias=1.0)\n"
        "plait.RelLSTM(3, 4, capcity=5)\n"
        "plait.LSTM(3, 4, window=5)\n"
        "plait.RelRNN.from_torch(nn.RNN(3, 4), windw=5)\n"
        "plait.SAB(3, 4, top_k='ten')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(script)], capture_output=True, text=True
    )
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in found] == ["4", "5", "6", "7"], done.stdout
    assert 'Unexpected keyword argument "capcity" for "RelLSTM"' in found[0]
