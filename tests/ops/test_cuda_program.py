"""Compiling, keeping and launching CUDA C++: against a driver that only takes notes, and on a GPU."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from plait.errors import BackendError
from plait.ops import cuda_program, kernel_cache
from plait.ops.attentive_scan import cluster_choice, cluster_scan
from plait.ops.full_scan import cluster_scan as full_cluster
from plait.ops.scan import FullScan, Scan


class Status(IntEnum):
    SUCCESS = 0
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_INVALID_HANDLE = 400
    NVRTC_ERROR_COMPILATION = 6


class Compiler:
    """NVRTC's calls as `cuda.bindings` has them; a source that says `broken` is refused."""

    def __init__(self) -> None:
        self.version, self.made, self.destroyed = (13, 0), [], 0

    def nvrtcVersion(self) -> tuple[Any, ...]:
        return (Status.SUCCESS, *self.version)

    def nvrtcCreateProgram(self, source: bytes, name: bytes, count: int, texts: Any, names: Any) -> Any:
        assert len(texts) == len(names) == count
        return (Status.SUCCESS, SimpleNamespace(source=source, names=names, log=b"", code=b""))

    def nvrtcCompileProgram(self, made: Any, count: int, flags: list[bytes]) -> tuple[Any]:
        assert len(flags) == count
        if b"broken" in made.source:
            made.log = b"toy.cu(3): warning: odd\ntoy.cu(7): error: no such luck\n1 error detected\0"
            return (Status.NVRTC_ERROR_COMPILATION,)
        self.made.append((made.source, tuple(flags)))
        made.code = b"\x7fELF" + made.source + b" ".join(flags)
        return (Status.SUCCESS,)

    def nvrtcGetProgramLogSize(self, made: Any) -> tuple[Any, int]:
        return (Status.SUCCESS, len(made.log))

    def nvrtcGetProgramLog(self, made: Any, log: bytearray) -> tuple[Any]:
        log[:] = made.log
        return (Status.SUCCESS,)

    def nvrtcGetCUBINSize(self, made: Any) -> tuple[Any, int]:
        return (Status.SUCCESS, len(made.code))

    def nvrtcGetCUBIN(self, made: Any, code: bytearray) -> tuple[Any]:
        code[:] = made.code
        return (Status.SUCCESS,)

    def nvrtcDestroyProgram(self, made: Any) -> tuple[Any]:
        self.destroyed += 1
        return (Status.SUCCESS,)


class Driver:
    """The driver's calls as `cuda.bindings` has them, on a machine with two devices. As the real one it looks
    at the calling thread's stack of contexts: without one it answers 201, and what was made in the context of
    one device is of no use in another's. It reads a launch's arguments as a kernel would, by value."""

    CUresult = Status
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4)
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared",
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED="cluster",
    )
    struct: ClassVar[type[ctypes.Structure]]

    def __init__(self) -> None:
        self.launched: list[Any] = []
        self.allowed: list[Any] = []
        self.retained: list[int] = []
        self.configurations = 0
        self.initialised = False
        self.of_thread = threading.local()
        self.refuses: Status | None = None

    @property
    def stack(self) -> list[str]:
        if not hasattr(self.of_thread, "contexts"):
            self.of_thread.contexts = []
        contexts: list[str] = self.of_thread.contexts
        return contexts

    def misplaced(self, handle: str) -> Status:
        """Success, if the current context is the one a handle was made in."""
        if not self.stack:
            return Status.CUDA_ERROR_INVALID_CONTEXT
        return Status.SUCCESS if handle.endswith(self.stack[-1]) else Status.CUDA_ERROR_INVALID_HANDLE

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def CUlaunchConfig(self) -> Any:
        self.configurations += 1
        return SimpleNamespace()

    def cuInit(self, flags: int) -> tuple[Any]:
        self.initialised = True
        return (Status.SUCCESS,)

    def cuDeviceGet(self, index: int) -> tuple[Any, int]:
        return (Status.SUCCESS if self.initialised else Status.CUDA_ERROR_NOT_INITIALIZED, 70 + index)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, str]:
        self.retained.append(device - 70)
        return (Status.SUCCESS, f"context {device - 70}")

    def cuCtxPushCurrent(self, context: str) -> tuple[Any]:
        self.stack.append(context)
        return (Status.SUCCESS,)

    def cuCtxSetCurrent(self, context: str) -> tuple[Any]:
        self.stack[-1:] = [context]
        return (Status.SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, str]:
        return (Status.SUCCESS, self.stack.pop())

    def cuLibraryLoadData(self, code: bytes, *_: object) -> tuple[Any, str]:
        return (Status.SUCCESS if self.stack else Status.CUDA_ERROR_INVALID_CONTEXT, "library")

    def cuLibraryGetKernel(self, library: str, name: bytes) -> tuple[Any, str]:
        return (Status.SUCCESS if self.stack else Status.CUDA_ERROR_INVALID_CONTEXT, name.decode())

    def cuKernelGetFunction(self, kernel: str) -> tuple[Any, str]:
        """A kernel's function belongs to the current context."""
        if not self.stack:
            return (Status.CUDA_ERROR_INVALID_CONTEXT, "")
        return (Status.SUCCESS, f"{kernel} in {self.stack[-1]}")

    def cuFuncSetAttribute(self, function: str, kind: str, value: int) -> tuple[Any]:
        self.allowed.append((kind, value))
        return (self.misplaced(function),)

    def cuOccupancyMaxActiveClusters(self, function: str, made: Any) -> tuple[Any, int]:
        return (self.misplaced(function), 132 // made.attrs[0].value.clusterDim.x)

    def cuLaunchKernelEx(self, made: Any, function: str, pointers: int, extra: int) -> tuple[Any]:
        if self.refuses or self.misplaced(function):
            return (self.refuses or self.misplaced(function),)
        address = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))[0]
        assert address is not None
        values = self.struct.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(self.struct)))
        cluster = made.attrs[0].value.clusterDim.x
        self.launched.append(
            (made.gridDimX, made.blockDimX, cluster, made.sharedMemBytes, made.hStream, values)
        )
        return (Status.SUCCESS,)


STRUCT, TEXT = cuda_program.parameter_struct(
    "Arguments", {"output": "float*", "steps": "int", "mix": "float"}
)
FLAGS = ("--gpu-architecture=sm_90a", "-DROWS=2")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    fake = Compiler()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(cuda_program, "_compiler", lambda: fake)
    return fake


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Torch's own calls of a launch are those of a fresh process on a machine with two devices: torch names
    the first as the current one, and no thread has a context yet."""
    fake = Driver()
    fake.struct = STRUCT  # type: ignore[misc]

    def no_question() -> bool:
        raise AssertionError("a question to a stream that is being captured ends the capture")

    monkeypatch.setattr(cuda_program, "_driver", lambda: fake)
    monkeypatch.setattr(cuda_program, "_context", cache(cuda_program.Context))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(query=no_question))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 100 + device, raising=False)
    yield fake
    # the thread is left as it was, or with the context of torch's current device
    assert fake.stack in ([], ["context 0"])


def kernel_of(device: int = 0) -> cuda_program.Kernel:
    return cuda_program.Program("toy", b"code", device).kernel("walk")


def in_a_thread(function: Callable[[], object]) -> None:
    """Runs in a thread that has met no device, and hands on what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


def test_a_program_is_compiled_once(compiler: Compiler, tmp_path: Path) -> None:
    first = cuda_program.compiled("toy", "source", [("a.h", TEXT)], FLAGS)
    assert cuda_program.compiled("toy", "source", [("a.h", TEXT)], FLAGS) == first
    assert compiler.made == [(b"source", tuple(flag.encode() for flag in FLAGS))]
    assert compiler.destroyed == 1
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


CHANGES: dict[str, tuple[Any, ...]] = {
    "source": ("other", [("a.h", TEXT)], FLAGS),
    "header": ("source", [("a.h", "")], FLAGS),
    "header's name": ("source", [("b.h", TEXT)], FLAGS),
    "flags": ("source", [("a.h", TEXT)], FLAGS[:1]),
    "architecture": ("source", [("a.h", TEXT)], ("--gpu-architecture=sm_100a", FLAGS[1])),
    "version": ("source", [("a.h", TEXT)], FLAGS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_that_trigger_compilation(compiler: Compiler, change: str) -> None:
    first = cuda_program.compiled("toy", "source", [("a.h", TEXT)], FLAGS)
    compiler.version = (13, 1) if change == "version" else compiler.version
    second = cuda_program.compiled("toy", *CHANGES[change])
    assert first.name.split(".")[0] != second.name.split(".")[0]
    assert len(compiler.made) == 2


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"\x7fELFsource?"])
def test_code_that_is_not_whole_is_compiled_again(compiler: Compiler, damage: bytes) -> None:
    path = cuda_program.compiled("toy", "source", [], FLAGS)
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert cuda_program.compiled("toy", "source", [], FLAGS).read_bytes() == whole
    assert len(compiler.made) == 2


def test_what_a_killed_build_left_is_removed(compiler: Compiler, tmp_path: Path) -> None:
    for name, age in (("killed", 24 * 3600), ("running", 60)):
        folder = tmp_path / f".plait_build_{name}"
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    cuda_program.compiled("toy", "source", [], FLAGS)
    assert [path.name for path in tmp_path.glob(".plait_build_*")] == [".plait_build_running"]


def test_a_refused_source_is_one_line_and_its_log_a_note(compiler: Compiler, tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        cuda_program.compiled("toy", "broken", [], FLAGS)
    assert str(caught.value) == "NVRTC could not compile toy: toy.cu(7): error: no such luck"
    assert caught.value.__notes__ == [
        "toy.cu(3): warning: odd\ntoy.cu(7): error: no such luck\n1 error detected"
    ]
    assert compiler.destroyed == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(BackendError, match=r"plait_toy_\w+\.cubin could not be built in .*disk full"):
        cuda_program.compiled("toy", "source", [], FLAGS)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_that_compile_at_once_leave_one_file(compiler: Compiler, tmp_path: Path) -> None:
    started = threading.Barrier(2)
    create = compiler.nvrtcCreateProgram

    def together(*arguments: Any) -> Any:
        started.wait(10)  # both have found the cache empty
        return create(*arguments)

    compiler.nvrtcCreateProgram = together  # type: ignore[method-assign]
    threads = [
        threading.Thread(target=cuda_program.compiled, args=("toy", "source", [], FLAGS)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiler.made) == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_a_launch_passes_the_struct_by_value(driver: Driver) -> None:
    kernel = kernel_of()
    arguments = STRUCT(0x1234, 7, 0.5)
    kernel.launch(20, 256, 4, 1024, arguments)
    arguments.steps = 8
    kernel.launch(20, 256, 4, 1024, arguments)
    kernel.launch(20, 256, 4, 1024, arguments, stream=55)
    *sizes, first = driver.launched[0]
    assert sizes == [20, 256, 4, 1024, 100]
    assert (first.output, first.steps, first.mix) == (0x1234, 7, 0.5)
    assert [values.steps for *_, values in driver.launched] == [7, 8, 8]
    assert [stream for *_, stream, _ in driver.launched] == [100, 100, 55]
    assert driver.configurations == 2  # one a stream: nothing that was prepared is prepared again
    assert driver.allowed == []


@pytest.mark.parametrize("device", [0, 1])
def test_every_call_of_a_fresh_process_has_the_devices_context(driver: Driver, device: int) -> None:
    """The first call of all is a question, not a launch; torch's current device is 0, whichever is meant."""
    kernel = kernel_of(device)
    assert kernel is not kernel_of(device)
    assert kernel.clusters_that_fit(384, 1, 116_225) == 132
    kernel.launch(16, 256, 16, 100_000, STRUCT())
    assert [stream for *_, stream, _ in driver.launched] == [100 + device]
    assert driver.retained == [device]


@pytest.mark.parametrize("device", [0, 1])
def test_a_question_from_a_new_thread(driver: Driver, device: int) -> None:
    """Autograd walks back on a thread of its own, whose first call of the driver may be any of these."""
    kernel = kernel_of(device)
    found: list[int] = []
    in_a_thread(lambda: found.append(kernel.clusters_that_fit(256, 2, 200_000)))
    in_a_thread(lambda: kernel.launch(1, 32, 16, 220_000, STRUCT()))
    in_a_thread(lambda: kernel_of(device).prepare(256, 2, 200_000))
    assert found == [66]


@pytest.mark.parametrize("device", [0, 1])
def test_a_launch_from_a_new_thread_leaves_the_context_of_torchs_current_device(
    driver: Driver, device: int
) -> None:
    """torch's matrix product that follows on autograd's thread would warn without one."""
    stacks: list[list[str]] = []
    in_a_thread(lambda: (kernel_of(device).launch(1, 32, 16, 1024, STRUCT()), stacks.append(driver.stack)))
    assert stacks == [["context 0"] if device == 0 else []]


def test_a_context_that_another_library_made_current_stays_the_threads_own(driver: Driver) -> None:
    driver.cuCtxPushCurrent("context 0")
    kernel_of(1).launch(8, 256, 16, 200_000, STRUCT())
    assert driver.stack.pop() == "context 0"
    assert [stream for *_, stream, _ in driver.launched] == [101]


def test_a_program_is_found_once(driver: Driver) -> None:
    loaded = cuda_program.Program("toy", b"code", 0)
    assert loaded.kernel("walk") is loaded.kernel("walk")


def test_a_driver_that_does_not_know_a_function_is_one_line(driver: Driver) -> None:
    def unknown(*_: object) -> Any:
        raise RuntimeError('Function "cuLibraryLoadData" not found')

    driver.cuLibraryLoadData = unknown  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="loading toy failed: the driver has no cuLibraryLoadData"):
        kernel_of()


def test_not_one_cluster_fits(driver: Driver) -> None:
    kernel = kernel_of()
    kernel.prepare(256, 8, 100_000)
    driver.cuOccupancyMaxActiveClusters = lambda *_: (Status.SUCCESS, 0)  # type: ignore[method-assign]
    with pytest.raises(
        BackendError, match="walk: not one cluster of 16 blocks of 256 threads and 100,000 by"
    ):
        kernel.prepare(256, 16, 100_000)
    assert driver.launched == []


def test_launches_kept_are_bounded(driver: Driver) -> None:
    kernel = kernel_of()
    for grid in range(1, 600):
        kernel.launch(grid, 256, 1, 0, STRUCT())
    assert len(kernel._configurations) <= 256


def test_attributes_beyond_the_defaults_are_set_once(driver: Driver) -> None:
    kernel = kernel_of()
    for shared in (48 * 1024, 200 * 1024, 100 * 1024, 227 * 1024):
        for stream in (1, 2):
            kernel.launch(8, 256, 8, shared, STRUCT(), stream)
    assert driver.allowed == [("shared", 200 * 1024), ("shared", 227 * 1024)]
    kernel.launch(16, 256, 16, 0, STRUCT())
    assert driver.allowed[-1] == ("cluster", 1)


def test_a_launch_on_another_device_and_from_a_new_thread(driver: Driver) -> None:
    kernel = kernel_of(1)
    kernel.launch(1, 32, 1, 0, STRUCT())
    in_a_thread(lambda: kernel.launch(1, 32, 1, 0, STRUCT()))
    assert [stream for *_, stream, _ in driver.launched] == [101, 101]


def test_a_refused_launch_is_one_line(driver: Driver) -> None:
    driver.refuses = Status.CUDA_ERROR_INVALID_VALUE
    message = "launching walk with 3 blocks of 32 threads, 2 a cluster failed: CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(BackendError, match=message):
        kernel_of().launch(3, 32, 2, 0, STRUCT())


def test_how_many_clusters_fit(driver: Driver) -> None:
    kernel = kernel_of(1)
    assert [kernel.clusters_that_fit(256, cluster, 200_000) for cluster in (2, 4, 2)] == [66, 33, 66]
    assert driver.configurations == 2


def test_what_a_walk_back_launches_is_ready_before_it(
    compiler: Compiler, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is called is a thread without a context, and a device that is not the current one."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132)
    )
    cached = (
        cuda_program.program,
        cluster_choice.clusters_that_fit,
        *(cluster_scan._prepared, cluster_scan.back_shape_for, cluster_scan._kernel),
        *(full_cluster._prepared, full_cluster._chosen, full_cluster._kernel),
    )
    for function in cached:
        function.cache_clear()

    def prepare() -> None:
        scan, flags = Scan("lstm", 10, 10), (True, True, False)
        cluster_scan._prepared(scan, 96, torch.float32, 37, flags, True, 37 * 333, 1)
        full_cluster._prepared(FullScan("gru"), 96, torch.bfloat16, 37, 1)

    in_a_thread(prepare)
    for function in cached:
        function.cache_clear()
    kernels = ("probe", "attentive_backward", "attentive_usage", "attentive_sums", "full_backward")
    sources = [source.decode() for source, _ in compiler.made]
    assert all(any(f" {kernel}(" in source for source in sources) for kernel in kernels)
    assert len({max(kernels, key=lambda kernel: f" {kernel}(" in source) for source in sources}) == len(
        kernels
    )
    assert driver.launched == []
    assert driver.retained == [1]


def test_a_struct_lies_as_c_lays_it() -> None:
    struct, text = cuda_program.parameter_struct(
        "S", {"a": "const int*", "b": "int", "c": "double", "d": "bool"}
    )
    assert [getattr(struct, name).offset for name in "abcd"] == [0, 8, 16, 24]
    assert ctypes.sizeof(struct) == 32
    assert text.splitlines()[1] == "  const int* a;"


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda_program.missing() == "it needs a CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Ampere")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    assert cuda_program.missing() == "it needs a Hopper GPU (compute capability 9.0), Ampere has 8.6"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (10, 0))
    assert "has 10.0" in (cuda_program.missing() or "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert cuda_program.architecture() == "sm_90a"

    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(cuda_program, "import_module", absent)
    cuda_program._compiler.cache_clear()
    assert cuda_program.missing() == (
        "cuda.bindings, which torch's CUDA builds bring, cannot be imported (No module named "
        "'cuda.bindings.nvrtc'); pip install cuda-bindings"
    )

    def no_library() -> Any:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nand much more')

    monkeypatch.setattr(cuda_program, "import_module", lambda _: SimpleNamespace(nvrtcVersion=no_library))
    assert cuda_program.missing() == 'NVRTC cannot be loaded (Failure finding "libnvrtc.so.13")'
    cuda_program._compiler.cache_clear()
    cuda_program._driver.cache_clear()


RING = """
#include "arguments.h"
extern "C" __global__ void ring(const __grid_constant__ Arguments a) {
  extern __shared__ float mine[];
  unsigned rank, there, at = (unsigned)__cvta_generic_to_shared(mine + threadIdx.x);
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  mine[threadIdx.x] = a.mix * (blockIdx.x * blockDim.x + threadIdx.x) + a.steps;
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"((rank + 1) % CLUSTER));
  float found;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(there) : "memory");
  a.output[blockIdx.x * blockDim.x + threadIdx.x] = found;
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
"""


def _ring(cluster: int) -> cuda_program.Kernel:
    return cuda_program.program("ring", RING, (("arguments.h", TEXT),), (("CLUSTER", cluster),)).kernel(
        "ring"
    )


def _handed_on(blocks: int, cluster: int, steps: int) -> torch.Tensor:
    """What each thread reads from the block after its own."""
    values = 0.5 * torch.arange(blocks * 64, dtype=torch.float32).view(-1, cluster, 64) + steps
    return values.roll(-1, 1).flatten()


@pytest.mark.gpu
@pytest.mark.parametrize(("cluster", "shared"), [(2, 256), (8, 200_000), (16, 256)])
def test_blocks_of_a_cluster_read_each_other(cluster: int, shared: int) -> None:
    kernel, output = _ring(cluster), torch.zeros(32 * 64, device="cuda")
    kernel.launch(32, 64, cluster, shared, STRUCT(output.data_ptr(), 3, 0.5))
    torch.testing.assert_close(output.cpu(), _handed_on(32, cluster, 3), rtol=0, atol=0)
    assert kernel.clusters_that_fit(64, cluster, shared) >= 1


@pytest.mark.gpu
def test_in_a_graph_and_from_a_thread() -> None:
    kernel, output = _ring(4), torch.zeros(32 * 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.launch(32, 64, 4, 256, STRUCT(output.data_ptr(), 3, 0.5))
    assert not output.any()  # captured, not run
    graph.replay()
    torch.testing.assert_close(output.cpu(), _handed_on(32, 4, 3), rtol=0, atol=0)
    thread = threading.Thread(target=kernel.launch, args=(32, 64, 4, 256, STRUCT(output.data_ptr(), 5, 0.5)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    torch.testing.assert_close(output.cpu(), _handed_on(32, 4, 5), rtol=0, atol=0)
