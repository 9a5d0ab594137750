"""One recurrent step, and how its weights begin."""

from plait.cells.base import Cell
from plait.cells.elman import ElmanCell
from plait.cells.gated import GRUCell, LSTMCell
from plait.cells.initialisers import INITIALISERS, initialise_

__all__ = ["INITIALISERS", "Cell", "ElmanCell", "GRUCell", "LSTMCell", "initialise_"]
