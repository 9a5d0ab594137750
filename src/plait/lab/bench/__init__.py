"""Benchmarks of time and memory against other libraries; every backend is checked for parity first."""

__all__: list[str] = []
