"""Needles: facts hidden in prose and asked for at its end, so that a cache must have kept them unprompted."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.errors import DataError, check_choice
from plait.lab.caches.hiding import SentenceEnds, put_into
from plait.lab.caches.texts import Document, encode

__all__ = ["ANSWER_TOKENS", "NEEDLES", "Needle", "hide", "is_right"]

ANSWER_TOKENS = 12  # tokens of an answer: a space and five digits, with room for one word before them
_EDGE = 0.05  # share of the prose at either end that holds no fact
_KEYS = (
    "anchor",
    "basket",
    "candle",
    "dragon",
    "engine",
    "falcon",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "magnet",
    "needle",
    "orange",
    "pepper",
    "quartz",
    "ribbon",
    "saddle",
    "temple",
)
_NAMES = "BCDFGHJKLMNPQRSTVWXZ"
_HOPS = 3


@dataclass(frozen=True)
class Needle:
    """A prompt, its answer, and where its facts lie, as shares of the prompt's length."""

    kind: str
    number: int
    prompt: tuple[int, ...]
    answer: str
    depths: tuple[float, ...]


@dataclass(frozen=True)
class _Facts:
    """Sentences in the order of the text, the question that ends it, and which of them it needs."""

    sentences: list[str]
    question: str
    answer: str
    needed: tuple[int, ...]


def hide(kind: str, number: int, seed: int, length: int, prose: Document, tokenizer: Any) -> Needle:
    """Hide the facts of one case in prose; the prompt has exactly `length` tokens.

    A case is a function of kind, number and seed alone: keys, answers and depths do not depend on the model.
    Facts are inserted at sentence ends.

    Raises:
        DataError: if `length` leaves no room for the prose.
    """
    rng = random.Random(f"{seed}:{kind}:{number}")
    facts = NEEDLES[check_choice(kind, NEEDLES, "kind of needle")](rng)
    depths = sorted(rng.uniform(_EDGE, 1 - _EDGE) for _ in facts.sentences)
    sentences = [encode(tokenizer, f" {sentence}") for sentence in facts.sentences]
    question = encode(tokenizer, f"\n\n{facts.question}")
    room = length - len(question) - sum(map(len, sentences))
    if room < length // 2:
        raise DataError(
            f"needles: expected room for prose beside {length - room} tokens of facts and question, got "
            f"{length} tokens; take a larger --needle-context"
        )
    if room > len(prose.tokens):
        raise DataError(f"{prose.name}: expected at least {room} tokens of prose, got {len(prose.tokens)}")
    hay = prose.tokens[:room]
    text, begins = put_into(hay, sentences, depths, SentenceEnds(tokenizer)(hay))
    prompt = text + question
    shares = tuple(round(begins[i] / length, 4) for i in facts.needed)
    return Needle(kind, number, tuple(prompt), facts.answer, shares)


def is_right(generated: str, answer: str) -> bool:
    """Return whether the first number in a generated text is the answer, with no digit before or after it.

    >>> is_right(" 48213. The", "48213"), is_right(" 482131", "48213"), is_right("", "48213")
    (True, False, False)
    """
    match = re.search(r"\d+", generated)
    return match is not None and match[0] == answer


def _number(rng: random.Random) -> str:
    return str(rng.randrange(10_000, 100_000))


def _numbers(rng: random.Random, count: int) -> _Facts:
    keys = rng.sample(_KEYS, count)
    values = [_number(rng) for _ in keys]
    wanted = rng.randrange(count)
    sentences = [
        f"The magic number of the {key} is {value}." for key, value in zip(keys, values, strict=True)
    ]
    question = f"The text above mentions the magic number of the {keys[wanted]}."
    ending = f"The magic number of the {keys[wanted]} is"
    return _Facts(sentences, f"{question} {ending}", values[wanted], (wanted,))


def _tracking(rng: random.Random) -> _Facts:
    names = rng.sample(_NAMES, _HOPS)
    value = _number(rng)
    sentences = [f"VAR {names[0]} = {value}."]
    sentences += [f"VAR {b} = VAR {a}." for a, b in itertools.pairwise(names)]
    question = f"Variables may stand for others. The number that VAR {names[-1]} stands for is"
    return _Facts(sentences, question, value, tuple(range(len(sentences))))


# Name -> facts of a case.
NEEDLES: dict[str, Callable[[random.Random], _Facts]] = {
    "one": lambda rng: _numbers(rng, 1),
    "four": lambda rng: _numbers(rng, 4),
    "eight": lambda rng: _numbers(rng, 8),
    "tracking": _tracking,
}
