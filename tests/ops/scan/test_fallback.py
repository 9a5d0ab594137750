"""`backend="auto"` where a kernel fails only when it is to run: the next runs, and one warning says why."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import plait
from plait.errors import BackendError
from plait.ops.attentive_scan import cluster_choice, cluster_scan
from plait.ops.parity import Case, make_problem
from plait.ops.scan import PlainScan, Scan, backends, operator, record_backends

MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "attentive_scan": lambda **options: plait.RelLSTM(3, 9, **options),
    "full_scan": lambda **options: plait.MemRNN(3, 9, **options),
    "plain_scan": lambda **options: plait.Recurrent(
        [plait.SelfAttentive(plait.ElmanCell(3, 9, nonlinearity="modrelu"), plait.NoMemory(), **options)]
    ),
}
every_scan = pytest.mark.parametrize("of", MODELS)


@dataclass
class Failing:
    """A backend on a GPU whose kernels cannot be compiled, the forward or the backward ones."""

    of: str
    failing: str
    calls: list[str] = field(default_factory=list)

    def missing(self, *_: object) -> None:
        return None

    def forward(self, inputs: Any, scan: Any, need_trace: bool, save: bool) -> Any:
        self.called("forward")
        if inputs.hidden is None:  # where nothing came before, the cluster kernels are given no state
            hidden, cell_state, memory = operator._nothing_before(inputs.projected, scan)
            state = {"hidden": hidden, "cell_state": cell_state, **memory._asdict()}
            inputs = inputs._replace(**state)
        return backends.module_of("torch", self.of).forward(inputs, scan, need_trace, save)

    def backward(self, *given: Any) -> Any:
        self.called("backward")
        return backends.module_of("torch", self.of).backward(*given)

    def prepare_backward(self, inputs: Any, scan: Any) -> None:
        self.called("prepare_backward")

    def called(self, function: str) -> None:
        self.calls.append(function)
        if function == self.failing:
            raise BackendError("NVRTC could not compile it: no such luck")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Failing]]:
    """Puts a failing backend named "cluster" before the others, on a CPU that is taken for a GPU."""
    really = backends.module_of

    def put(of: str, function: str) -> Failing:
        module = Failing(of, function)
        chosen = lambda backend, of: module if backend == "cluster" else really(backend, of)  # noqa: E731
        for place in (backends, operator):
            monkeypatch.setattr(place, "module_of", chosen)
        monkeypatch.setattr(backends, "PREFERRED", {"cpu": ("cluster", "torch")})
        monkeypatch.setattr(operator, "_is_on_gpu", lambda tensor: True)
        return module

    monkeypatch.setattr(backends, "_ruled_out", {})
    for cached in (backends._resolved, backends._warn_once):
        cached.cache_clear()
    yield put
    for cached in (backends._resolved, backends._warn_once):
        cached.cache_clear()


def gradients(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(layer(x)[0].square().sum(), [*layer.parameters(), x]))


@every_scan
@pytest.mark.parametrize("function", ["forward", "prepare_backward"])
def test_auto_falls_back_to_the_next_backend(
    of: str, function: str, failing: Callable[[str, str], Failing]
) -> None:
    module = failing(of, function)
    layer, x = MODELS[of](), torch.randn(4, 2, 3, requires_grad=True)
    named = copy.deepcopy(layer)
    for part in named.modules():
        if hasattr(part, "backend"):
            part.backend = "torch"
    expected = gradients(named, x)
    warning = f"{of}: backend 'cluster' cannot run here: NVRTC could not compile it.*plain torch runs instead"
    with pytest.warns(UserWarning, match=warning) as caught, record_backends() as ran:
        found = gradients(layer, x)
    assert ran == ["torch"]
    assert len(caught) == 1
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    tried = list(module.calls)
    with warnings.catch_warnings(), record_backends() as ran:
        warnings.simplefilter("error")
        gradients(layer, torch.randn(6, 5, 3, requires_grad=True))
    assert ran == ["torch"]
    assert module.calls == tried  # it is not tried again


@every_scan
@pytest.mark.parametrize("function", ["forward", "prepare_backward"])
def test_a_name_never_falls_back(of: str, function: str, failing: Callable[[str, str], Failing]) -> None:
    failing(of, function)
    layer = MODELS[of](backend="cluster")
    for _ in range(2):
        with pytest.raises(BackendError, match="no such luck"):
            layer(torch.randn(4, 2, 3))


@every_scan
def test_other_sizes_and_types_are_tried(of: str, failing: Callable[[str, str], Failing]) -> None:
    """A kernel may be too large for a GPU at one size alone."""
    module = failing(of, "forward")
    with pytest.warns(UserWarning, match="no such luck"):
        MODELS[of]()(torch.randn(4, 2, 3))
    module.failing = ""
    with record_backends() as ran:
        MODELS[of]().double()(torch.randn(4, 2, 3).double())
    assert ran == ["cluster"]


def test_errors_unrelated_to_kernels_are_raised(failing: Callable[[str, str], Failing]) -> None:
    """A device out of memory is not a reason to run slower."""
    module = failing("attentive_scan", "")

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    module.forward = full  # type: ignore[method-assign,assignment]
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        MODELS["attentive_scan"]()(torch.randn(4, 2, 3))


@every_scan
def test_nothing_is_prepared_for_a_pass_that_will_not_come(
    of: str, failing: Callable[[str, str], Failing]
) -> None:
    module = failing(of, "prepare_backward")
    with torch.no_grad(), record_backends() as ran:
        MODELS[of]()(torch.randn(4, 2, 3))
    assert (ran, module.calls) == (["cluster"], ["forward"])


def test_each_gpu_is_chosen_for(failing: Callable[[str, str], Failing], monkeypatch: Any) -> None:
    """A machine may have a Hopper GPU and another, which is the current one."""
    asked: list[int | None] = []

    def old_gpu(device: int | None = None) -> str | None:
        asked.append(device)
        return None if device == 1 else "it needs a Hopper GPU"

    monkeypatch.setattr("plait.ops.cuda_program.missing", old_gpu)
    scan, like = Scan("elman", window=3, capacity=2), {"shape": (4, 2, 32), "dtype": torch.float32}
    chosen = [
        backends.choose_backend(SimpleNamespace(device=torch.device("cuda", n), **like), scan)  # type: ignore[arg-type]
        for n in (1, 0)
    ]
    assert chosen == ["cluster", "triton"]
    assert asked == [1, 0]


def test_a_gpu_with_room_for_small_clusters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a GPU may hold clusters of two blocks and none of eight, or not one of any kind."""
    room = {8: 0, 4: 0, 2: 3, 1: 7}
    for module in (cluster_choice, cluster_scan):
        monkeypatch.setattr(module, "clusters_that_fit", lambda cluster, _: room[cluster])
    cluster_scan.back_shape_for.cache_clear()
    scan, flags = Scan("lstm", window=10, capacity=10), (False, False, False)
    assert cluster_choice.choose("lstm", 128, 20, 10, 0).cluster == 2
    assert cluster_scan.back_shape_for(Scan("elman", 4, 4), 64, torch.float32, 3, flags, 0).cluster == 2
    with pytest.raises(BackendError, match="no cluster of 8 blocks fits this GPU"):
        cluster_choice.choose("lstm", 256, 20, 10, 0)
    with pytest.raises(BackendError, match="no cluster of blocks that can walk back"):
        cluster_scan.back_shape_for(scan, 256, torch.float32, 3, flags, 0)
    cluster_scan.back_shape_for.cache_clear()


class Kernel:
    """A Triton kernel whose compiler fails as `fails` says."""

    arg_names: tuple[str, ...] = ()
    __name__ = "walk"

    def __init__(self, fails: Exception | None) -> None:
        self.fails, self.launched = fails, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(**given: object) -> None:
            if self.fails:
                raise self.fails
            self.launched += 1

        return run


@pytest.fixture
def launching(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that launches Triton kernels, as on a GPU."""
    pytest.importorskip("triton", reason="triton is not installed: pip install 'plait[kernels]'")
    from plait.ops.scan import triton_launch

    monkeypatch.setattr(triton_launch, "interpreting", lambda: False)
    monkeypatch.setattr(triton_launch, "_tried", set())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return triton_launch


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("Failed to find C compiler.\nPlease set CC"), "Failed to find C compiler."),
        (ValueError(), "ValueError"),
    ],
)
def test_triton_that_cannot_compile_is_one_line(launching: Any, error: Exception, reason: str) -> None:
    with pytest.raises(BackendError) as caught:
        launching.launch(Kernel(error), (3,), {"T": 1})
    assert str(caught.value) == f"Triton could not compile or launch walk: {reason}"
    assert caught.value.__cause__ is error


def test_a_step_is_tried_once_for_each_kind_of_scan(launching: Any) -> None:
    scan = PlainScan("gru")
    inputs = make_problem(Case(scan, steps=5, rows=2, size=6, nudge=True)).inputs()
    steps: list[Any] = []
    for _ in range(2):
        launching.try_out(steps.append, inputs, scan)
    (step,) = steps
    assert step.projected.shape == (1, 2, 18)
    assert step.nudge.shape == (1, 2, 6)
    assert not step.projected.requires_grad
    launching.try_out(steps.append, inputs._replace(nudge=None), scan)
    assert len(steps) == 2

    def fails(_: object) -> None:
        raise BackendError("no such luck")

    for _ in range(2):  # what failed is tried again, where it is asked for by name
        with pytest.raises(BackendError, match="no such luck"):
            launching.try_out(fails, inputs, PlainScan("lstm"))
