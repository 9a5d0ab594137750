"""`python -m plait` is the same as `plait`."""

from plait.lab.cli import entry

entry()
