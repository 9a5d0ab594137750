"""Timings and memory against peers on this machine; correctness is checked first."""

__all__: list[str] = []
