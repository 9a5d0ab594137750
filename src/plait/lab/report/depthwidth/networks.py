"""Networks of a depth-width experiment: losses by shape, crossings of curves, distances from the best."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from plait.lab.report.gather import Group
from plait.lab.runs.reading import RunFolder
from plait.lab.strict import parse
from plait.lab.training.characters import CharacterModel, CharacterRecipe, CharacterTask

__all__ = ["Network", "ShapeLoss", "behind", "cells_of", "crossing", "curve_of", "networks_of"]


@dataclass(frozen=True)
class Network:
    """A trained network; losses are nats per character, None where the run diverged or did not get there.

    `fitted` is the mean loss over the last of the recorded pieces of training.
    """

    run: RunFolder
    text: CharacterTask
    shape: CharacterModel
    recipe: CharacterRecipe
    fitted: float | None
    validation: float | None
    test: float | None

    @property
    def diverged(self) -> bool:
        return self.run.status == "diverged"


def networks_of(group: Group) -> list[Network]:
    """Return the networks of a group that were trained to their end or diverged, in the order of the plan."""
    runs = [run for run in group.runs if run.status in ("complete", "diverged")]
    return [_network(run) for run in runs]


def _network(run: RunFolder) -> Network:
    description = run.description
    results = [mark.results for mark in run.marks]
    validation = [r["validation"]["loss"] for r in results if "validation" in r]
    test = [r["test"]["loss"] for r in results if "test" in r]
    return Network(
        run,
        parse(CharacterTask, description["task"], "task"),
        parse(CharacterModel, description["model"], "model"),
        parse(CharacterRecipe, description["recipe"], "recipe"),
        run.losses[-1][1] if run.losses else None,
        validation[-1] if validation else None,
        test[-1] if test else None,
    )


@dataclass(frozen=True)
class ShapeLoss:
    """A shape, its mean test loss over seeds in nats per character, and their spread (largest − smallest)."""

    network: str
    depth: int
    width: int
    parameters: int
    loss: float
    spread: float = 0.0
    seeds: int = 1

    @property
    def bits(self) -> float:
        return self.loss / math.log(2)


def cells_of(networks: Sequence[Network]) -> list[ShapeLoss]:
    """Group the networks that have a test loss by shape; smaller shapes come first."""
    losses: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    for network in networks:
        if network.test is not None:
            shape = network.shape
            losses[shape.name, shape.depth, shape.width, shape.parameters].append(network.test)
    return [
        ShapeLoss(*key, sum(values) / len(values), max(values) - min(values), len(values))
        for key, values in sorted(losses.items())
    ]


def curve_of(cells: Sequence[ShapeLoss], depth: int) -> list[ShapeLoss]:
    """Return the cells of one depth, sorted by size."""
    return sorted((cell for cell in cells if cell.depth == depth), key=lambda cell: cell.parameters)


def at_size(curve: Sequence[ShapeLoss], size: float) -> float | None:
    """Return a curve's loss at a size, interpolated linearly in log parameters; None outside its points.

    >>> at_size([ShapeLoss("softmax", 1, 16, 100, 2.0), ShapeLoss("softmax", 1, 32, 10_000, 1.0)], 1000)
    1.5
    """
    if len(curve) == 1 and curve[0].parameters == size:
        return curve[0].loss
    for left, right in itertools.pairwise(curve):
        if left.parameters <= size <= right.parameters:
            share = math.log(size / left.parameters) / math.log(right.parameters / left.parameters)
            return left.loss + share * (right.loss - left.loss)
    return None


def behind(cells: Sequence[ShapeLoss]) -> dict[ShapeLoss, float]:
    """Return the loss of each cell above the best curve at its size, in nats; 0 for the best.

    Cells of sizes that no other curve covers are left out, as there is nothing to compare them with.

    >>> shallow = [ShapeLoss("softmax", 1, 16, 100, 2.0), ShapeLoss("softmax", 1, 32, 10_000, 1.0)]
    >>> behind([*shallow, ShapeLoss("softmax", 2, 16, 1000, 1.75)]).values()
    dict_values([0.25])
    """
    curves = {depth: curve_of(cells, depth) for depth in {cell.depth for cell in cells}}
    gaps = {}
    for cell in cells:
        others = [at_size(curve, cell.parameters) for depth, curve in curves.items() if depth != cell.depth]
        reached = [loss for loss in others if loss is not None]
        if reached:
            gaps[cell] = max(0.0, cell.loss - min(reached))
    return gaps


def crossing(shallow: Sequence[ShapeLoss], deep: Sequence[ShapeLoss]) -> float | None:
    """Return the parameters from which the deeper curve stays below the shallower one, as far as both extend.

    None if it does not end below, 0 if it is below everywhere.

    >>> shallow = [ShapeLoss("softmax", 1, 16, 100, 2.0), ShapeLoss("softmax", 1, 32, 10_000, 1.8)]
    >>> deep = [ShapeLoss("softmax", 2, 16, 100, 2.1), ShapeLoss("softmax", 2, 32, 10_000, 1.7)]
    >>> crossing(shallow, deep), crossing(deep, shallow)
    (1000.0, None)
    """
    leads = []  # (size, difference of losses), positive where the deeper curve is better
    for size in sorted({cell.parameters for cell in (*shallow, *deep)}):
        here, there = at_size(shallow, size), at_size(deep, size)
        if here is not None and there is not None:
            leads.append((size, here - there))
    if not leads or leads[-1][1] <= 0:
        return None
    for (size, lead), (larger, later) in reversed(list(itertools.pairwise(leads))):
        if lead <= 0:
            share = lead / (lead - later)
            return round(math.exp(math.log(size) + share * math.log(larger / size)), 6)
    return 0.0
