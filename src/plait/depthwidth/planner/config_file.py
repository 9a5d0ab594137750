"""A Hugging Face `config.json` as an `Architecture`: the shape a model really has."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.depthwidth.planner.cost import Stack, stack_of
from plait.depthwidth.planner.count import Architecture, Count, count_params
from plait.depthwidth.planner.families import NAMES, SIZES, Values, check_size
from plait.depthwidth.planner.family_table import FAMILIES
from plait.errors import ConfigError, DataError
from plait.hugging_face import parse_settings, read_settings

__all__ = ["ModelConfig", "parse_config", "read_config"]


@dataclass(frozen=True)
class ModelConfig:
    """The model a file describes.

    Attributes:
        count: its parameters, part by part.
        architecture: None where the model was built to be counted, not counted by formula.
        family: its `model_type`.
        assumed: what the file leaves open, and how it was taken.
        stack: what its layers are: what costs depend on, and whether the guideline is about them.
    """

    depth: int
    width: int
    count: Count
    architecture: Architecture | None
    family: str
    assumed: tuple[str, ...]
    stack: Stack


def read_config(path: str | Path) -> ModelConfig:
    """Read a local `config.json`, or the one in a folder.

    Families of `plait.depthwidth.planner.families` are counted by formula, any other is built without memory
    by `transformers` where that is installed; Python that the settings name is never run.

    Raises:
        DataError: if it cannot be read or describes no Transformer.
    """
    return _checked(read_settings(path), path)


def parse_config(content: bytes, path: str | Path = "config.json") -> ModelConfig:
    """Read the model a `config.json` describes; `path` is its name in an error."""
    return _checked(parse_settings(content, path), path)


def _checked(values: dict[str, Any], path: str | Path) -> ModelConfig:
    try:
        return _interpret(values)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
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
        from plait.depthwidth.planner.count_by_building import built

        depth, width, count, stack = built(values)
        notes.append("built by transformers and counted")
        return ModelConfig(depth, width, count, None, family, tuple(notes), stack)
    known = FAMILIES[family]
    settings = Values(values, known.defaults)
    shape = known.build(settings)
    if settings.assumed:
        said = ", ".join(f"{key} = {value}" for key, value in settings.assumed.items())
        notes.append(f"not in the file, as its class has it: {said}")
    if known.note:
        notes.append(known.note)
    if shape.decoder:
        notes.append(f"depth is the encoder's; the decoder has {shape.decoder} layers of the same width")
    return ModelConfig(
        shape.depth, shape.width, count_params(shape), shape, family, tuple(notes), stack_of(shape)
    )


def _any(values: dict[str, Any], name: str) -> bool:
    return any(values.get(key) is not None for key in NAMES[name])
