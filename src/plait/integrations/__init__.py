"""Adapters to other training libraries: `torchrl` (a memory for TorchRL), `trainers` (watch gradients).

Each module needs the library it is named after or says so in one line.
"""
