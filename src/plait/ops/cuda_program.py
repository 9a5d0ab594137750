"""CUDA C++ compiled on first use by NVRTC, cached, and launched through the driver.

NVRTC and the driver come through `cuda.bindings`, which torch's CUDA builds install, so nvcc is not needed.
The result is machine code for one architecture; its file name holds a hash of the sources, the options, the
architecture and NVRTC's version. A launch takes one struct of arguments by value and reuses everything it
prepared before, so its host overhead is a few microseconds, in a CUDA graph and from any thread as well.
Every call of the driver makes the device's context current (`Context`), on whichever thread it runs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from plait.errors import BackendError
from plait.ops.kernel_cache import kept, key_of

__all__ = [
    "Kernel",
    "Program",
    "architecture",
    "compiled",
    "compiler_version",
    "missing",
    "parameter_struct",
    "program",
]

_OPTIONS = ("--std=c++17", "--relocatable-device-code=false")
_C_TYPES = {
    "int": ctypes.c_int32,
    "long long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}
_PORTABLE_CLUSTER = 8  # larger clusters need the non-portable attribute
_PLAIN_SHARED = 48 * 1024  # bytes of dynamic shared memory a block has without an attribute
_LAUNCHES_KEPT = 256
_Pointer = ctypes.c_void_p * 1


def missing(device: int | None = None) -> str | None:
    """Return why no program with clusters can run on a device (default: the current one), None if one can."""
    if not torch.cuda.is_available():
        return "it needs a CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability[0] != 9:  # newer GPUs have clusters too, but are untested
        actual = f"{torch.cuda.get_device_name(device)} has {capability[0]}.{capability[1]}"
        return f"it needs a Hopper GPU (compute capability 9.0), {actual}"
    try:
        _compiler()
        _driver()
    except BackendError as error:
        return str(error)
    return None


def compiler_version() -> str:
    """Return NVRTC's version, such as 13.0; `BackendError` if there is no NVRTC."""
    return ".".join(map(str, _version(_compiler())))


def architecture(device: int | None = None) -> str:
    """Return the name of a device's architecture with its own features: sm_90a for a Hopper GPU."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + "a" * (major >= 9)


def parameter_struct(name: str, fields: Mapping[str, str]) -> tuple[type[ctypes.Structure], str]:
    r"""Return a kernel's argument struct and its CUDA C++ source, from one list of names and C types.

    >>> Arguments, text = parameter_struct("Arguments", {"output": "float*", "steps": "int"})
    >>> text
    'struct Arguments {\n  float* output;\n  int steps;\n};\n'
    >>> Arguments(None, 7).steps
    7
    """
    kinds = [
        (field, ctypes.c_void_p if kind.endswith("*") else _C_TYPES[kind]) for field, kind in fields.items()
    ]
    text = "".join(f"  {kind} {field};\n" for field, kind in fields.items())
    return type(name, (ctypes.Structure,), {"_fields_": kinds}), f"struct {name} {{\n{text}}};\n"


class Context:
    """A device's primary context, which is torch's; all calls of the driver go through it.

    The driver works on the calling thread's current context, and a thread need not have one: torch makes it
    current with the first operation that needs it, separately on each thread (autograd has its own). Setting
    torch's device does not do so if the device stays the same. So every call here makes the context current
    itself.
    """

    def __init__(self, device: int) -> None:
        self.driver = _driver()
        _checked("initialising the driver", self.driver, "cuInit", 0)
        handle = _checked(f"looking up device {device}", self.driver, "cuDeviceGet", device)
        # retained for the life of the process, as torch does; no call here queries a stream, which would end
        # a capture
        retained = f"retaining the context of device {device}"
        self._context = _checked(retained, self.driver, "cuDevicePrimaryCtxRetain", handle)

    def __enter__(self) -> None:
        _checked("making torch's context current", self.driver, "cuCtxPushCurrent", self._context)

    def __exit__(self, *_: object) -> None:
        _checked("restoring the thread's context", self.driver, "cuCtxPopCurrent")

    def make_current(self) -> None:
        """Make the context the calling thread's own, as torch's first operation in a thread does.

        Without one, the thread's first matrix product would warn.
        """
        _checked("making torch's context current", self.driver, "cuCtxSetCurrent", self._context)

    def call(self, doing: str, function: str, *arguments: Any) -> Any:
        """Return a driver function's results besides its status; `BackendError` if that is not success."""
        with self:
            return _checked(doing, self.driver, function, *arguments)


@cache
def _context(device: int) -> Context:
    return Context(device)


class Program:
    """Compiled code, loaded on one device; `kernel` looks up a function declared `extern "C"`."""

    def __init__(self, name: str, code: bytes, device: int) -> None:
        self._name, self._device, self._context = name, device, _context(device)
        self._kernels: dict[str, Kernel] = {}
        none: tuple[Any, ...] = (None, None, 0)
        # never unloaded: a captured graph may still launch its code
        self._library = self._context.call(f"loading {name}", "cuLibraryLoadData", code, *none, *none)

    def kernel(self, name: str) -> Kernel:
        """Return the function of this name."""
        if name not in self._kernels:
            doing, call = f"finding {name} in {self._name}", self._context.call
            handle = call(doing, "cuLibraryGetKernel", self._library, name.encode())
            function = call(doing, "cuKernelGetFunction", handle)
            self._kernels.setdefault(name, Kernel(name, function, self._device))
        return self._kernels[name]


class Kernel:
    """A function on a device; grids, blocks and clusters are one-dimensional."""

    def __init__(self, name: str, function: Any, device: int) -> None:
        self.name, self.device = name, device
        self._function, self._context = function, _context(device)
        self._launch = self._context.driver.cuLaunchKernelEx
        self._no_context = self._context.driver.CUresult.CUDA_ERROR_INVALID_CONTEXT
        self._configurations: dict[tuple[int, int, int, int, int], Any] = {}
        self._fitting: dict[tuple[int, int, int], int] = {}
        self._shared_allowed, self._lock = _PLAIN_SHARED, threading.Lock()

    def launch(
        self,
        grid: int,
        block: int,
        cluster: int,
        shared_bytes: int,
        arguments: ctypes.Structure,
        stream: int | None = None,
    ) -> None:
        """Run `grid` blocks of `block` threads in clusters of `cluster` blocks, on torch's stream by default.

        `arguments` are copied before this returns; `shared_bytes` of dynamic shared memory are allocated per
        block.
        """
        if stream is None:
            stream = torch._C._cuda_getCurrentRawStream(self.device)
        at = (grid, block, cluster, shared_bytes, stream)
        configuration = self._configurations.get(at) or self._configured(at)
        pointer = _Pointer(ctypes.addressof(arguments))
        result = self._no_context
        # Making the context current costs as much as a launch, so it is skipped where torch has already done
        # it: in a thread that has used this device, while it is torch's current device.
        if torch._C._cuda_getDevice() == self.device:
            (result,) = self._launch(configuration, self._function, ctypes.addressof(pointer), 0)
            if result == self._no_context:
                self._context.make_current()
                (result,) = self._launch(configuration, self._function, ctypes.addressof(pointer), 0)
        if result == self._no_context:
            with self._context:
                (result,) = self._launch(configuration, self._function, ctypes.addressof(pointer), 0)
        if result:
            _done(
                (result,), f"launching {self.name} with {grid} blocks of {block} threads, {cluster} a cluster"
            )

    def clusters_that_fit(self, block: int, cluster: int, shared_bytes: int) -> int:
        """Return the number of clusters that run on the device at a time; 0 if not one fits."""
        at = (block, cluster, shared_bytes)
        if at not in self._fitting:
            doing, configuration = (
                f"counting the clusters of {self.name} that fit",
                self._configured((cluster, *at, 0)),
            )
            count = self._context.call(doing, "cuOccupancyMaxActiveClusters", self._function, configuration)
            self._fitting[at] = int(count)
        return self._fitting[at]

    def prepare(self, block: int, cluster: int, shared_bytes: int) -> None:
        """Prepare a launch without launching; `BackendError` if the device cannot hold one cluster."""
        if not self.clusters_that_fit(block, cluster, shared_bytes):
            raise BackendError(
                f"{self.name}: not one cluster of {cluster} blocks of {block} threads and {shared_bytes:,} "
                "bytes of shared memory fits this GPU"
            )

    def _configured(self, at: tuple[int, int, int, int, int]) -> Any:
        """Return the driver's launch configuration; it is immutable, so threads may share it."""
        grid, block, cluster, shared_bytes, stream = at
        driver = self._context.driver
        with self._lock:
            self._allow(cluster, shared_bytes)
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x = cluster
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
            config.sharedMemBytes, config.hStream = shared_bytes, stream
            config.attrs, config.numAttrs = [attribute], 1
            if len(self._configurations) >= _LAUNCHES_KEPT:
                self._configurations = {}
            self._configurations[at] = config
            return config

    def _allow(self, cluster: int, shared_bytes: int) -> None:
        """Set the attributes for more shared memory and larger clusters than the default."""
        kinds = self._context.driver.CUfunction_attribute
        if shared_bytes > self._shared_allowed:
            kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = f"giving {self.name} {shared_bytes} bytes of shared memory"
            self._context.call(doing, "cuFuncSetAttribute", self._function, kind, shared_bytes)
            self._shared_allowed = shared_bytes
        if cluster > _PORTABLE_CLUSTER:
            kind = kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            doing = f"giving {self.name} clusters of {cluster} blocks"
            self._context.call(doing, "cuFuncSetAttribute", self._function, kind, 1)


@cache
def program(
    name: str,
    source: str,
    headers: tuple[tuple[str, str], ...] = (),
    defines: tuple[tuple[str, int | float | str], ...] = (),
    options: tuple[str, ...] = (),
    device: int | None = None,
) -> Program:
    """Return `source` compiled and loaded on a device (default: the current one), shared by all callers.

    `headers` maps the names it includes to their text; `defines` become -D; `options` are NVRTC's. A failure
    is a `BackendError` of one line; the compiler's whole log is its note, which `--debug` shows.
    """
    index = torch.cuda.current_device() if device is None else device
    flags = (*_OPTIONS, f"--gpu-architecture={architecture(index)}", *options)
    flags = (*flags, *(f"-D{key}={value}" for key, value in defines))
    return Program(name, compiled(name, source, headers, flags).read_bytes(), index)


def compiled(name: str, source: str, headers: Iterable[tuple[str, str]], flags: tuple[str, ...]) -> Path:
    """Return the path of the machine code, from the cache if it is there."""
    compiler, headers = _compiler(), tuple(headers)
    parts = (source, *(part for header in headers for part in header), *flags, compiler_version())

    def build(path: Path) -> None:
        path.write_bytes(_compile(compiler, name, source, headers, flags))

    return kept(f"plait_{name}_{key_of(parts)}", ".cubin", build)


def _compile(
    nvrtc: Any, name: str, source: str, headers: tuple[tuple[str, str], ...], flags: tuple[str, ...]
) -> bytes:
    doing = f"compiling {name}"
    texts, names = [text.encode() for _, text in headers], [header.encode() for header, _ in headers]
    handle = _done(
        nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), len(texts), texts, names), doing
    )
    try:
        (result,) = nvrtc.nvrtcCompileProgram(handle, len(flags), [flag.encode() for flag in flags])
        if result:
            log = bytearray(_done(nvrtc.nvrtcGetProgramLogSize(handle), doing))
            _done(nvrtc.nvrtcGetProgramLog(handle, log), doing)
            raise _refused(name, log.decode(errors="replace").strip("\0 \n"), result)
        code = bytearray(_done(nvrtc.nvrtcGetCUBINSize(handle), doing))
        _done(nvrtc.nvrtcGetCUBIN(handle, code), doing)
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _refused(name: str, log: str, result: Any) -> BackendError:
    lines = [line for line in log.splitlines() if "error" in line] or log.splitlines()[:1] or [result.name]
    error = BackendError(f"NVRTC could not compile {name}: {lines[0].strip()}")
    error.add_note(log)
    return error


@cache
def _compiler() -> Any:
    """Return NVRTC's bindings; `BackendError` if the library cannot be loaded."""
    nvrtc = _bindings("nvrtc")
    try:
        _version(nvrtc)
    except RuntimeError as error:  # the library itself is loaded on the first call
        raise BackendError(f"NVRTC cannot be loaded ({str(error).splitlines()[0]})") from error
    return nvrtc


def _version(nvrtc: Any) -> tuple[int, int]:
    result, *version = nvrtc.nvrtcVersion()
    if result:
        raise BackendError(f"NVRTC does not say its version ({result.name})")
    return (version[0], version[1])


@cache
def _driver() -> Any:
    return _bindings("driver")


def _bindings(part: str) -> Any:
    try:
        return import_module(f"cuda.bindings.{part}")
    except ImportError as error:
        raise BackendError(
            f"cuda.bindings, which torch's CUDA builds bring, cannot be imported ({error}); "
            "pip install cuda-bindings"
        ) from error


def _done(answer: tuple[Any, ...], doing: str) -> Any:
    """Return a call's results besides its status; `BackendError` if that is not success."""
    status, *values = answer
    if status:
        raise BackendError(f"{doing} failed: {status.name}")
    return values[0] if values else None


def _checked(doing: str, driver: Any, function: str, *arguments: Any) -> Any:
    """Call a function of the driver; the caller has made a context current."""
    try:
        answer = getattr(driver, function)(*arguments)
    except (AttributeError, RuntimeError) as error:  # raised by the bindings where the driver is too old
        reason = str(error).splitlines()[0]
        raise BackendError(f"{doing} failed: the driver has no {function} ({reason})") from error
    return _done(answer, doing)
