"""Markdown pages of the public names, from `__all__` and the docstrings: one page a module.

They are made whenever the site is (`make docs`), so they cannot fall behind the code.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["MODULES", "markdown", "page_of", "write_reference"]

# The modules a user imports from, in the order of the menu; `plait` itself only points to the others.
MODULES = (
    "plait",
    "plait.models",
    "plait.cells",
    "plait.memory",
    "plait.gradients",
    "plait.gradients.paths",
    "plait.gradients.uniform",
    "plait.gradients.sparse",
    "plait.hf",
    "plait.integrations.torchrl",
    "plait.ops.lifetimes",
    "plait.ops.bounded_attention",
    "plait.ops.scan",
    "plait.depthwidth.planner",
    "plait.depthwidth.rank",
    "plait.errors",
    "plait.lab.tasks",
    "plait.lab.tasks.minigrid",
    "plait.lab.training.fit",
    "plait.lab.training.supervised",
    "plait.lab.training.prediction",
    "plait.lab.training.generation",
    "plait.lab.training.ppo.fit",
    "plait.lab.training.ppo.learner",
    "plait.lab.training.ppo.policy",
    "plait.lab.training.ppo.rollout",
    "plait.lab.training.session",
    "plait.lab.training.recipe",
    "plait.lab.training.callbacks",
    "plait.lab.training.gradient_record",
    "plait.lab.runs.reading",
    "plait.lab.runs.archive",
    "plait.lab.caches.training",
    "plait.lab.caches.evaluation",
    "plait.lab.caches.texts",
    "plait.lab.experiments",
    "plait.lab.experiments.launch",
    "plait.lab.experiments.catalogue",
    "plait.lab.figures",
    "plait.lab.report.write",
    "plait.lab.experiments.demo",
    "plait.lab.doctor",
)
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Laws):\s*$")
_ITEM = re.compile(r"^(\*{0,2}[\w., ]+?)(?: \(([^)]*)\))?:\s+(.*)$")


def write_reference(folder: Path) -> None:
    """One file a module in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        page_of(folder, name).write_text(module_page(importlib.import_module(name)), encoding="utf-8")


def page_of(folder: Path, module: str) -> Path:
    return folder / f"{module}.md"


def module_page(module: ModuleType) -> str:
    parts = [f"# {module.__name__}", markdown(inspect.getdoc(module) or "")]
    names = sorted(set(module.__all__), key=lambda name: (not name[0].isupper(), name.lower()))
    if module.__name__ == "plait":
        return "\n\n".join([*parts, _index(module, names)]) + "\n"
    for name in names:
        parts.append(_entry(name, getattr(module, name)))
    return "\n\n".join(parts) + "\n"


def _index(module: ModuleType, names: list[str]) -> str:
    """Return the names of `plait` itself, each with a line and a link to its description."""
    rows = ["| name | what it is |", "|---|---|"]
    for name in names:
        thing = getattr(module, name)
        home = next((m for m in MODULES[1:] if name in importlib.import_module(m).__all__), None)
        shown = f"[`{name}`]({home}.md#{name.lower()})" if home else f"`{name}`"
        rows.append(f"| {shown} | {_first_sentence(thing)} |")
    return "\n".join(rows)


def _first_sentence(thing: Any) -> str:
    if isinstance(thing, str):
        return f"`{thing}`"
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return _escaped(text).replace("|", "\\|")


def _entry(name: str, thing: Any) -> str:
    if inspect.ismodule(thing):
        return f"## {name}\n\n{_first_sentence(thing)}"
    if inspect.isclass(thing):
        return "\n\n".join([f"## {name}", _signature(name, thing), _documented(thing), *_members(thing)])
    if callable(thing):
        return f"## {name}\n\n{_signature(name, thing)}\n\n{_documented(thing)}"
    shown = repr(thing)
    return f"## {name}\n\n```python\n{name} = {shown if len(shown) < 100 else shown[:97] + '…'}\n```"


def _documented(thing: Any) -> str:
    text = thing.__doc__ or ""
    generated = dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}(")
    return "" if generated else markdown(inspect.cleandoc(text))


def _members(kind: type) -> list[str]:
    """Public methods and properties that the class itself defines and describes."""
    parts = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        head = f"```python\n{name}\n```" if isinstance(member, property) else _signature(name, function)
        parts.append(f"### {kind.__name__}.{name}\n\n{head}\n\n{_documented(function)}")
    return parts


def _signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    given = [_parameter(p) for p in found.parameters.values() if p.name != "self"]
    kinds = [p.kind for p in found.parameters.values() if p.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        given.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    short = ", ".join(given)
    shown = short if len(short) <= 70 else "".join(["\n", *(f"    {one},\n" for one in given)])
    silent = inspect.isclass(thing) or found.return_annotation is inspect.Signature.empty
    arrow = "" if silent else f" -> {_annotation(found.return_annotation)}"
    return f"```python\n{name}({shown}){arrow}\n```"


def _parameter(given: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(given.kind, "")
    typed = "" if given.annotation is given.empty else f": {_annotation(given.annotation)}"
    if given.default is given.empty:
        return f"{stars}{given.name}{typed}"
    default = repr(given.default)
    default = "…" if default.startswith("<") or len(default) > 60 else default
    return f"{given.name}{typed} = {default}" if typed else f"{given.name}={default}"


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: examples fenced, sections as lists, `<` unchanged."""
    written: list[str] = []
    lines = docstring.splitlines()
    while lines:
        if lines[0].lstrip().startswith(">>>"):
            block = _take(lines, lambda line: bool(line.strip()))
            written += ["", "```pycon", *inspect.cleandoc("\n".join(["", *block])).splitlines(), "```"]
        elif section := _SECTION.match(lines[0]):
            lines.pop(0)
            items = _take(lines, lambda line: line.startswith(" ") or not line.strip())
            written += ["", *_listed(section[1], inspect.cleandoc("\n".join(["", *items])))]
        elif lines[0].startswith("    "):
            written.append(lines.pop(0))  # already a block of code
        else:
            written.append(_escaped(lines.pop(0)))
    return "\n".join(written).strip("\n")


def _take(lines: list[str], while_true: Any) -> list[str]:
    taken = []
    while lines and while_true(lines[0]):
        taken.append(lines.pop(0))
    return taken


def _listed(title: str, body: str) -> list[str]:
    if title == "Example":
        return [*markdown(body).splitlines(), ""]
    items: list[str] = []
    for line in body.splitlines():
        item = _ITEM.match(line)
        if item and not line.startswith(" "):
            items.append(f"- `{item[1]}`: {_escaped(item[3])}")
        elif line.strip() and items:
            items.append(f"  {_escaped(line.strip())}")
        elif line.strip():
            items.append(_escaped(line))
    return [f"**{title}**", "", *items, ""]


def _escaped(line: str) -> str:
    """`<` outside of code would begin a tag."""
    pieces = line.split("`")
    return "`".join(p if i % 2 else p.replace("<", "&lt;").replace("*", "\\*") for i, p in enumerate(pieces))
