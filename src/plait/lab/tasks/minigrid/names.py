"""Registry of the MiniGrid environments by short names, and a check of transfer between them."""

from __future__ import annotations

from plait.errors import ConfigError, match_choice

__all__ = ["BACKENDS", "WORLDS", "check_transfer", "full_id", "words_of", "world_named"]

BACKENDS = ("minigrid", "envpool")
_COLOURS = "blue green grey purple red yellow "
# The vocabulary of a family's missions, and the sizes of its environments.
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
WORLDS: tuple[str, ...] = tuple(sorted(_FAMILY))
# Names in the supplement's table, which omits the number of objects.
_SHORTER = {name.rpartition("-N")[0]: name for name in WORLDS if "-N" in name}


def world_named(name: str) -> str:
    """Return the short name of an environment, from itself, the table's shorter form or the full id.

    >>> world_named("MiniGrid-DoorKey-5x5-v0"), world_named("Fetch-8x8")
    ('DoorKey-5x5', 'Fetch-8x8-N3')
    >>> world_named("DorKey-5x5")
    Traceback (most recent call last):
        ...
    plait.errors.UnknownNameError: unknown environment 'DorKey-5x5': did you mean 'DoorKey-5x5' or ...
    """
    short = name.removeprefix("MiniGrid-").removesuffix("-v0")
    return match_choice(_SHORTER.get(short, short), WORLDS, "environment", name)


def full_id(name: str) -> str:
    """Return the environment id of both backends.

    >>> full_id("MemoryS7")
    'MiniGrid-MemoryS7-v0'
    """
    return f"MiniGrid-{name}-v0"


def words_of(name: str) -> frozenset[str]:
    """Return every word that may occur in the missions of an environment."""
    return frozenset(_FAMILIES[_FAMILY[name]][0].split())


def check_transfer(trained: str, tested: str) -> None:
    """Refuse a test environment whose missions hold words that do not occur in training.

    >>> check_transfer("DoorKey-5x5", "DoorKey-16x16")
    >>> check_transfer("DoorKey-5x5", "GoToDoor-8x8")
    Traceback (most recent call last):
        ...
    plait.errors.ConfigError: test_env: GoToDoor-8x8 does not match DoorKey-5x5: its missions hold words ...
    """
    strange = sorted(words_of(tested) - words_of(trained))
    if strange:
        shown = ", ".join(map(repr, strange[:3])) + (", …" if len(strange) > 3 else "")
        siblings = [world for world in WORLDS if _FAMILY[world] == _FAMILY[trained] and world != trained]
        raise ConfigError(
            f"test_env: {tested} does not match {trained}: its missions hold words that were never seen in "
            f"training ({shown}); test in {' or '.join(siblings)}"
        )
