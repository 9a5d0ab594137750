"""`python -m plait.lab.bench` is `plait bench`."""

from plait.lab.cli import entry

entry("bench")
