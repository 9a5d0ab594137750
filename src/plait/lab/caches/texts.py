"""Texts for measuring and training caches: files into documents of tokens, with a held-out part."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, DataError, check_int
from plait.files import plain_bytes

__all__ = ["PARTS", "Document", "documents", "encode", "opening", "part_of", "read_text"]

MOST_TEXT = 1 << 30  # bytes of a file, unpacked
PARTS = ("all", "train", "held-out")
_SHARE = 0.1  # share of the documents that is held out


@dataclass(frozen=True)
class Document:
    """Consecutive tokens of one file: `source` is its name, `start` the number of its first token there."""

    source: str
    start: int
    tokens: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the file's name and the first token's number."""
        return f"{self.source}:{self.start}"


def read_text(path: Path) -> str:
    """Return a file's text, UTF-8, unpacked if its name ends in .gz.

    Raises:
        DataError: if it cannot be read, is too large, or is not UTF-8.
    """
    try:
        content = plain_bytes(path, MOST_TEXT)
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(MOST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(content) > MOST_TEXT:
        raise DataError(f"{path}: expected at most {MOST_TEXT:,} bytes of text, got more")
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected UTF-8 text, got another encoding ({error.reason})") from error


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text without special ones."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens


def opening(tokenizer: Any) -> list[int]:
    """Return the special tokens with which the model's texts begin, such as <s>; many have none."""
    whole_text: list[int] = tokenizer("a")["input_ids"]
    plain = encode(tokenizer, "a")
    ends = [i for i in range(len(whole_text)) if whole_text[i : i + len(plain)] == plain]
    return whole_text[: ends[0]] if ends else []


def documents(paths: Sequence[Path], tokenizer: Any, length: int, most: int | None = None) -> list[Document]:
    """Cut every file into documents of `length` tokens each; the rest of a file is left out.

    Every document begins with the special tokens of `opening`, which count towards its length.

    Args:
        paths: text files; two of the same name are distinguished by a part of their path.
        tokenizer: the model's.
        length: tokens of a document.
        most: largest number of documents per file; all by default.

    Raises:
        DataError: if a file cannot be read, or none has `length` tokens.
    """
    check_int(1, length=length)
    if not paths:
        raise ConfigError("text: expected at least one file; give --text FILE")
    first = opening(tokenizer)
    step = length - len(first)
    check_int(1, length=step)
    pieces: list[Document] = []
    longest = 0
    names = _names(paths)
    texts = [read_text(path) for path in paths]  # tokenised in one call, which uses all cores
    encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    for tokens, source in zip(encoded, names, strict=True):
        longest = max(longest, len(first) + len(tokens))
        starts = range(0, len(tokens) - step + 1, step)
        pieces += [Document(source, i, (*first, *tokens[i : i + step])) for i in starts[:most]]
    if not pieces:
        raise DataError(
            f"text: expected a file of at least {length:,} tokens, the longest of {len(paths)} has "
            f"{longest:,}; give longer files or a smaller --context"
        )
    return pieces


def part_of(pieces: Sequence[Document], part: str) -> list[Document]:
    """Return all documents, those to train on, or the held-out tenth, which is the same on every machine.

    Of several files whole files are held out, in the order of a hash of their names, until they have a tenth
    of the documents; of one file its last tenth. Both parts have at least one document.

    Raises:
        DataError: if there are fewer than two documents to divide.
    """
    if part == "all":
        return list(pieces)
    if len(pieces) < 2:
        raise DataError(f"text: expected at least 2 documents to hold one out, got {len(pieces)}")
    wanted = max(1, round(_SHARE * len(pieces)))
    sources = {piece.source for piece in pieces}
    if len(sources) == 1:
        train, held_out = list(pieces[:-wanted]), list(pieces[-wanted:])
    else:
        chosen = _first_sources(pieces, wanted)
        train = [piece for piece in pieces if piece.source not in chosen]
        held_out = [piece for piece in pieces if piece.source in chosen]
    return held_out if part == "held-out" else train


def _first_sources(pieces: Iterable[Document], wanted: int) -> set[str]:
    """Return the files, by the hash of their names, that have `wanted` documents; one file stays out."""
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.source] = counts.get(piece.source, 0) + 1
    order = sorted(counts, key=lambda source: hashlib.sha256(source.encode()).hexdigest())
    chosen: set[str] = set()
    for source in order[:-1]:
        if sum(counts[name] for name in chosen) >= wanted:
            break
        chosen.add(source)
    return chosen


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that distinguish all files."""
    resolved = [path.resolve().parts for path in paths]
    if len(set(resolved)) < len(resolved):
        raise ConfigError("text: expected every file once, got one twice")
    for length in range(1, max(map(len, resolved)) + 1):
        names = ["/".join(parts[-length:]) for parts in resolved]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("different paths differ somewhere")
