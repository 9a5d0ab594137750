"""Version of plait, read by the build and by `plait --version`."""

__version__ = "0.2.0"
