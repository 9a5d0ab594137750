"""`import plait` is light, and every public name resolves."""

import subprocess
import sys
import time

import plait

OPTIONAL = (
    "matplotlib", "triton", "numba", "scipy", "tensorboard", "ray", "gymnasium", "pydantic", "rich", "tyro",
    "jinja2", "safetensors", "transformers",
)  # fmt: skip


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"  # what the code prints is not asked
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in out.stderr.split()}


def test_import_loads_nothing_optional():
    assert not loaded_after("import plait") & {*OPTIONAL, "torch"}


def test_the_layers_need_torch_and_numpy_alone():
    loaded = loaded_after("import plait; plait.RelLSTM(3, 4)")
    # torch itself may import triton where it is installed
    assert "torch" in loaded
    assert not loaded & ({*OPTIONAL} - {"triton"})


def test_every_public_name_resolves():
    for name in plait.__all__:
        assert getattr(plait, name) is not None
    assert set(plait.__all__) <= set(dir(plait))


def test_help_is_quick_and_loads_no_torch():
    script = "import sys; from plait.cli import main; main(['--help']); print(*sys.modules)"
    best = min(_timed(script) for _ in range(3))
    assert best < 0.3
    assert "torch" not in loaded_after("from plait.cli import main; main(['--help'])")


def _timed(script: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return time.perf_counter() - start
