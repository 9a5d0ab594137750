"""Registry of the MiniGrid environments by short names, and a check of transfer between them."""

from __future__ import annotations

from plait.errors import ConfigError, match_choice

__all__ = ["BACKENDS", "ENVIRONMENTS", "canonical_name", "check_transfer", "full_id", "mission_words"]

BACKENDS = ("minigrid", "envpool")
_COLOURS = "blue green grey purple red yellow "
# Family -> the words of its missions, and the sizes of its environments.
_FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Empty": ("get to the green goal square", ("5x5", "8x8")),
    "RedBlueDoors": ("open the red door then the blue door", ("6x6", "8x8")),
    "GoToObject": (_COLOURS + "go to the ball box key", ("6x6-N2", "8x8-N2")),
    "Memory": ("go to the matching object at the end of the hallway", ("S7", "S9", "S11", "S13")),
    "GoToDoor": (_COLOURS + "go to the door", ("5x5", "6x6", "8x8")),
    "Fetch": (_COLOURS + "you must go get fetch a ball key", ("5x5-N2", "6x6-N2", "8x8-N3")),
    "DoorKey": (
        "use the key to open the door and then get to the goal",
        ("5x5", "6x6", "8x8", "16x16"),
    ),
}
_FAMILY = {
    f"{family}{'' if size.startswith('S') else '-'}{size}": family
    for family, (_, sizes) in _FAMILIES.items()
    for size in sizes
}
ENVIRONMENTS: tuple[str, ...] = tuple(sorted(_FAMILY))
# Names in the table of the paper's supplement, which omits the number of objects.
_PAPER_NAMES = {name.rpartition("-N")[0]: name for name in ENVIRONMENTS if "-N" in name}


def canonical_name(name: str) -> str:
    """Return the short name of an environment, from itself, the table's shorter form or the full id.

    >>> canonical_name("MiniGrid-DoorKey-5x5-v0"), canonical_name("Fetch-8x8")
    ('DoorKey-5x5', 'Fetch-8x8-N3')
    >>> canonical_name("DorKey-5x5")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown environment 'DorKey-5x5': did you mean 'DoorKey-5x5' or ...
    """
    short = name.removeprefix("MiniGrid-").removesuffix("-v0")
    return match_choice(_PAPER_NAMES.get(short, short), ENVIRONMENTS, "environment", name)


def full_id(name: str) -> str:
    """Return the environment id of both backends.

    >>> full_id("MemoryS7")
    'MiniGrid-MemoryS7-v0'
    """
    return f"MiniGrid-{name}-v0"


def mission_words(name: str) -> frozenset[str]:
    """Return every word that may occur in the missions of an environment."""
    return frozenset(_FAMILIES[_FAMILY[name]][0].split())


def check_transfer(trained: str, tested: str) -> None:
    """Refuse a test environment whose missions contain words that do not occur in training.

    >>> check_transfer("DoorKey-5x5", "DoorKey-16x16")
    >>> check_transfer("DoorKey-5x5", "GoToDoor-8x8")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: test_env: GoToDoor-8x8 does not match DoorKey-5x5: its missions contain ...
    """
    unknown_words = sorted(mission_words(tested) - mission_words(trained))
    if unknown_words:
        shown = ", ".join(map(repr, unknown_words[:3])) + (", …" if len(unknown_words) > 3 else "")
        siblings = [env for env in ENVIRONMENTS if _FAMILY[env] == _FAMILY[trained] and env != trained]
        raise ConfigError(
            f"test_env: {tested} does not match {trained}: its missions contain words that do not occur in "
            f"training ({shown}); test in {' or '.join(siblings)}"
        )
