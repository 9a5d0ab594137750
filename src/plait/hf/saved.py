"""Files of what is trained for one model: tensors as safetensors, and a description in JSON beside them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError, DataError, require
from plait.files import plain_bytes, write_whole, writing

__all__ = ["SavedFormat", "model_checksum"]

_MOST_TENSORS, _MOST_HEADER = 1 << 28, 1 << 20  # bytes


@dataclass(frozen=True)
class SavedFormat:
    """A kind of files: its name and version, the names of its two files, and the fields of its description.

    `noun` names the folder in errors, such as "trained scores"; `defaults` are fields that older files lack.
    """

    name: str
    version: int
    noun: str
    tensors: str
    header: str
    fields: dict[str, type]
    defaults: dict[str, Any]

    def write(self, folder: Path, module: nn.Module, model: Any, fields: dict[str, Any]) -> str:
        """Write both files; return the SHA-256 of the tensors.

        Raises:
            OutputError: if the folder cannot be written.
        """
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
        content = require("safetensors.torch", "hf").save(tensors)
        digest = hashlib.sha256(content).hexdigest()
        header = {
            "format": self.name,
            "version": self.version,
            "model": {**_named(model), "checksum": model_checksum(model)},
            **fields,
            "sha256": digest,
        }
        write_whole(folder / self.tensors, content)
        write_whole(folder / self.header, (json.dumps(header, indent=2, allow_nan=False) + "\n").encode())
        return digest

    def read(self, folder: Path, model: Any) -> tuple[dict[str, Any], bytes]:
        """Return the checked description and the bytes of the tensors.

        Raises:
            ConfigError: for another model.
            DataError: if the files are missing, damaged or of another kind.
        """
        header = self._header(folder / self.header)
        content = self._plain(folder / self.tensors, _MOST_TENSORS)
        if hashlib.sha256(content).hexdigest() != header["sha256"]:
            path = folder / self.tensors
            raise DataError(f"{path}: is damaged or not what {self.header} describes; copy both again")
        self._check_model(header["model"], model, folder)
        return header, content

    def fill(self, module: nn.Module, content: bytes, folder: Path) -> None:
        """Replace all weights of a module by those of a file.

        Raises:
            DataError: for other names, types or shapes, or numbers that are not finite.
        """
        path = folder / self.tensors
        safetensors = require("safetensors", "hf")
        try:
            tensors = require("safetensors.torch", "hf").load(content)
        except safetensors.SafetensorError as error:
            raise DataError(f"{path}: is no safetensors file ({error})") from error
        own = module.state_dict()
        for name in sorted({*own, *tensors}):
            wanted, got = (
                f"{x.dtype} {tuple(x.shape)}" if x is not None else "none"
                for x in (own.get(name), tensors.get(name))
            )
            if wanted != got:
                raise DataError(f"{path}: {name}: expected {wanted}, got {got}")
            if not tensors[name].isfinite().all():
                raise DataError(f"{path}: {name}: expected finite numbers")
        module.load_state_dict(tensors)

    def _plain(self, path: Path, most: int) -> bytes:
        try:
            return plain_bytes(path, most)
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or error
            raise DataError(f"{path}: expected a folder of {self.noun}, cannot read it ({text})") from error

    def _header(self, path: Path) -> dict[str, Any]:
        content = self._plain(path, _MOST_HEADER)
        try:
            header = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: is not JSON ({error})") from error
        named = isinstance(header, dict) and {name: header.get(name) for name in ("format", "version")}
        if named != {"format": self.name, "version": self.version}:
            raise DataError(
                f"{path}: expected format {self.name!r}, version {self.version}, got {named or 'no object'}"
            )
        header = {**self.defaults, **header}
        for name, kind in {"model": dict, **self.fields, "sha256": str}.items():
            if not isinstance(header.get(name), kind):
                raise DataError(f"{path}: {name}: expected {kind.__name__}, got {header.get(name)!r:.80}")
        return header

    def _check_model(self, saved: dict[str, Any], model: Any, folder: Path) -> None:
        here = _named(model)
        if saved.get("type") == here["type"] and saved.get("checksum") == model_checksum(model):
            return
        what = self.noun.removeprefix("trained ")
        raise ConfigError(
            f"{folder}: expected the model the {what} were trained for, {saved.get('name')!s:.80} "
            f"({saved.get('type')!s:.40}, checksum {saved.get('checksum')!s:.12}), got {here['name']} "
            f"({here['type']}) with other weights; load that model or train {what} for this one"
        )


def model_checksum(model: Any) -> str:
    """Return the SHA-256 of a model's weights: names, shapes, and values rounded to bfloat16.

    Rounded, so that the checksum is that of the same weights in float32 and in bfloat16.
    """
    total = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        total.update(f"{name} {tuple(weight.shape)}\n".encode())
        values = weight.detach().to(torch.bfloat16).cpu().contiguous().view(-1)
        total.update(values.view(torch.uint8).numpy().data)
    return total.hexdigest()


def _named(model: Any) -> dict[str, str]:
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    return {"type": str(model.config.model_type), "name": Path(name).name}
