"""`python -m plait.depthwidth` is `plait rank`."""

from plait.lab.cli import entry

entry("rank")
