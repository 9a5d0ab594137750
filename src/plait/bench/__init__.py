"""Timings against peers on this machine; correctness is checked first."""
