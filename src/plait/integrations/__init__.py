"""Adapters to other training libraries: `torchrl` (a memory for TorchRL), `trainers` (watch gradients).

Each module needs its library, and raises a one-line error if that is not installed.
"""
