"""A named model's options are the same to a reader, to Python and to a type checker."""

import inspect
import pydoc
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import plait
from plait.models import MODELS, NamedModel, Transformer

RECURRENT = {name: model for name, model in MODELS.items() if model is not Transformer}
SHARED = (
    "input_size",
    "hidden_size",
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
    "device",
    "dtype",
    "initialiser",
    "mix",
    "truncate",
    "backend",
)


def arguments(model):
    """Return the descriptions of a class's arguments, by name and in their order."""
    section = re.search(r"^Args:\n((?: +.*\n)+)", inspect.getdoc(model) + "\n", re.M)[1]
    entries = (" ".join(entry.split()) for entry in re.split(r"\n(?=    \w)", section))
    return dict(entry.split(": ", 1) for entry in entries)


@pytest.mark.parametrize("name", MODELS)
def test_every_argument_is_in_the_signature_and_described_in_its_order(name):
    parameters = inspect.signature(MODELS[name]).parameters
    assert list(arguments(MODELS[name])) == list(parameters)
    assert not [p for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    text = pydoc.render_doc(MODELS[name], renderer=pydoc.plaintext)
    assert "__init__(self, input_size: 'int', hidden_size: 'int', num_layers: 'int' = 1, bias" in text


def test_an_argument_of_several_models_is_the_same_in_all():
    texts, kinds = {}, {}
    for model in RECURRENT.values():
        assert set(SHARED) <= set(arguments(model))
        for argument, text in arguments(model).items():
            texts.setdefault(argument, set()).add(text)
        for argument, parameter in inspect.signature(model).parameters.items():
            kinds.setdefault(argument, set()).add((parameter.kind, parameter.annotation))
    assert not {argument: found for argument, found in texts.items() if len(found) > 1}
    assert not {argument: found for argument, found in kinds.items() if len(found) > 1}


@pytest.mark.parametrize("name", RECURRENT)
def test_every_option_reaches_the_model(name):
    other = {
        "num_layers": 2,
        "bias": False,
        "dropout": 0.5,
        "bidirectional": True,
        "initialiser": "cayley",
        "mix": 0.25,
        "truncate": 7,
        "nonlinearity": "relu",
        "forget_bias": 2.0,
        "window": 3,
        "capacity": 2,
        "relevance": "learned",
        "noise": 0.5,
        "usage": 0.25,
        "grad_limit": 3.0,
        "every": 4,
        "top_k": 6,
    }
    parameters = inspect.signature(RECURRENT[name]).parameters
    defaults = {option: p.default for option, p in parameters.items() if option in other}
    plain = RECURRENT[name](3, 4).options()
    # options that are stored only where they are set
    unset = {k for k, v in defaults.items() if v is None or v is False or v == "earned"} - {"truncate"}
    assert {k: plain[k] for k in plain if k != "hidden_size"} == {
        k: v for k, v in defaults.items() if k not in unset
    }
    for option in defaults:
        context = {"relevance": "learned"} if option in ("noise", "usage") else {}
        assert RECURRENT[name](3, 4, **context, **{option: other[option]}).options()[option] == other[option]
    if "chrono" in parameters:
        assert RECURRENT[name](3, 4, chrono=9).options()["chrono"] == 9
    device = "cpu" if RECURRENT[name].orthogonal else "meta"  # an orthogonal matrix needs values
    model = RECURRENT[name](3, 4, batch_first=True, device=device, dtype=torch.float64, backend="reference")
    assert (model.batch_first, model.layers[0].backend) == (True, "reference")
    assert {(w.device.type, w.dtype) for w in model.parameters()} == {(device, torch.float64)}


def test_names_are_those_of_the_classes():
    assert all(name == model.__name__.lower() for name, model in MODELS.items())
    assert all(issubclass(model, NamedModel) for model in RECURRENT.values())


def test_a_misspelt_option_is_refused():
    with pytest.raises(TypeError, match=r"RelLSTM.*'capcity'"):
        plait.RelLSTM(3, 4, capcity=5)
    with pytest.raises(TypeError, match=r"RelRNN.*'windw'"):
        plait.RelRNN.from_torch(nn.RNN(3, 4), windw=5)


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
        "plait.RelRNN.from_torch(nn.RNN(3, 4), window=5).layers\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(script)], capture_output=True, text=True
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5", "6", "7"], done.stdout
    assert 'Unexpected keyword argument "capcity" for "RelLSTM"' in errors[0]
