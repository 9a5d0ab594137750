"""Text as characters: Penn Treebank in the usual spelling, or any text file.

Every line is stripped, its blanks become `_`, and its end becomes one symbol, `<eos>`. A word `<unk>` stays
as it is written, five characters. Penn Treebank then has 50 symbols and 5,017,482 / 393,042 / 442,423 of
them to train, to validate and to test on.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, DataError

__all__ = ["EOS", "CharacterText", "find_treebank", "read_text", "spell"]

EOS = "<eos>"
_END = "\n"  # inside strings the end of a line is this one character, so that a line is a plain string
_SHARES = (0.9, 0.95)  # where one file alone is cut into three
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class CharacterText:
    """Three parts as arrays of places in `symbols`."""

    symbols: tuple[str, ...]
    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What identifies the text in a record: sizes and a hash of every symbol in order."""
        digest = hashlib.sha256("\0".join(self.symbols).encode())
        for part in (self.train, self.valid, self.test):
            digest.update(part.astype(np.int32).tobytes())
        return {
            "symbols": len(self.symbols),
            **{name: len(getattr(self, name)) for name in _PARTS},
            "sha256": digest.hexdigest()[:16],
        }


def spell(text: str) -> str:
    r"""Strip lines and write blanks as `_`; the end of each line stays as `\n` (`EOS` in `symbols`).

    >>> spell(" no <unk> here \n\nbut\n")
    'no_<unk>_here\n\nbut\n'
    """
    return "".join(line.strip().replace(" ", "_") + _END for line in text.splitlines())


def read_text(paths: Sequence[str | Path]) -> CharacterText:
    """Three files (to train, to validate, to test), or one that is cut 90 : 5 : 5; `.gz` is unpacked.

    Symbols that occur only in the held-out parts are part of the vocabulary too.
    """
    if len(paths) not in (1, 3):
        raise ConfigError(f"text: expected one file, or three (train, valid, test), got {len(paths)}")
    spelled = [spell(_read(Path(path))) for path in paths]
    if len(spelled) == 1:
        first, second = (int(share * len(spelled[0])) for share in _SHARES)
        spelled = [spelled[0][:first], spelled[0][first:second], spelled[0][second:]]
    symbols = sorted(set().union(*spelled))
    train, valid, test = (_encode(part, symbols) for part in spelled)
    return CharacterText(tuple(EOS if s == _END else s for s in symbols), train, valid, test)


def find_treebank() -> list[Path]:
    """The three files of Penn Treebank under `$PLAIT_DATA/ptb`, or an error that says where it looked."""
    root = os.environ.get("PLAIT_DATA", "")
    if not root:
        raise DataError(
            "no text: PLAIT_DATA is not set; set it to a folder with ptb/ptb.train.txt, ptb.valid.txt and "
            "ptb.test.txt (plain or .gz), or pass --text FILE (one file, or train valid test)"
        )
    found = []
    for part in _PARTS:
        candidates = [Path(root) / "ptb" / f"ptb.{part}.txt{ending}" for ending in ("", ".gz")]
        existing = [path for path in candidates if path.exists()]
        if not existing:
            raise DataError(
                f"no text: looked for {candidates[0]} and {candidates[1]}; put it there, set PLAIT_DATA "
                "to another folder, or pass --text FILE (one file, or train valid test)"
            )
        found.append(existing[0])
    return found


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode()
    except (OSError, EOFError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error
    if not text.strip():
        raise DataError(f"{path} holds no text")
    return text


def _encode(text: str, symbols: list[str]) -> NDArray[np.int64]:
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    return np.searchsorted(np.array([ord(s) for s in symbols], dtype=np.uint32), codes).astype(np.int64)
