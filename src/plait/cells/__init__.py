"""Recurrent cells: one step of recurrence and the initialisation of its weights."""

from plait.cells.base import Cell, Step
from plait.cells.elman import ElmanCell
from plait.cells.gated import GatedCell, GRUCell, LSTMCell
from plait.cells.initialisers import INITIALISERS, initialise_
from plait.cells.orthogonal import keep_orthogonal, orthogonal_parameters

__all__ = [
    "INITIALISERS",
    "Cell",
    "ElmanCell",
    "GRUCell",
    "GatedCell",
    "LSTMCell",
    "Step",
    "initialise_",
    "keep_orthogonal",
    "orthogonal_parameters",
]
