"""Shape and parameter count of the model that a Hugging Face `config.json` describes."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.depthwidth.planner.cost import Stack, stack_of
from plait.depthwidth.planner.count import Architecture, Count, count_params
from plait.depthwidth.planner.families import NAMES, SIZES, architecture_of, check_size
from plait.errors import ConfigError, DataError
from plait.hugging_face import parse_settings, read_settings

__all__ = ["ModelConfig", "parse_config", "read_config"]


@dataclass(frozen=True)
class ModelConfig:
    """Model described by a `config.json`.

    Attributes:
        count: parameters by part.
        architecture: None for a model that was counted by building it, not by formula.
        family: its `model_type`.
        assumed: assumptions made where the file leaves a setting out.
        stack: its layers, as far as costs and the guideline depend on them.
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

    The decoders in `plait.depthwidth.planner.families` are counted by a formula. Any other model is built by
    `transformers`, if installed, on the meta device; custom code named in the settings is never run.

    Raises:
        DataError: if it cannot be read or describes no Transformer.
    """
    return _checked(read_settings(path), path)


def parse_config(content: bytes, path: str | Path = "config.json") -> ModelConfig:
    """Parse the content of a `config.json`; `path` names it in error messages."""
    return _checked(parse_settings(content, path), path)


def _checked(values: dict[str, Any], path: str | Path) -> ModelConfig:
    try:
        return _interpret(values)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{path}: has a setting of the wrong type ({reprlib.repr(error)})") from error


def _interpret(values: dict[str, Any]) -> ModelConfig:
    notes = []
    model_type = values.get("model_type")
    if isinstance(values.get("text_config"), dict) and not any(key in values for key in NAMES["depth"]):
        values = {"model_type": f"{model_type}_text", **values["text_config"]}
        notes.append(f"the language part of {model_type}, without its other modalities")
    for key in SIZES & values.keys():
        if isinstance(values[key], int):  # other types are rejected where they are used
            check_size(key, values[key])
    family = values.get("model_type")
    if not isinstance(family, str):
        missing = [
            " or ".join(NAMES[name]) for name in ("depth", "width", "heads") if not _has_any(values, name)
        ]
        lacking = ", ".join([*missing, "model_type"])
        raise DataError(f"is not a Transformer's config.json: it lacks {lacking}")
    formula = architecture_of(values)
    if formula is None:
        from plait.depthwidth.planner.count_by_building import count_by_building

        built = count_by_building(values)
        notes += [_defaults_note(built.assumed)] if built.assumed else []
        notes.append(f"counted on the {built.model} that transformers builds")
        if built.decoder:
            notes.append(f"depth is the encoder's; the decoder has {built.decoder} layers of the same width")
        return ModelConfig(built.depth, built.width, built.count, None, family, tuple(notes), built.stack)
    shape, assumed = formula
    notes += [_defaults_note(assumed)] if assumed else []
    return ModelConfig(
        shape.depth, shape.width, count_params(shape), shape, family, tuple(notes), stack_of(shape)
    )


def _defaults_note(assumed: dict[str, Any]) -> str:
    listed = ", ".join(f"{key} = {value}" for key, value in assumed.items())
    return f"not in the file, so the defaults of its configuration class: {listed}"


def _has_any(values: dict[str, Any], name: str) -> bool:
    return any(values.get(key) is not None for key in NAMES[name])
