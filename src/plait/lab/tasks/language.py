"""Character-level language modelling: Penn Treebank, or any text."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from plait.errors import ConfigError, DataError, check_choice, check_int
from plait.lab.tasks.base import HIDDEN, IGNORE, Batch, Task, counted
from plait.lab.tasks.text import END, EOS, CharacterText, encode, find_treebank, read_once, read_text

__all__ = ["LanguageTask", "PennTreebank", "TextTask"]

_HELD_OUT_ROWS = 10  # number of streams of a held-out text, as published
_CARRIED = {"s": "mixed", "h": "hidden"}


@dataclass(frozen=True)
class LanguageTask(Task):
    """Base class: the text as `batch_size` parallel streams, a batch is `span` characters of each.

    Stream r of a text x of N characters is x[rL], x[rL + 1], …, L = (N − 1) // batch_size. The state after a
    span is carried into the next without its gradient, until the streams and with them the epoch end. An
    incomplete span is left out in training. Held-out text is covered completely: every character but the
    first is predicted once.

    Args:
        span: characters per span of truncated backpropagation.
        embedding: size of a character's embedding.
        memory_across_spans: carry the memory too; else it is emptied after every span.
        begin_with: initial state of a span whose memory was emptied: `s`, the last s_T, or `h`, the last h_T.
    """

    carries_state = True
    input_initialiser = "kaiming"
    span: int = 150
    embedding: int = 200
    memory_across_spans: bool = False
    begin_with: str = "s"
    part: str = field(default="train", metadata=HIDDEN)

    def __post_init__(self) -> None:
        check_int(1, span=self.span, embedding=self.embedding)
        check_choice(self.begin_with, _CARRIED, "begin_with")

    def characters(self) -> str:
        r"""Return the vocabulary in order, the end of a line as `\n`."""
        raise NotImplementedError

    def count(self, part: str) -> int:
        """Return the number of characters of a part."""
        raise NotImplementedError

    def _tokens(self, device: torch.device | str) -> Tensor:
        """Return this part's characters as vocabulary indices, on the device."""
        raise NotImplementedError

    @property
    def carried(self) -> str:
        return "all" if self.memory_across_spans else _CARRIED[self.begin_with]

    @property
    def input_size(self) -> int:
        return self.embedding

    @property
    def num_classes(self) -> int:
        return len(self.characters())

    @property
    def vocabulary(self) -> int:
        return self.num_classes

    def prepare(self, device: torch.device | str = "cpu") -> None:
        for part in ("train", "valid", "test"):
            if len(replace(self, part=part)._tokens(device)) < 2:
                raise DataError(
                    f"{self.name}: the part to {part} has no character to predict; give more text"
                )

    def batches_per_epoch(self, batch_size: int) -> int:
        spans = (self.count(self.part) - 1) // batch_size // self.span
        if not spans:
            raise DataError(
                f"{self.name}: expected over {batch_size * self.span} characters (batch size × span), got "
                f"{self.count(self.part)}; lower --span or --batch-size"
            )
        return spans

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        tokens = self._tokens(device)
        spans = self.batches_per_epoch(batch_size)
        length = (len(tokens) - 1) // batch_size
        begin = index % spans * self.span
        inputs, targets = (
            tokens[shift : shift + batch_size * length]
            .view(batch_size, length)[:, begin : begin + self.span]
            .t()
            for shift in (0, 1)
        )
        return Batch(inputs, targets)

    def sweep(
        self,
        sequences: int | None,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """Yield the whole part in ten streams, for any batch size; a sequence is one span of one stream."""
        tokens = self._tokens(device)
        predicted = len(tokens) - 1
        rows = min(_HELD_OUT_ROWS, predicted)
        length = math.ceil(predicted / rows)
        inputs = torch.zeros(rows * length, dtype=torch.int64, device=device)
        targets = torch.full_like(inputs, IGNORE)
        inputs[:predicted], targets[:predicted] = tokens[:-1], tokens[1:]
        begins = range(0, length, self.span)
        for begin in begins if sequences is None else begins[: max(1, sequences // rows)]:
            some = slice(begin, begin + self.span)
            yield Batch(inputs.view(rows, length)[:, some].t(), targets.view(rows, length)[:, some].t())

    def weight(self, targets: Tensor) -> Tensor:
        """Return the number of characters, since the last stream may end before the others."""
        return counted(targets)

    def figures(self, loss: float, predicted: int) -> dict[str, float]:
        """Return bits per character, and the number of predicted characters."""
        return {"bits_per_character": loss / math.log(2), "predicted": predicted}

    def held_out(self) -> Mapping[str, Task]:
        return {"validation": replace(self, part="valid")}

    def tested_on(self) -> Mapping[str, Task]:
        return {"test": replace(self, part="test")}

    @property
    def chance_loss(self) -> float:
        """Loss of a uniform guess: ln of the number of symbols."""
        return math.log(self.num_classes)

    def encode(self, text: str) -> list[int]:
        """Return the vocabulary indices of a typed text; blanks become `_`.

        Raises:
            DataError: if a character is not in the vocabulary.
        """
        return [int(token) for token in encode(text.replace(" ", "_"), self.characters())]

    def decode(self, token: int) -> str:
        """Return the character of a vocabulary index; the inverse of `encode`."""
        return self.characters()[token].replace("_", " ")

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return a piece of the text, and the target of each of its characters."""
        tokens = self._tokens("cpu")
        first = int(
            torch.randint(max(1, len(tokens) - width), (1,), generator=torch.Generator().manual_seed(seed))
        )
        piece = tokens[first : first + min(width, self.span) + 1].tolist()
        text = "".join(self.characters()[token].replace(END, "¶") for token in piece)
        return f"input   {text[:-1]}\ntarget  {text[1:]}"


@dataclass(frozen=True)
class PennTreebank(LanguageTask):
    """Predict the next character of Penn Treebank, 50 symbols.

    >>> PennTreebank().batches_per_epoch(128), PennTreebank().num_classes
    (261, 50)
    """

    name = "ptb"
    counts: ClassVar[Mapping[str, int]] = {"train": 5_017_482, "valid": 393_042, "test": 442_423}

    def characters(self) -> str:
        return "\n#$&'*-./0123456789<>N\\_abcdefghijklmnopqrstuvwxyz"

    def count(self, part: str) -> int:
        return self.counts[part]

    def _tokens(self, device: torch.device | str) -> Tensor:
        return _placed(_treebank(self.characters()), self.part, str(device))


@dataclass(frozen=True)
class TextTask(LanguageTask):
    """Predict the next character of a text of your own.

    Args:
        text: one file, split 90 : 5 : 5, or three, to train, validate and test.
        symbols: vocabulary, by default that of the text; characters outside it are refused.
        sha256: digest of the text; empty to compute it, else verified.
    """

    name = "text"
    text: tuple[str, ...] = ()
    symbols: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "text", _names(self.text))  # JSON has lists
        if self.text and not self.symbols:
            text = read_once(self.text)
            object.__setattr__(self, "symbols", "".join(END if s == EOS else s for s in text.symbols))
            object.__setattr__(self, "sha256", text.fingerprint["sha256"])

    def characters(self) -> str:
        if not self.symbols:
            raise ConfigError("text: expected --text FILE, or --text TRAIN VALID TEST, got none")
        return self.symbols

    def count(self, part: str) -> int:
        return len(getattr(self._read(), part))

    def _read(self) -> CharacterText:
        text = read_once(self.text, self.characters())
        if self.sha256 not in ("", text.fingerprint["sha256"]):
            raise DataError(
                f"{', '.join(self.text)}: expected the text that hashes to {self.sha256}, got "
                f"{text.fingerprint['sha256']}; it was changed since"
            )
        return text

    def _tokens(self, device: torch.device | str) -> Tensor:
        return _placed(self._read(), self.part, str(device))


@lru_cache(maxsize=1)
def _treebank(characters: str) -> CharacterText:
    return read_text(find_treebank(), characters)


def _names(paths: Any) -> tuple[str, ...]:
    try:
        return tuple(os.fspath(path) for path in paths)
    except TypeError as error:
        raise ConfigError(f"text: expected one file, or three, got {paths!r:.80}") from error


@lru_cache(maxsize=9)
def _placed(text: CharacterText, part: str, device: str) -> Tensor:
    """Return a part of a text on the device."""
    return torch.from_numpy(getattr(text, part)).to(device)
