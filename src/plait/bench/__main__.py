"""`python -m plait.bench` is `plait bench`."""

from plait.cli import entry

entry("bench")
