"""Insertion of sentences into prose, at its sentence boundaries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["SentenceEnds", "put_into"]


class SentenceEnds:
    """Finder of the sentence ends in a tokenised text; every token is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._is_end: dict[int, bool] = {}

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """Return the positions after the last token of each sentence or line."""
        for token in set(tokens).difference(self._is_end):
            text = self.tokenizer.decode([token])
            self._is_end[token] = re.search(r"[.!?\n]\s*$", text) is not None
        return [i + 1 for i, token in enumerate(tokens) if self._is_end[token]]


def put_into(
    prose: Sequence[int], sentences: Sequence[Sequence[int]], depths: Sequence[float], ends: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Insert each sentence at the sentence end nearest to its depth; return the text and their positions.

    Args:
        prose: tokens.
        sentences: tokens of each sentence.
        depths: increasing, from 0 to 1.
        ends: where the sentences of the prose end; without any, everything goes into the middle.

    >>> put_into([1, 2, 3, 4], [[8], [9]], [0.2, 0.9], [1, 3])
    ([1, 8, 2, 3, 9, 4], [1, 4])
    """
    text: list[int] = []
    begins: list[int] = []
    done = 0
    for depth, sentence in zip(depths, sentences, strict=True):
        position = min(ends or [len(prose) // 2], key=lambda end: abs(end - depth * len(prose)))
        text += prose[done:position]
        done = max(done, position)
        begins.append(len(text))
        text += sentence
    return text + list(prose[done:]), begins
