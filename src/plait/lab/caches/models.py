"""Language models on disk: a folder of `transformers`, or a .gguf file that is converted to one once."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError, DataError, OutputError, check_choice
from plait.files import plain_bytes, write_whole, writing
from plait.hf.layers import full_attention_layers
from plait.hf.saved import model_checksum
from plait.hugging_face import (
    build_empty,
    load_gguf,
    load_tokenizer,
    load_weights,
    make_config,
    read_settings,
    save_model,
    weights_of,
)

__all__ = ["DTYPES", "LanguageModel", "convert_gguf", "end_tokens", "open_model"]

DTYPES = ("auto", "float32", "bfloat16", "float16")
_ORIGIN = "converted.json"  # in a converted folder: the file it was made from
_MOST_ORIGIN = 1 << 16


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model in evaluation mode, with its tokenizer.

    `name` is that of its folder, `positions` the number of tokens it takes.
    """

    model: Any
    tokenizer: Any
    name: str
    folder: Path
    positions: int | None

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        device: torch.device = self.model.device
        return device

    @functools.cached_property
    def digest(self) -> str:
        """Return the checksum of the weights, by which trained scores identify their model."""
        return model_checksum(self.model)


def open_model(path: Path, device: torch.device | None = None, dtype: str = "auto") -> LanguageModel:
    """Open a model.

    A .gguf file is converted on first use to a folder next to it, named as the file without its suffix; the
    next time that folder is read, in seconds.

    Args:
        path: a folder with config.json, safetensors and a tokenizer, or a .gguf file.
        device: the CPU by default.
        dtype: one of `DTYPES`; "auto" is float32 on a CPU, and the precision of the weights on a GPU.

    Raises:
        DataError: if it cannot be read, has no weights, or has pickled ones.
        ConfigError: if there is nothing of this name, or the model has no layers of full attention.
    """
    check_choice(dtype, DTYPES, "dtype")
    if not path.exists():
        raise ConfigError(f"{path}: expected a folder of transformers or a .gguf file, got nothing there")
    folder = _converted(path) if path.suffix.lower() == ".gguf" else path
    if not folder.is_dir():
        raise ConfigError(f"{path}: expected a folder of transformers or a .gguf file, got another file")
    settings = read_settings(folder)
    config = make_config(settings)
    if config.is_encoder_decoder:
        raise ConfigError(
            f"{path}: expected a decoder alone, got {config.model_type!r}, which has an encoder"
        )
    full_attention_layers(build_empty(config, ("AutoModelForCausalLM",)))
    weights = weights_of(folder, settings)
    if weights is None:
        raise DataError(f"{folder}: expected model.safetensors, got a folder without weights")
    if ".bin" in weights.suffixes:
        raise DataError(f"{weights}: expected safetensors, got pickled weights, which are not opened here")
    model, missing = load_weights(folder, config, "AutoModelForCausalLM")
    if missing:
        raise DataError(f"{folder}: its weights lack {missing[0]}, and {len(missing) - 1} others")
    tokenizer = load_tokenizer(folder)
    device = device or torch.device("cpu")
    precision = None if dtype == "auto" else getattr(torch, dtype)
    if precision is None and device.type == "cpu":
        precision = torch.float32
    model = model.eval().to(device, precision)
    model.requires_grad_(False)
    if model._can_set_attn_implementation():
        model.set_attn_implementation("sdpa")
    text_config = model.config.get_text_config(decoder=True)
    positions = getattr(text_config, "max_position_embeddings", None)
    return LanguageModel(model, tokenizer, folder.resolve().name, folder, positions)


def end_tokens(model: Any) -> set[int]:
    """Return the tokens at which `generate` stops."""
    value = model.generation_config.eos_token_id
    if value is None:
        value = model.config.get_text_config(decoder=True).eos_token_id
    return set() if value is None else {value} if isinstance(value, int) else set(value)


def convert_gguf(path: Path, folder: Path) -> Path:
    """Convert a .gguf file to a folder of `transformers` with float32 safetensors, atomically.

    Raises:
        ConfigError: if the file is not a .gguf file, or the folder exists.
        DataError: if the file cannot be read.
        MissingExtraError: if gguf or accelerate is not installed.
        OutputError: if the folder cannot be written.
    """
    if path.suffix.lower() != ".gguf" or not path.is_file():
        raise ConfigError(f"{path}: expected a .gguf file")
    if folder.exists():
        raise ConfigError(f"{folder}: expected a new folder, got one that exists; remove it or name another")
    model, tokenizer = load_gguf(path)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
        part.mkdir()
        try:
            save_model(model, tokenizer, part)
            write_whole(
                part / _ORIGIN, json.dumps({"file": path.name, "sha256": _file_digest(path)}).encode()
            )
            os.rename(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def _converted(path: Path) -> Path:
    """Return the folder converted from a .gguf file; convert the file if there is none yet."""
    folder = path.with_suffix("")
    if not folder.exists():
        try:
            return convert_gguf(path, folder)
        except OutputError as error:
            raise OutputError(f"{error}; plait cache convert {path} FOLDER writes it elsewhere") from error
    try:
        origin = json.loads(plain_bytes(folder / _ORIGIN, _MOST_ORIGIN))
    except (OSError, ValueError):
        origin = None
    if not isinstance(origin, dict) or origin.get("sha256") != _file_digest(path):
        raise ConfigError(
            f"{folder}: expected the folder converted from {path.name}, got another; name the folder itself, "
            f"or convert with plait cache convert {path} FOLDER"
        )
    return folder


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
