"""Checks of backends, extras and data; each does a small piece of real work and has a remedy if it fails."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from plait.errors import PlaitError
from plait.provenance import version_of

__all__ = ["CHECKS", "Check", "examine"]

Status = Literal["works", "absent", "broken"]


@dataclass(frozen=True)
class Check:
    """Result of a check. `absent`: missing here (only torch is required); `broken`: present but failing."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


class _Absent(Exception):
    """Raised by a check whose subject is not installed; its arguments are the detail and the remedy."""


def examine(names: list[str] | None = None) -> list[Check]:
    """Run the checks in `names`, by default all. None of them raises an error or uses the network."""
    return [_run(name, *CHECKS[name]) for name in CHECKS if names is None or name in names]


def _run(name: str, check: Callable[[], str], remedy: str) -> Check:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # some libraries print a banner
            return Check(name, "works", check())
    except _Absent as error:
        return Check(name, "absent", *map(str, error.args))
    except ModuleNotFoundError as error:
        needs_torch = (
            error.name == "torch"
        )  # most checks import torch; without it the remedy is to install it
        return Check(name, "absent", _line(error), CHECKS["torch"][1] if needs_torch else remedy)
    except Exception as error:
        return Check(name, "broken", _line(error), remedy)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _torch() -> str:
    torch = importlib.import_module("torch")
    return f"{torch.__version__}, threads: {torch.get_num_threads()}"


def _compiled() -> str:
    """Compare the C++ scan with the reference; build it first unless a wheel shipped it or it is cached."""
    from plait.ops.scan import cpu_library

    try:
        origin = cpu_library.origin()
    except cpu_library.NoCompilerError as error:
        raise _Absent(str(error), CHECKS["C++ scan"][1]) from error
    _same_as_reference("cpu", "cpu")
    return f"{origin}; equals the reference with a bounded and with a full memory"


def _cuda() -> str:
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        torch.ones(2, device="cuda").sum().item()
        return f"{', '.join(names)}, CUDA {torch.version.cuda}; {_paths()}"
    if torch.version.cuda is None:
        raise _Absent(
            f"torch {torch.__version__} is built without CUDA",
            "on a machine with an NVIDIA GPU install torch's CUDA build; without one nothing is needed",
        )
    raise _Absent(
        f"torch is built for CUDA {torch.version.cuda} and finds no GPU",
        "check that nvidia-smi lists one and that CUDA_VISIBLE_DEVICES does not hide it",
    )


def _paths() -> str:
    """Return the kernels for a layer of 128 features on this GPU, and why preferred ones were skipped."""
    import torch

    from plait.ops.scan.backends import PREFERRED, missing

    choices = []
    for memory, scan, width in (("bounded", "attentive_scan", 20), ("full", "full_scan", None)):
        skipped = []
        for name in PREFERRED["cuda"]:
            reason = missing(name, "cuda", torch.float32, "lstm", width, 128, scan)
            if reason is None:
                break
            skipped.append(f"{name}: {reason}")
        else:
            name = "torch"
        why = f" ({'; '.join(skipped)})" if skipped else ""
        choices.append(f"a {memory} memory uses {name}{why}")
    return ", ".join(choices)


def _cluster() -> str:
    """Compare the cluster kernels with the reference; compile them first if they are not cached."""
    torch = importlib.import_module("torch")
    from plait.ops import cuda_program

    if reason := cuda_program.missing():
        raise _Absent(reason, CHECKS["Cluster kernels"][1])
    _same_as_reference("cluster", "cuda", 32)
    name = torch.cuda.get_device_name()
    return f"compiled by NVRTC {cuda_program.compiler_version()}, equals the reference on {name}"


def _triton() -> str:
    version = importlib.import_module("triton").__version__
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        _same_as_reference("triton", "cuda")
        return f"{version}, equals the reference on {torch.cuda.get_device_name()}"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return f"{version}, in the interpreter on the CPU: for tests, slow"
    raise _Absent(
        f"{version} is installed and there is no GPU for it",
        "nothing on a machine without a GPU; TRITON_INTERPRET=1 runs the kernels on the CPU, slowly",
    )


def _same_as_reference(backend: str, device: str, hidden: int = 16) -> None:
    """Compare a backend with the reference for a bounded and for a full memory, which run different scans."""
    import torch

    from plait.models import MemRNN, Recurrent, RelRNN

    def outputs(build: Callable[..., Recurrent], backend_name: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        model = build(3, hidden, backend=backend_name)
        for parameter in model.parameters():
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
        x = torch.randn(12, 2, 3, generator=generator)
        with torch.no_grad():
            output: torch.Tensor = model.to(device)(x.to(device))[0]
        return output.cpu()

    for name, build in (("bounded", partial(RelRNN, window=4, capacity=4)), ("full", MemRNN)):
        difference = (outputs(build, backend) - outputs(build, "reference")).abs().max().item()
        if not difference < 1e-3:
            raise PlaitError(f"with a {name} memory its outputs are {difference:.1e} from the reference's")


def _ray() -> str:
    return f"{importlib.import_module('ray').__version__}, imported; no cluster was started"


def _chromium() -> str:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise _Absent("no Chromium or Chrome is on the path", "apt-get install chromium")
    command = [browser, "--version"]
    version = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    importlib.import_module("playwright")
    return f"{version}, driven by playwright"


def _minigrid() -> str:
    return f"minigrid {_version('minigrid')}, gymnasium {_version('gymnasium')}"


def _popgym() -> str:
    importlib.import_module("popgym")
    return f"popgym {version_of('popgym')}"


def _envpool() -> str:
    return _version("envpool")


def _version(name: str) -> str:
    return str(importlib.import_module(name).__version__)


def _data(name: str) -> Callable[[], str]:
    def verify() -> str:
        from plait.lab.tasks import sources

        files = {"MNIST": sources.MNIST, "Penn Treebank": sources.TREEBANK}[name]
        paths = [sources.find(file) for file in files]
        if missing := [file for file, path in zip(files, paths, strict=True) if path is None]:
            raise _Absent(
                f"{len(missing)} of {len(files)} files are in neither $PLAIT_DATA nor the cache",
                f"downloaded on first use; offline, set PLAIT_DATA to a folder with {missing[0].folder}/",
            )
        folders = sorted({str(Path(path).parent) for path in paths if path is not None})
        return f"{len(files)} files verified in {', '.join(folders)}"

    return verify


# name -> (check, remedy if it fails)
CHECKS: dict[str, tuple[Callable[[], str], str]] = {
    "torch": (_torch, "install torch: https://pytorch.org/get-started/locally"),
    "C++ scan": (_compiled, "install g++ or clang++ (apt-get install g++) or set CXX; until then torch runs"),
    "CUDA": (_cuda, "install torch: https://pytorch.org/get-started/locally"),
    "Triton": (_triton, "pip install 'plait[kernels]' (Linux; a CUDA build of torch brings its own)"),
    "Cluster kernels": (
        _cluster,
        "nothing without a Hopper GPU, Triton runs there; with one: pip install cuda-bindings",
    ),
    "Ray": (_ray, "pip install 'plait[ray]'"),
    "Chromium": (_chromium, "pip install 'plait[browser]' and a Chromium of the system"),
    "MiniGrid": (_minigrid, "pip install 'plait[rl]'"),
    "POPGym": (_popgym, "pip install 'plait[rl]'"),
    "EnvPool": (_envpool, "pip install 'plait[envpool]'"),
    "MNIST": (_data("MNIST"), "delete the file that is named; it is fetched again"),
    "Penn Treebank": (_data("Penn Treebank"), "delete the file that is named; it is fetched again"),
}
