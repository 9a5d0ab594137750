"""`python -m plait.lab.experiments` is `plait reproduce`."""

from plait.lab.cli import entry

entry("reproduce")
