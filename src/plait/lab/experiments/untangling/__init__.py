"""Tables and figures of "Untangling tradeoffs between recurrence and self-attention" (Kerg et al., 2020)."""

from collections.abc import Callable

from plait.lab.experiments.description import Experiment
from plait.lab.experiments.untangling.attention import figure10, figure11
from plait.lab.experiments.untangling.curves import figure4, figure5, figure6
from plait.lab.experiments.untangling.denoise import denoise
from plait.lab.experiments.untangling.figure2 import figure2
from plait.lab.experiments.untangling.figure3 import figure3
from plait.lab.experiments.untangling.mnist_and_treebank import figure7, figure8, figure9, table8, table9
from plait.lab.experiments.untangling.recipes import recipes
from plait.lab.experiments.untangling.size import FULL, SMOKE, Size
from plait.lab.experiments.untangling.table4 import table4
from plait.lab.experiments.untangling.table5 import table5
from plait.lab.experiments.untangling.transfer import transfer

__all__ = ["BY_RECIPE", "FULL", "ITEMS", "SMOKE", "Size"]

ITEMS: tuple[Callable[[Size], Experiment], ...] = (table4, figure7, figure9, recipes)
# by the published recipe, or by ours
BY_RECIPE: tuple[Callable[[Size, str], Experiment], ...] = (
    table5,
    denoise,
    transfer,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    figure8,
    figure10,
    figure11,
    table8,
    table9,
)
