"""A Hugging Face `config.json` as an `Architecture`: the shape a model really has."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.depthwidth.count import Architecture, Count, count_params
from plait.depthwidth.families import NAMES, SIZES, Values, check_size
from plait.depthwidth.family_table import FAMILIES
from plait.errors import ConfigError, DataError
from plait.input import plain_bytes

__all__ = ["ModelConfig", "parse_config", "read_config"]

_MOST = 1 << 18  # bytes; the largest known have a few thousand


@dataclass(frozen=True)
class ModelConfig:
    """The model a file describes.

    Attributes:
        count: its parameters, part by part.
        architecture: None where the model was built to be counted, not counted by formula.
        family: its `model_type`.
        assumed: what the file leaves open, and how it was taken.
    """

    depth: int
    width: int
    count: Count
    architecture: Architecture | None
    family: str
    assumed: tuple[str, ...]


def read_config(path: str | Path) -> ModelConfig:
    """Read a local `config.json`.

    Families of `plait.depthwidth.families` are counted by formula, any other is built without memory by
    `transformers` where that is installed.

    Raises:
        DataError: the file is missing, is not JSON, or describes no Transformer that can be counted.
    """
    try:
        content = plain_bytes(path, _MOST)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return parse_config(content, path)


def parse_config(content: bytes, path: str | Path = "config.json") -> ModelConfig:
    """What a `config.json` says; `path` is what an error calls it."""
    try:
        values = json.loads(content.decode("utf-8"))
        json.dumps(values, ensure_ascii=False).encode()  # half a character cannot be printed
    except ValueError as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply for a model's settings") from error
    if not isinstance(values, dict):
        raise DataError(
            f"{path}: expected a JSON object with a model's settings, got {type(values).__name__}"
        )
    try:
        return _interpret(values)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{path}: holds a setting of the wrong kind ({reprlib.repr(error)})") from error


def _interpret(values: dict[str, Any]) -> ModelConfig:
    notes = []
    whole = values.get("model_type")
    if isinstance(values.get("text_config"), dict) and not any(key in values for key in NAMES["depth"]):
        values = {"model_type": f"{whole}_text", **values["text_config"]}
        notes.append(f"the language part of {whole}, without its other senses")
    for key in SIZES & values.keys():
        if isinstance(values[key], int):  # what is no number is told by who needs it
            check_size(key, values[key])
    family = values.get("model_type")
    if not isinstance(family, str):
        missing = [" or ".join(NAMES[name]) for name in ("depth", "width", "heads") if not _any(values, name)]
        lacks = ", ".join([*missing, "model_type"])
        raise DataError(f"is not a Transformer's config.json: it lacks {lacks}")
    if family not in FAMILIES:
        from plait.depthwidth.built import built

        depth, width, count = built(values)
        return ModelConfig(depth, width, count, None, family, (*notes, "built by transformers and counted"))
    known = FAMILIES[family]
    settings = Values(values, known.defaults)
    shape = known.build(settings)
    if settings.assumed:
        said = ", ".join(f"{key} = {value}" for key, value in settings.assumed.items())
        notes.append(f"not in the file, as its class has it: {said}")
    if known.note:
        notes.append(known.note)
    if shape.decoder:
        notes.append(f"judged by the encoder; its decoder has {shape.decoder} layers of the same width")
    return ModelConfig(shape.depth, shape.width, count_params(shape), shape, family, tuple(notes))


def _any(values: dict[str, Any], name: str) -> bool:
    return any(values.get(key) is not None for key in NAMES[name])
