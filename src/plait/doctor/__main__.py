"""Entry point of `python -m plait.doctor`, the same as `plait doctor`."""

from plait.lab.cli import entry

entry("doctor")
