"""Loading of `transformers` models from a folder without running any code in it.

Folders are not trusted. A folder determines the sizes and the weights of a model; Python files, kernels and
other repositories that its settings name, and files outside of it, are ignored or refused.
"""

from __future__ import annotations

import functools
import json
import os
import re
import reprlib
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from plait.errors import ConfigError, DataError, PlaitError, require
from plait.files import plain_bytes

__all__ = [
    "MOST_CONFIG",
    "build_empty",
    "build_random",
    "cause",
    "load_gguf",
    "load_tokenizer",
    "load_weights",
    "make_config",
    "one_line_errors",
    "parse_settings",
    "read_settings",
    "save_model",
    "weights_of",
]

MOST_CONFIG = 1 << 18  # bytes of a config.json; the largest known have a few thousand
_MOST_INDEX = 1 << 26  # bytes of a list of shards
_MOST_LAYERS = 10_000  # most layers and other modules that are built one by one
_MOST_OF_A_KIND = 1_000_000  # most labels, heads, experts: settings named num_… or n_…
_MOST_MODULES = 100_000
_LONGEST_BUILD = 15.0  # seconds of processor time on the meta device; DeepSeek-V3 takes one or two
# settings that make transformers download or run other code
_CODE = {
    "auto_map",
    "custom_pipelines",
    "trust_remote_code",
    "name_or_path",
    "_name_or_path",
    "use_kernels",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
    "configuration_files",
    "use_pretrained_backbone",
    "backbone_kwargs",
}
_LAYERS = re.compile(r"(layers?|blocks|depth|stages)$")
_KINDS = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModel")
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def read_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings in a config.json, or in the config.json of a folder.

    Raises:
        DataError: if it cannot be read, is not JSON, or is not an object.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    try:
        content = plain_bytes(path, MOST_CONFIG)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return parse_settings(content, path)


def parse_settings(content: bytes, path: str | Path = "config.json") -> dict[str, Any]:
    """Parse the text of a config.json; `path` is its name in an error."""
    try:
        values = json.loads(content.decode("utf-8"))
        json.dumps(values, ensure_ascii=False).encode()  # lone surrogates cannot be printed
    except ValueError as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply for a model's settings") from error
    if not isinstance(values, dict):
        raise DataError(
            f"{path}: expected a JSON object with a model's settings, got {type(values).__name__}"
        )
    return values


def make_config(values: dict[str, Any]) -> Any:
    """Build the configuration of `transformers` from settings, without those that name code.

    Raises:
        DataError: if transformers does not know the model, or does not take the settings.
        MissingExtraError: if transformers is not installed.
    """
    family = values.get("model_type")
    if not isinstance(family, str):
        raise DataError(f"model_type: expected the name of a family, got {reprlib.repr(family)}")
    transformers = require("transformers", "hf")
    if family not in transformers.CONFIG_MAPPING:
        code = "; Python in its folder (auto_map) is never run" if "auto_map" in values else ""
        raise DataError(f"model_type {family!r} is known neither here nor to transformers{code}")
    _check_sizes(values)
    with _contained():
        try:
            return transformers.CONFIG_MAPPING[family].from_dict(_harmless(values))
        except Exception as error:
            raise DataError(f"transformers does not take these settings: {cause(error)}") from error


def build_empty(config: Any, kinds: tuple[str, ...] = _KINDS) -> Any:
    """Build a model on the meta device, with the first head of `_KINDS` that its family has.

    Raises:
        DataError: if it cannot be built, or consists of too many parts to be built.
    """
    import torch

    with torch.device("meta"):
        return _build(config, kinds)


def build_random(config: Any, kind: str) -> Any:
    """Build a model with random weights."""
    return _build(config, (kind,), attn_implementation="eager")


def _build(config: Any, kinds: tuple[str, ...], **options: Any) -> Any:
    transformers = require("transformers", "hf")
    failed: Exception | None = None
    for name in kinds:
        with _contained(), _bounded(config.model_type):
            try:
                return getattr(transformers, name).from_config(config, trust_remote_code=False, **options)
            except ValueError as error:  # the family has no such head
                if isinstance(error, PlaitError):
                    raise
                failed = failed or error
            except MemoryError:
                raise
            except Exception as error:
                raise DataError(f"transformers cannot build {config.model_type!r}: {cause(error)}") from error
    raise DataError(f"transformers cannot build {config.model_type!r}: {cause(failed)}")


def weights_of(folder: Path, values: dict[str, Any]) -> Path | None:
    """Return the file of a folder's weights that `transformers` would read, or None if there is none.

    Raises:
        DataError: if a file of weights lies outside the folder or is not a regular file.
    """
    named = values.get("transformers_weights")
    if named is not None and not isinstance(named, str):
        raise DataError(f"transformers_weights: expected the name of a file, got {reprlib.repr(named)}")
    names = _WEIGHTS if named is None else (named,)
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if named is not None:
        if path is None:
            raise DataError(f"{folder}: transformers_weights names {named!r}, which is not there")
        _check_inside(folder, named)
    if path is None:
        return None
    _check_plain(path)
    if path.name.endswith(".index.json"):
        for shard in _shards(path):
            _check_plain(_check_inside(folder, shard))
    return path


def load_weights(folder: Path, config: Any, kind: str) -> tuple[Any, list[str]]:
    """Load a model with a folder's weights; return it and the names of the tensors that were not in them.

    Pickles are read as `torch.load` reads them with `weights_only`: tensors and plain values, no objects.

    Raises:
        DataError: if the files are damaged or do not fit the configuration.
    """
    transformers = require("transformers", "hf")
    with _contained():
        try:
            model, report = getattr(transformers, kind).from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # named in an error below
                output_loading_info=True,
            )
        except MemoryError:
            raise
        except UnpicklingError as error:  # its own message says how to run what is in the file
            raise DataError(
                f"{folder}: its weights cannot be loaded: expected tensors alone, got a pickle that is "
                "damaged or holds other objects; save them as safetensors"
            ) from error
        except Exception as error:
            raise DataError(f"{folder}: its weights cannot be loaded: {cause(error)}") from error
    differing = sorted(report.get("mismatched_keys", ()))
    if differing:
        name, there, expected = differing[0]
        shapes = f"{name} has {tuple(there)}, expected {tuple(expected)}"
        raise DataError(f"{folder}: its weights do not fit its config.json: {shapes}")
    return model, sorted(map(str, report.get("missing_keys", ())))


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a model's folder; Python files in the folder are never run.

    Raises:
        DataError: if the folder has none, or transformers cannot read it.
    """
    transformers = require("transformers", "hf")
    with _contained():
        try:
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except MemoryError:
            raise
        except Exception as error:
            raise DataError(f"{folder}: its tokenizer cannot be loaded: {cause(error)}") from error


def load_gguf(path: Path) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer from a .gguf file, its weights as float32.

    Raises:
        DataError: if the file is damaged, or transformers does not read models of its family.
        MissingExtraError: if gguf or accelerate is not installed.
    """
    transformers = require("transformers", "hf")
    for package in ("gguf", "accelerate"):
        require(package, "gguf")
    import torch

    with _contained():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
            )
            read = transformers.AutoModelForCausalLM.from_pretrained(
                path.parent,
                gguf_file=path.name,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
            )
            config = read.config
            vars(config).pop("quantization_config", None)  # the weights are plain numbers now
            end = config.eos_token_id
            if isinstance(end, int) and tokenizer.eos_token_id != end:
                # transformers 5.17 gives some tokenizers the token that begins a turn for its end
                tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
            model = build_empty(config, ("AutoModelForCausalLM",))
            missing, unexpected = model.load_state_dict(read.state_dict(), strict=False, assign=True)
        except (PlaitError, MemoryError):
            raise
        except Exception as error:
            raise DataError(f"{path}: cannot be read as a GGUF model: {cause(error)}") from error
    if missing or unexpected:
        raise DataError(f"{path}: its tensors do not fit the model, {(missing + unexpected)[0]} among them")
    return model, tokenizer


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model as safetensors and its tokenizer, with the read permissions of the folder."""
    with _contained():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for path in folder.iterdir():  # the weights come readable by their owner alone
        path.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cause(error: BaseException | None, most: int = 300) -> str:
    """Return the message of a library's error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 1] + "…"


def _harmless(value: Any) -> Any:
    """Remove, at every depth, the settings that would run or download code."""
    if isinstance(value, dict):
        return {key: _harmless(part) for key, part in value.items() if key not in _CODE}
    return [_harmless(part) for part in value] if isinstance(value, list) else value


def _check_sizes(values: Any, path: str = "") -> None:
    """Refuse numbers of layers or heads over which a constructor would loop for hours."""
    if isinstance(values, dict):
        for key, value in values.items():
            _check_sizes(value, key)
    elif isinstance(values, list):
        for value in values:
            _check_sizes(value, path)
    elif isinstance(values, int | float) and not isinstance(values, bool):
        most = _MOST_LAYERS if _LAYERS.search(path) else _MOST_OF_A_KIND
        if (path.startswith(("num_", "n_")) or _LAYERS.search(path)) and path not in _WIDE and values > most:
            raise DataError(f"{path}: expected at most {most:,}, got {reprlib.repr(values)}")


_WIDE = {"n_embd", "n_embed", "n_inner", "n_ctx", "n_positions", "num_parameters", "n_words"}


@contextmanager
def _contained() -> Iterator[None]:
    """Keep `transformers` offline and silent, and raise its errors in one line."""
    transformers = require("transformers", "hf")
    hub: Any = require("huggingface_hub.constants", "hf")
    log = transformers.utils.logging
    offline, verbosity, bar = hub.HF_HUB_OFFLINE, log.get_verbosity(), log.is_progress_bar_enabled()
    with ExitStack() as restore, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restore.callback(setattr, hub, "HF_HUB_OFFLINE", offline)
        restore.callback(log.set_verbosity, verbosity)
        if bar:
            restore.callback(log.enable_progress_bar)
        hub.HF_HUB_OFFLINE = True
        log.set_verbosity(log.CRITICAL)
        log.disable_progress_bar()
        yield


@contextmanager
def _bounded(family: str) -> Iterator[None]:
    """Stop a constructor that takes too long: any setting may create a million modules."""
    from torch.nn.modules import module as nn_module

    began, count = time.thread_time(), 0

    def registered(module: Any, name: str, part: Any) -> None:
        nonlocal count
        count += 1
        if count > _MOST_MODULES or (count % 64 == 0 and time.thread_time() - began > _LONGEST_BUILD):
            raise DataError(
                f"{family}: expected at most {_MOST_MODULES:,} modules and parameters, built within "
                f"{_LONGEST_BUILD:.0f} s, got at least {count:,}; take fewer layers"
            )

    hooks = (
        nn_module.register_module_module_registration_hook(registered),
        nn_module.register_module_parameter_registration_hook(registered),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _shards(index: Path) -> list[str]:
    """Return the file names in an index of shards."""
    try:
        names = json.loads(plain_bytes(index, _MOST_INDEX).decode("utf-8"))["weight_map"]
        shards = sorted(set(names.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{index}: expected a list of shards, weight_map ({cause(error)})") from error
    if not all(isinstance(name, str) for name in shards):
        raise DataError(f"{index}: expected names of files in weight_map")
    return shards


def _check_inside(folder: Path, name: str) -> Path:
    """Return the path of a file and check that it lies in the folder, following links."""
    path, real = folder / name, folder.resolve()
    roots = [real]
    if real.parent.name == "snapshots":  # in the cache of the Hub, snapshots link to blobs next to them
        roots.append(real.parent.parent / "blobs")
    try:
        inside = any(path.resolve().is_relative_to(root) for root in roots)
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside or Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(
            f"{folder}: expected its weights inside it, got {reprlib.repr(name)}; copy them there"
        )
    return path


def _check_plain(path: Path) -> None:
    """Refuse a missing file and anything but a regular file: a pipe could block."""
    try:
        plain = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not plain:
        raise DataError(f"{path}: expected a plain file of weights")


def one_line_errors(function: Callable[..., Any], about: str) -> Callable[..., Any]:
    """Wrap a forward pass, so that its errors become errors about the settings or the input."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with _contained():
                return function(*args, **kwargs)
        except (PlaitError, MemoryError):
            raise
        except Exception as error:
            raise ConfigError(f"{about}: {type(error).__name__}: {cause(error)}") from error

    return wrapped
