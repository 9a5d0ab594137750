"""`python -m plait.depthwidth` is `plait rank`."""

from plait.cli import entry

entry("rank")
