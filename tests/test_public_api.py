"""`import plait` is light, and its public surface is the one written down here."""

import subprocess
import sys

import pytest
import torch

import plait
from plait.ops.scan.backends import _resolve

SURFACE = (
    "ElmanCell",
    "ExpRNN",
    "FullMemory",
    "GORU",
    "GRU",
    "GRUCell",
    "LSTM",
    "LSTMCell",
    "MemLSTM",
    "MemRNN",
    "NoMemory",
    "OrthRNN",
    "RNN",
    "Recurrent",
    "RelGRU",
    "RelLSTM",
    "RelRNN",
    "RelevancyMemory",
    "SAB",
    "SelfAttentive",
    "State",
    "TopKMemory",
    "Trace",
    "Transformer",
    "UniLSTM",
    "UniRNN",
    "UniformMemory",
    "WindowMemory",
    "__version__",
    "evaluate_policy",
    "fit",
    "fit_policy",
    "load",
    "predict",
)
ROOMS = (
    "cells",
    "depthwidth",
    "errors",
    "gradients",
    "hf",
    "integrations",
    "lab",
    "memory",
    "models",
    "ops",
)

OPTIONAL = (
    "matplotlib",
    "triton",
    "numba",
    "scipy",
    "tensorboard",
    "ray",
    "gymnasium",
    "pydantic",
    "rich",
    "tyro",
    "jinja2",
    "safetensors",
    "transformers",
)


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"  # what the code prints is not asked
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {part for name in out.stderr.split() for part in (name, name.split(".")[0])}


def test_import_loads_nothing_optional():
    assert not loaded_after("import plait") & {*OPTIONAL, "torch"}


def test_the_layers_need_torch_and_numpy_alone():
    loaded = loaded_after("import plait; plait.RelLSTM(3, 4)")
    # torch itself may import triton where it is installed
    assert "torch" in loaded
    assert not loaded & ({*OPTIONAL} - {"triton"})
    # torch.compile's own machinery takes longer to import than torch does
    assert not loaded & {"torch._dynamo", "torch._inductor", "sympy"}


def test_the_mark_that_spares_importing_the_compiler_is_the_one_the_compiler_sets():
    @torch.compiler.assume_constant_result
    def marked(): ...

    assert vars(_resolve) == vars(marked) != {}


def test_the_public_surface_is_this():
    """What users import: a name that goes, or comes, is a decision and is written down here."""
    assert sorted(plait.__all__) == sorted(SURFACE)
    for name in SURFACE:
        assert getattr(plait, name).__name__ == name if name != "__version__" else plait.__version__
    assert sorted(dir(plait)) == sorted({*SURFACE, *ROOMS})
    for room in ROOMS:
        assert getattr(plait, room).__name__ == f"plait.{room}"
    with pytest.raises(AttributeError, match="has no attribute 'RelRN'"):
        plait.RelRN  # noqa: B018


def test_help_loads_nothing_but_itself():
    loaded = loaded_after("from plait.lab.cli import main; main(['--help'])")
    assert not loaded & {*OPTIONAL, "torch", "numpy"}


def test_listing_runs_loads_no_torch(small_fit, tmp_path):
    small_fit(tmp_path / "run", updates=1)
    listed = f"from plait.lab.cli import main; assert main(['runs', {str(tmp_path)!r}]) == 0"
    assert not loaded_after(listed) & ({*OPTIONAL, "torch"} - {"tyro"})
