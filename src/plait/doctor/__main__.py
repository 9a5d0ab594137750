"""`python -m plait.doctor` is `plait doctor`."""

from plait.cli import entry

entry("doctor")
