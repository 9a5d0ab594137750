"""What a network made in Python is, as plain data: enough to tell any two apart, or a line that says why not.

Equal descriptions mean equal computations, whatever the weights are. Nothing in one depends on the process or
the machine: no address, no path of a file, no device, no order of a dict or a set.
"""

from __future__ import annotations

import copyreg
import enum
import math
import os
import types
import weakref
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from plait.training.digests import array_text, canonical, digest, short, shortened, tensor_text
from plait.training.module_state import is_instrument, no_options, special_weights
from plait.training.source_code import (
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

__all__ = ["described_class", "described_module"]

_DEEPEST = 16
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_ORDERED = (nn.ModuleDict, nn.ParameterDict, nn.Sequential)  # whose children are worked through in turn


def described_module(network: nn.Module) -> dict[str, Any]:
    """Return the parts of a network by path, the code behind them, and what is special about its weights.

    Where something cannot be described, `unidentified` says why, with a mark that no other run has.
    """
    return _guarded(_Describer(network).network, network)


def described_class(thing: object) -> dict[str, Any]:
    """Return the code behind an object's class, empty for one of an installed distribution."""
    describer = _Describer()

    def code() -> dict[str, Any]:
        describer.type_name(type(thing))
        return {"sources": describer.sources} if describer.sources else {}

    return _guarded(code)


def _guarded(describe: Any, *arguments: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = describe(*arguments)
        return found
    except Exception as error:  # whatever objects of others raise here, the run can be made
        why = str(error) if isinstance(error, UnclearError) else f"it cannot be described ({error!r:.200})"
        return {"unidentified": {"why": why, "mark": os.urandom(8).hex()}}


class _Describer:
    """One walk through a network; `sources` gathers the code that is met, by import path."""

    def __init__(self, network: nn.Module | None = None) -> None:
        self.sources: dict[str, Any] = {}
        self.known_code: set[int] = set()
        self.where: list[str] = []
        self.open: list[int] = []  # objects that are being described, against cycles
        self.paths: dict[int, dict[str, str]] = {}
        if network is not None:
            self.paths = {id(one): {"weight": name} for name, one in network.named_parameters()}
            self.paths |= {id(one): {"module": name} for name, one in network.named_modules()}

    def network(self, network: nn.Module) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for path, module in network.named_modules(remove_duplicate=False):
            self.where = [path] if path else []
            first = self.paths[id(module)]
            parts[path] = self.module(module) if first["module"] == path else first
        self.where = []
        return {"parts": parts, "sources": self.sources, **special_weights(network)}

    def module(self, module: nn.Module) -> dict[str, Any]:
        """Return a module's class and attributes; its submodules have entries of their own."""
        kind = type_before_parametrizations(module)
        found: dict[str, Any] = {"class": self.type_name(kind)}
        if kind.__module__.startswith("torch._dynamo"):  # torch.compile: how it is computed
            return found
        left_out = no_options(module)
        found |= self.attributes(kind, {k: v for k, v in vars(module).items() if k not in left_out})
        for name, buffer in module._buffers.items():
            # What is saved with the weights may change in training; a mask does not.
            if buffer is not None and (
                name in module._non_persistent_buffers_set or buffer.dtype == torch.bool
            ):
                found[name] = self.value(buffer, name)
        for name in _HOOKS:
            hooks = [hook for hook in getattr(module, name).values() if not is_instrument(hook)]
            if hooks:
                found[name.strip("_")] = self.value(hooks, name.strip("_"))
        if isinstance(module, _ORDERED):
            found["order"] = [*module._modules, *module._parameters]
        return found

    def attributes(self, kind: type, values: dict[str, Any]) -> dict[str, Any]:
        """Return described attributes by name, without those a class computes from the others when needed."""
        names = [n for n in values if not isinstance(getattr(kind, n, None), cached_property)]
        return {str(name): self.value(values[name], str(name)) for name in sorted(names, key=str)}

    def value(self, value: Any, name: str) -> Any:
        """Return one value as plain data; `name` is what an error calls it."""
        self.where.append(name)
        if id(value) in self.open:
            found: Any = {"again": len(self.open) - self.open.index(id(value))}
        elif len(self.open) > _DEEPEST:
            raise self.unclear("is nested too deep")
        else:
            self.open.append(id(value))
            found = self.plain(value)
            self.open.pop()
        self.where.pop()
        return found

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
            return {"device": "any"}  # where it runs is not what it is
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
            return short([self.value(one, str(at)) for at, one in enumerate(value)])
        if kind in (set, frozenset):
            return {"set": short(sorted((self.value(one, "element") for one in value), key=canonical))}
        if kind is dict:
            return {"dict": self.pairs(value.items())}
        if isinstance(value, enum.Enum):
            return {"enum": f"{self.type_name(kind)}.{value.name}", "value": self.value(value.value, "value")}
        if isinstance(value, nn.Module):
            inside = {
                n: self.value(one, n) for n, one in [*value._modules.items(), *value._parameters.items()]
            }
            return {**self.module(value), "inside": inside}
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
        """Return a function's name, and what it was made with; its code joins the sources."""
        if not isinstance(function, types.FunctionType):
            return {"function": self.value(function, "function")}
        name = name_of(function)
        if name.endswith("<lambda>"):
            raise self.unclear("is a lambda; use a function that has a name")
        if set(function.__code__.co_freevars) - {"__class__"}:
            raise self.unclear("is a closure; use a function of its module, or an object with __call__")
        found: dict[str, Any] = {"function": name}
        if is_own_function(function):
            self.code(function, name)
            made = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
            made["attributes"] = {k: v for k, v in vars(function).items() if k != "__wrapped__"} or None
            found |= {k: self.value(v, k) for k, v in made.items() if v}
        return found

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
        found: dict[str, Any] = {"class": self.type_name(type(value))}
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            arguments = arguments[1:]
        else:
            found["made by"] = self.value(make, "__reduce__")
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = {**(state[0] or {}), **state[1]}  # __dict__ and __slots__
        if isinstance(state, dict):
            found |= self.attributes(type(value), state)
        elif state is not None:
            found["state"] = self.value(state, "state")
        if arguments:
            found["arguments"] = self.value(tuple(arguments), "arguments")
        for name, part in (("items", items), ("pairs", pairs)):
            content = [] if part is None else [*part]
            if content:
                found[name] = self.value(content, name)
        return found

    def type_name(self, kind: type) -> str:
        """Return the import path of a class; own code, of its bases too, joins the sources."""
        for one in kind.__mro__:
            if is_own(one.__module__):
                self.own_class(one)
            elif one is not object:
                self.patched(one)
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
            if written or is_magic or _is_generated(functions) or name == "_abc_impl":
                continue
            if issubclass(kind, enum.Enum) and name.startswith("_"):
                continue
            if not isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType):
                values[name] = functions[0] if functions else value
        texts = sorted({text_of(function, kind.__name__) for function in inside})
        values |= {f"{f.__name__} is made with": made for f in inside if any(made := made_with(f))}
        described = self.attributes(object, values)
        bases = [name_of(one) for one in kind.__mro__[1:]]
        self.enter(name_of(kind), digest(canonical([texts, described, bases]).encode()))
        for function in inside:
            self.read_globals(function)

    def patched(self, kind: type) -> None:
        """Methods of an installed class that a user has put there."""
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
        """Return a module's name; the text of a user's own joins the sources."""
        if is_own(module.__name__):
            try:
                with open(str(module.__file__), "rb") as file:
                    self.enter(module.__name__, digest(file.read()))
            except OSError:
                raise self.unclear(f"is the module {module.__name__}, which has no source") from None
        return module.__name__

    def enter(self, name: str, value: Any) -> None:
        """Two classes of one name, as a notebook can have them, stand one after the other."""
        number = 2
        key = name = name.replace("__mp_main__", "__main__")
        while key in self.sources and self.sources[key] != value:
            key, number = f"{name} ({number})", number + 1
        self.sources[key] = value

    def pairs(self, items: Iterable[tuple[Any, Any]]) -> Any:
        found = [(k, self.value(v, str(k)[:40])) for k, v in items]
        if all(type(key) is str for key, _ in found):
            return dict(sorted(found))
        return sorted(([self.value(key, "key"), one] for key, one in found), key=canonical)

    def numbers(self, tensor: Tensor) -> str:
        try:
            return tensor_text(tensor)
        except (RuntimeError, TypeError):
            raise self.unclear(f"is a {tensor.layout} tensor, whose values cannot be read") from None

    def unclear(self, why: str) -> UnclearError:
        return UnclearError(f"{'.'.join(self.where) or 'it'} {why}")


def _is_generated(functions: list[Any]) -> bool:
    """Whether `dataclass` wrote these: they follow from the fields."""
    return bool(functions) and all(f.__code__.co_qualname.startswith("__create_fn__") for f in functions)
