"""Entry point of `python -m plait`, which is the same as `plait`."""

from plait.lab.cli import entry

entry()
