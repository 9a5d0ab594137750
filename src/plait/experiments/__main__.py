"""`python -m plait.experiments` is `plait reproduce`."""

from plait.cli import entry

entry("reproduce")
