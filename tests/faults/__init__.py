"""Faults on purpose: killed processes, damaged folders, hostile files, signals.

`python -m tests.faults --help` repeats any of them by its seed.
"""
