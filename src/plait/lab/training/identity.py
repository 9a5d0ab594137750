"""Identity of a network made in Python as plain data that distinguishes any two, or the reason why it cannot.

Equal descriptions mean equal computations, whatever the weights are. A description does not depend on the
process or the machine: it holds no address, file path or device, and no order of a dict or a set.
"""

from __future__ import annotations

import copyreg
import enum
import math
import os
import types
import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from plait.lab.training.digests import array_text, canonical, digest, short, shortened, tensor_text
from plait.lab.training.module_state import (
    constant_buffers,
    fixed_modes,
    is_instrument,
    no_options,
    special_weights,
    value_at_start,
)
from plait.lab.training.source_code import (
    UnclearError,
    functions_of,
    globals_of,
    is_own,
    is_own_function,
    made_with,
    name_of,
    text_of,
    unwrapped,
)

__all__ = ["described_class", "described_code", "described_module"]

_DEEPEST = 16
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_WEIGHT_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_ORDERED = (nn.ModuleDict, nn.ParameterDict, nn.Sequential)  # modules that apply their children in order


def described_module(network: nn.Module) -> dict[str, Any]:
    """Return the parts of a network by path, their source code, and the properties of its weights.

    If something cannot be described, `unidentified` says why, with a random mark that no other run has.
    """
    return _guarded(_Describer(network).network, network)


def described_class(thing: object) -> dict[str, Any]:
    """Return the source code of an object's class; empty for a class of an installed distribution."""
    describer = _Describer()

    def code() -> dict[str, Any]:
        describer.type_name(type(thing))
        return {"sources": describer.sources} if describer.sources else {}

    return _guarded(code)


def described_code(thing: Any) -> dict[str, Any]:
    """Return the source of a function or class and of all it reads; empty for an installed distribution's."""
    describer = _Describer()

    def code() -> dict[str, Any]:
        name = getattr(thing, "__name__", "it")
        entry = describer.value(thing, name)
        if bound := {key: value for key, value in entry.items() if key not in ("function", "type")}:
            describer.enter(f"{name} is made with", digest(canonical(bound).encode()))
        return {"sources": describer.sources} if describer.sources else {}

    return _guarded(code)


def _guarded(describe: Any, *arguments: Any) -> dict[str, Any]:
    try:
        identity: dict[str, Any] = describe(*arguments)
        return identity
    except Exception as error:  # a user's object may raise anything; the run is possible all the same
        why = str(error) if isinstance(error, UnclearError) else f"it cannot be described ({error!r:.200})"
        return {"unidentified": {"why": why, "mark": os.urandom(8).hex()}}


class _Describer:
    """One traversal of a network; `sources` collects the code it reaches, by import path."""

    def __init__(self, network: nn.Module | None = None) -> None:
        self.sources: dict[str, Any] = {}
        self.known_code: set[int] = set()
        self.where: list[str] = []
        self.open: list[int] = []  # ids of the objects under description, to detect cycles
        self.paths: dict[int, dict[str, str]] = {}
        if network is not None:
            self.paths = {id(weight): {"weight": name} for name, weight in network.named_parameters()}
            self.paths |= {id(module): {"module": name} for name, module in network.named_modules()}

    def network(self, network: nn.Module) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for path, module in network.named_modules(remove_duplicate=False):
            self.where = [path] if path else []
            first = self.paths[id(module)]
            parts[path] = self.module(module) if first["module"] == path else first
        self.where = []
        special = {**special_weights(network), **fixed_modes(network)}
        return {"parts": parts, "sources": self.sources, **special}

    def module(self, module: nn.Module) -> dict[str, Any]:
        """Return a module's class and attributes; its submodules have entries of their own."""
        kind = type_before_parametrizations(module)
        entry: dict[str, Any] = {"class": self.type_name(kind)}
        if kind.__module__.startswith("torch._dynamo"):  # torch.compile does not change what is computed
            return entry
        left_out = no_options(module)
        entry |= self.attributes(kind, {k: v for k, v in vars(module).items() if k not in left_out})
        for name, buffer in constant_buffers(module).items():
            began = value_at_start(module, name, buffer)
            entry[name] = self.value(buffer, name) if began is None else {"tensor": began}
        for name in _HOOKS:
            self.hooks(entry, name.strip("_"), getattr(module, name))
        for name, weight in module._parameters.items():
            for kind_of_hook in _WEIGHT_HOOKS if weight is not None else ():
                key = f"{name}.{kind_of_hook.strip('_')}"
                self.hooks(entry, key, getattr(weight, kind_of_hook, None) or {})
        if isinstance(module, _ORDERED):
            entry["order"] = [*module._modules, *module._parameters]
        return entry

    def hooks(self, entry: dict[str, Any], name: str, hooks: Mapping[int, Any]) -> None:
        """Add hooks that may change what is computed to the entry of their module."""
        if others := [hook for hook in hooks.values() if not is_instrument(hook)]:
            entry[name] = self.value(others, name)

    def attributes(self, kind: type, values: dict[str, Any]) -> dict[str, Any]:
        """Return described attributes by name, without cached properties."""
        names = [n for n in values if not isinstance(getattr(kind, n, None), cached_property)]
        return {str(name): self.value(values[name], str(name)) for name in sorted(names, key=str)}

    def value(self, value: Any, name: str) -> Any:
        """Return a value as plain data; `name` identifies it in errors."""
        self.where.append(name)
        if id(value) in self.open:
            plain: Any = {"again": len(self.open) - self.open.index(id(value))}
        elif len(self.open) > _DEEPEST:
            raise self.unclear("is nested too deep")
        else:
            self.open.append(id(value))
            plain = self.plain(value)
            self.open.pop()
        self.where.pop()
        return plain

    def plain(self, value: Any) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            value = value.item()
        kind = type(value)
        if value is None or kind in (bool, int):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is str:
            return value if len(value) <= 200 else {"text": digest(value.encode())}
        if kind in (complex, bytes, bytearray, range):
            return {kind.__name__: shortened(str(value))}
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if isinstance(value, torch.device):
            return {"device": "any"}  # the device does not change what is computed
        if id(value) in self.paths:
            return self.paths[id(value)]
        if isinstance(value, Tensor):
            return {"tensor": self.numbers(value)}
        if kind is np.ndarray and value.dtype.kind in "biufcUS":
            return {"array": array_text(value)}
        if kind is slice:
            value = (value.start, value.stop, value.step)
        if isinstance(value, weakref.ref):
            value = [value()]
        if isinstance(value, torch.Size) or type(value) in (list, tuple):
            return short([self.value(item, str(index)) for index, item in enumerate(value)])
        if kind in (set, frozenset):
            return {"set": short(sorted((self.value(item, "element") for item in value), key=canonical))}
        if kind is dict:
            return {"dict": self.pairs(value.items())}
        if isinstance(value, enum.Enum):
            return {"enum": f"{self.type_name(kind)}.{value.name}", "value": self.value(value.value, "value")}
        if isinstance(value, nn.Module):
            inside = {
                n: self.value(child, n) for n, child in [*value._modules.items(), *value._parameters.items()]
            }
            # no parent's train() or eval() reaches it
            return {**self.module(value), "training": value.training, "inside": inside}
        if isinstance(value, type):
            return {"type": self.type_name(value)}
        if isinstance(value, types.ModuleType):
            return {"import": self.import_name(value)}
        return self.callable(value) if callable(value) else self.object(value)

    def callable(self, value: Any) -> Any:
        value = unwrapped(value)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.MethodType):
            self.function(unwrapped(value.__func__))
            return {"method": value.__func__.__qualname__, "of": self.value(value.__self__, "method of")}
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            if is_own(value.__module__):
                raise self.unclear("is compiled, and its source cannot be read")
            if owner is None or isinstance(owner, type | types.ModuleType):
                return {"function": f"{value.__module__ or 'torch'}.{value.__qualname__}"}
            return {"method": value.__qualname__, "of": self.value(owner, "method of")}
        if isinstance(value, partial):
            return {
                "partial": self.value(value.func, "function"),
                "arguments": self.value(value.args, "arguments"),
                "options": self.value(value.keywords, "options"),
            }
        return self.object(value)

    def function(self, function: Any) -> dict[str, Any]:
        """Return a function's name, defaults and attributes; add its code to the sources."""
        if not isinstance(function, types.FunctionType):
            return {"function": self.value(function, "function")}
        name = name_of(function)
        if name.endswith("<lambda>"):
            raise self.unclear("is a lambda; use a function that has a name")
        if set(function.__code__.co_freevars) - {"__class__"}:
            raise self.unclear("is a closure; use a function of its module, or an object with __call__")
        entry: dict[str, Any] = {"function": name}
        if is_own_function(function):
            self.code(function, name)
            options = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
            options["attributes"] = {k: v for k, v in vars(function).items() if k != "__wrapped__"} or None
            entry |= {k: self.value(v, k) for k, v in options.items() if v}
        return entry

    def object(self, value: Any) -> dict[str, Any]:
        """Return an object's class and state, as pickle would save them."""
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:
            raise self.unclear(f"is a {type(value).__name__}, whose state cannot be described") from None
        if isinstance(reduced, str):
            if is_own(getattr(value, "__module__", None)):
                raise self.unclear("is compiled, and its source cannot be read")
            return {"global": f"{self.type_name(type(value))} {reduced}"}
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        entry: dict[str, Any] = {"class": self.type_name(type(value))}
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            arguments = arguments[1:]
        else:
            entry["made by"] = self.value(make, "__reduce__")
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = {**(state[0] or {}), **state[1]}  # __dict__ and __slots__
        if isinstance(state, dict):
            entry |= self.attributes(type(value), state)
        elif state is not None:
            entry["state"] = self.value(state, "state")
        if arguments:
            entry["arguments"] = self.value(tuple(arguments), "arguments")
        for name, part in (("items", items), ("pairs", pairs)):
            content = [] if part is None else [*part]
            if content:
                entry[name] = self.value(content, name)
        return entry

    def type_name(self, kind: type) -> str:
        """Return the import path of a class; add user code, also of its bases, to the sources."""
        for base in kind.__mro__:
            if is_own(base.__module__):
                self.own_class(base)
            elif base is not object:
                self.patched(base)
        return name_of(kind)

    def own_class(self, kind: type) -> None:
        if id(kind) in self.known_code:
            return
        self.known_code.add(id(kind))
        inside, values = [], {}
        for name, value in vars(kind).items():
            functions = functions_of(value)
            written = [f for f in functions if f.__code__.co_qualname.startswith(f"{kind.__qualname__}.")]
            inside += written
            is_magic = name.startswith("__") and not any(map(is_own_function, functions))
            if written or is_magic or _is_generated(kind, functions) or name == "_abc_impl":
                continue
            if issubclass(kind, enum.Enum) and name.startswith("_"):
                continue
            if not isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType):
                values[name] = functions[0] if functions else value
        texts = sorted({text_of(function, kind.__name__) for function in inside})
        values |= {f"{f.__name__} is made with": bound for f in inside if any(bound := made_with(f))}
        described = self.attributes(object, values)
        bases = [name_of(base) for base in kind.__mro__[1:]]
        self.enter(name_of(kind), digest(canonical([texts, described, bases]).encode()))
        for function in inside:
            self.read_globals(function)

    def patched(self, kind: type) -> None:
        """Add methods with which a user has replaced those of an installed class to the sources."""
        if id(kind) in self.known_code:
            return
        self.known_code.add(id(kind))
        for name, value in vars(kind).items():
            for function in functions_of(value):
                if is_own_function(function):
                    replaced = self.value(function, f"{kind.__name__}.{name}")
                    self.enter(f"{name_of(kind)}.{name}", replaced)

    def code(self, function: types.FunctionType, name: str) -> None:
        if id(function.__code__) in self.known_code:
            return
        self.known_code.add(id(function.__code__))
        self.enter(name, digest(text_of(function).encode()))
        self.read_globals(function)

    def read_globals(self, function: types.FunctionType) -> None:
        for name, value in globals_of(function):
            home = (
                value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            )
            is_code = isinstance(
                value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType
            )
            if is_code and not is_own(home):
                continue
            if id(value) in self.known_code or type(value).__module__ in ("logging", "typing"):
                continue
            described = self.value(value, f"the global {name.rpartition('.')[2]}")
            if not is_code:
                self.enter(name, described)

    def import_name(self, module: types.ModuleType) -> str:
        """Return a module's name; add the text of a user's module to the sources."""
        if is_own(module.__name__):
            try:
                with open(str(module.__file__), "rb") as file:
                    self.enter(module.__name__, digest(file.read()))
            except OSError:
                raise self.unclear(f"is the module {module.__name__}, which has no source") from None
        return module.__name__

    def enter(self, name: str, value: Any) -> None:
        """Add an entry to the sources; two classes of one name, possible in a notebook, are numbered."""
        number = 2
        key = name = name.replace("__mp_main__", "__main__")
        while key in self.sources and self.sources[key] != value:
            key, number = f"{name} ({number})", number + 1
        self.sources[key] = value

    def pairs(self, items: Iterable[tuple[Any, Any]]) -> Any:
        entries = [(k, self.value(v, str(k)[:40])) for k, v in items]
        if all(type(key) is str for key, _ in entries):
            return dict(sorted(entries))
        return sorted(([self.value(key, "key"), plain] for key, plain in entries), key=canonical)

    def numbers(self, tensor: Tensor) -> str:
        try:
            return tensor_text(tensor)
        except (RuntimeError, TypeError):
            raise self.unclear(f"is a {tensor.layout} tensor, whose values cannot be read") from None

    def unclear(self, why: str) -> UnclearError:
        return UnclearError(f"{'.'.join(self.where) or 'it'} {why}")


def _is_generated(kind: type, functions: list[Any]) -> bool:
    """Return whether `dataclass` or `namedtuple` generated these functions from the fields of `kind`."""
    by_namedtuple = ("collections", f"namedtuple_{kind.__name__}")
    return bool(functions) and all(
        f.__code__.co_qualname.startswith("__create_fn__") or f.__globals__.get("__name__") in by_namedtuple
        for f in functions
    )
