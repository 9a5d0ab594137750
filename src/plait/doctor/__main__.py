"""Entry point of `python -m plait.doctor`, the same as `plait doctor`."""

from plait.cli import entry

entry("doctor")
