"""Text as characters: Penn Treebank in its usual character-level form, or any text file.

Every line is stripped, its blanks become `_`, and its end becomes one symbol, `<eos>`. A word `<unk>` stays
five characters. Penn Treebank then has a vocabulary of 50 symbols and 5,017,482 / 393,042 / 442,423
characters for training, validation and test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, DataError
from plait.lab.tasks.sources import TREEBANK, locate, read_bytes

__all__ = ["END", "EOS", "CharacterText", "encode", "find_treebank", "read_once", "read_text", "spell"]

EOS = "<eos>"
END = "\n"  # stands for EOS inside strings, so that every symbol is one character
_SHARES = (0.9, 0.95)  # ends of the parts of a single file
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class CharacterText:
    """Training, validation and test text as arrays of indices into `symbols`."""

    symbols: tuple[str, ...]
    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the text in a record: sizes, and a digest of all symbols in order."""
        digest = hashlib.sha256("\0".join(self.symbols).encode())
        for part in (self.train, self.valid, self.test):
            digest.update(part.astype(np.int32).tobytes())
        return {
            "symbols": len(self.symbols),
            **{name: len(getattr(self, name)) for name in _PARTS},
            "sha256": digest.hexdigest()[:16],
        }


def spell(text: str) -> str:
    r"""Strip lines and replace blanks by `_`; the end of each line stays `\n` (`EOS` in `symbols`).

    >>> spell(" no <unk> here \n\nbut\n")
    'no_<unk>_here\n\nbut\n'
    """
    return "".join(line.strip().replace(" ", "_") + END for line in text.splitlines())


def read_text(paths: Sequence[str | Path], vocabulary: str = "") -> CharacterText:
    r"""Read three files (train, validation, test), or one that is split 90 : 5 : 5; `.gz` is unpacked.

    Args:
        paths: the files.
        vocabulary: the allowed characters, the end of a line as `\n`; left out, those that occur, also in
            the held-out parts.
    """
    if len(paths) not in (1, 3):
        raise ConfigError(f"text: expected one file, or three (train, valid, test), got {len(paths)}")
    spelled = [spell(_read(Path(path))) for path in paths]
    if len(spelled) == 1:
        first, second = (int(share * len(spelled[0])) for share in _SHARES)
        spelled = [spelled[0][:first], spelled[0][first:second], spelled[0][second:]]
    symbols = sorted(vocabulary or set().union(*spelled))
    train, valid, test = (encode(part, symbols) for part in spelled)
    return CharacterText(tuple(EOS if s == END else s for s in symbols), train, valid, test)


def read_once(paths: tuple[str, ...], vocabulary: str = "") -> CharacterText:
    """Read a text as `read_text` does, but only if its files were changed since the last call."""
    stats = [Path(path).stat() if Path(path).exists() else None for path in paths]
    stamps = tuple((0, 0) if stat is None else (stat.st_size, stat.st_mtime_ns) for stat in stats)
    return _read_at(paths, stamps, vocabulary)


@lru_cache(maxsize=2)
def _read_at(paths: tuple[str, ...], stamps: tuple[tuple[int, int], ...], vocabulary: str) -> CharacterText:
    return read_text(paths, vocabulary)


def find_treebank() -> list[Path]:
    """Return the verified files of Penn Treebank: train, validation, test."""
    return [locate(file) for file in TREEBANK]


def _read(path: Path) -> str:
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error
    if not text.strip():
        raise DataError(f"{path} holds no text")
    return text


def encode(text: str, symbols: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices into the sorted `symbols` of the characters of a text from `spell`.

    Raises:
        DataError: if there are characters that are not among the symbols.

    >>> encode("ba", ["a", "b"])
    array([1, 0])
    """
    strange = sorted(set(text).difference(symbols))
    if strange:
        shown = ", ".join(repr(character) for character in strange[:8])
        more = f" and {len(strange) - 8} more" if len(strange) > 8 else ""
        raise DataError(
            f"characters that are not in the vocabulary: {shown}{more}; it has {''.join(symbols)!r}"
        )
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    return np.searchsorted(np.array([ord(s) for s in symbols], dtype=np.uint32), codes).astype(np.int64)
