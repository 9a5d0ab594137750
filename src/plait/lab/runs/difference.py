"""Descriptions as people read them: the options of a run's model, and how two runs differ.

A network built in Python has no name and no command-line options. Its description holds its modules by path
and the source of its code (`plait.lab.training.identity`); here they become options.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from plait.lab.runs.kinds import unresumable

__all__ = ["SHAPES", "class_of", "difference", "nameless", "options_of", "refusal", "task_label"]

SHAPES = "shapes of weights"
_SHORT = 80  # characters of a value in a line


def options_of(part: dict[str, Any]) -> dict[str, Any]:
    """Return the options that distinguish a task or model, by name; of submodules by path, `layers.0.memory`.

    >>> memory = {"class": "mine.FirstMemory", "size": 3}
    >>> parts = {"layers.0": {"class": "plait.SelfAttentive", "memory": memory, "mix": 0.5}}
    >>> options_of({"class": "mine.Network", "parts": parts, "sources": {}})
    {'class': 'mine.Network', 'layers.0': 'plait.SelfAttentive', 'layers.0.memory': 'FirstMemory(3)', 'layers.0.mix': 0.5}
    """  # noqa: E501  (the answer is one line)
    options = {key: value for key, value in part.items() if key not in _STRUCTURE}
    options |= {"class": class_of(part)} if "class" in part else {}
    inner: dict[str, Any] = {}
    for path, module in part.get("parts", {}).items():
        path = path.removeprefix("recurrent").removeprefix(".")
        inner |= {path: module["class"]} if path and "class" in module else {}
        for name, value in module.items():
            # A value that a layer has from an enclosing module is listed once, there.
            if name != "class" and _inherited(part["parts"], path, name) != [value]:
                inner[f"{path}.{name}".removeprefix(".")] = _as_code(value)
    options |= inner
    for name, code in part.get("sources", {}).items():
        options[f"source of {name.removeprefix('__main__.')}"] = code
    options |= {kind: part[kind] for kind in _OF_WEIGHTS if kind in part}
    if "weights" in part:
        options[SHAPES] = hashlib.sha256(json.dumps(part["weights"]).encode()).hexdigest()[:10]
    return options


def class_of(part: dict[str, Any]) -> str:
    """Return the class of an unnamed task or model; of a recurrent model, without the output layer."""
    inside = part.get("parts", {}).get("recurrent", {}) if part["class"] == _NETWORK else {}
    return str(inside.get("class", part["class"]))


def task_label(task: dict[str, Any]) -> str:
    """Return a task as lists and titles name it: with its delay, its environment, or its file and target.

    >>> task_label({"name": "copy", "delay": 100}), task_label({"name": "gym", "env": "CartPole-v1"})
    ('copy delay 100', 'gym CartPole-v1')
    >>> task_label({"name": "csv", "file": "data/sales.csv", "target": "units", "horizon": 7})
    'csv sales.csv: units, 7 rows ahead'
    """
    name = str(task.get("name") or (class_of(task) if "class" in task else "?"))
    if name == "csv" and "file" in task:
        ahead = f", {task['horizon']} rows ahead" if task.get("horizon") else ""
        return f"csv {Path(str(task['file'])).name}: {task.get('target', '?')}{ahead}"
    words = [f"delay {task['delay']}"] if "delay" in task else []
    return " ".join([name, *words, *([str(task["env"])] if "env" in task else [])])


def _inherited(parts: dict[str, Any], path: str, name: str) -> list[Any]:
    """Return, in a list, the value of this name in the nearest module that encloses `path`, [] if none."""
    while path:
        path = path.rpartition(".")[0]
        module = parts.get(f"recurrent.{path}".removesuffix("."), parts.get(path, {}))
        if name in module:
            return [module[name]]
    return []


_NETWORK = "plait.lab.training.description.Network"
_OF_WEIGHTS = ("dtypes", "frozen", "tied", "always evaluated", "always training")
_STRUCTURE = frozenset({"parts", "sources", "weights", "unidentified", *_OF_WEIGHTS})


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the first difference between two descriptions, of the model, the task or the recipe.

    >>> part = {"recipe": {}, "task": {"name": "copy"}}
    >>> difference({**part, "model": {"name": "rnn", "mix": 1}}, {**part, "model": {"name": "rnn", "mix": 2}})
    "mix: this run's is 1, the module's 2"
    """
    for kind, owner in (("model", "the module's"), ("task", "the task's"), ("recipe", "the recipe's")):
        pair = [options_of(description.get(kind, {})) for description in (before, now)]
        both = dict.fromkeys([*pair[0], *pair[1]])
        names = [n for n in both if n not in pair[0] or n not in pair[1] or pair[0][n] != pair[1][n]]
        for name in sorted(names, key=lambda name: _rank(name, *(options.get(name) for options in pair))):
            mine, theirs = (_line(options.get(name)) for options in pair)
            return f"{kind if name in ('name', 'class') else name}: this run's is {mine}, {owner} {theirs}"
    return ""


def _rank(name: str, *values: Any) -> int:
    """Return a sort key that puts classes and objects before the sizes that follow from them."""
    if name == SHAPES:
        return 2
    return int(name not in ("name", "class") and not any(str(value).endswith(")") for value in values))


def refusal(folder: Path, ids: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the error message for resuming one run in the folder of another."""
    why = unresumable(before) or unresumable(now)
    how = f"a run cannot be resumed where {why}" if why else difference(before, now)
    return f"{folder} holds {ids}{f': {how}' if how else ''}; choose another folder"


def nameless(part: str, values: dict[str, Any]) -> str:
    """Return the error message for building a task or model from a description that holds only its class."""
    known = f"this run's {part} is {class_of(values)}, which has no name here"
    if why := unresumable({part: values}):
        return f"{known}; it cannot be resumed, as {why}"
    return (
        f"{known}; make it in Python and pass it: plait.fit(model, task, …, folder=RUN, resume=True) resumes "
        "the run, plait.load(RUN, model=model) loads its weights"
    )


def _as_code(value: Any) -> Any:
    """Return a described value as code would have it: FirstMemory(3), tanh, 0.5."""
    if isinstance(value, list):
        return [_as_code(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        options = {key: _as_code(item) for key, item in value.items() if key != "class"}
        values = [str(option) for option in options.values()]
        if len(options) > 1:
            values = [f"{key}={option}" for key, option in options.items()]
        return f"{value['class'].rpartition('.')[2]}({', '.join(values)})"
    if "partial" in value:
        rest = {key: item for key, item in value.items() if key != "partial"}
        return f"partial({_as_code(value['partial'])}, {json.dumps(rest, ensure_ascii=False)})"
    for kind in ("function", "type", "enum", "import", "module", "weight", "tensor", "array", "float"):
        if kind in value and len(value) == (2 if kind == "enum" else 1):
            return value[kind].rpartition(".")[2] if kind in ("function", "type") else value[kind]
    return _as_code(value["dict"]) if value.keys() == {"dict"} else json.dumps(value, sort_keys=True)


def _line(value: Any) -> str:
    text = "not there" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
