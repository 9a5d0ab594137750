"""Missions as tokens of one fixed vocabulary, the same for all environments."""

from __future__ import annotations

from functools import lru_cache

from plait.errors import DataError

__all__ = ["MISSION_LENGTH", "WORDS", "mission_tokens"]

MISSION_LENGTH = 13  # words of the longest mission
# Token = index + 1, 0 is padding. Trained policies depend on the order: append only.
WORDS = (
    "a",
    "and",
    "at",
    "ball",
    "blue",
    "box",
    "door",
    "end",
    "fetch",
    "get",
    "go",
    "goal",
    "green",
    "grey",
    "hallway",
    "key",
    "matching",
    "must",
    "object",
    "of",
    "open",
    "purple",
    "red",
    "square",
    "the",
    "then",
    "to",
    "use",
    "yellow",
    "you",
)
_TOKEN = {word: token for token, word in enumerate(WORDS, start=1)}


@lru_cache(maxsize=1024)
def mission_tokens(mission: str) -> tuple[int, ...]:
    """Return a mission as `MISSION_LENGTH` tokens, zeros after the last word.

    >>> mission_tokens("go to the red door")
    (11, 27, 25, 23, 7, 0, 0, 0, 0, 0, 0, 0, 0)
    """
    words = mission.split()
    unknown = [word for word in words if word not in _TOKEN]
    if unknown or len(words) > MISSION_LENGTH:
        raise DataError(
            f"mission {mission!r}: expected at most {MISSION_LENGTH} words of the fixed vocabulary, got "
            + (f"the word {unknown[0]!r}" if unknown else f"{len(words)} words")
        )
    return tuple(_TOKEN[word] for word in words) + (0,) * (MISSION_LENGTH - len(words))
