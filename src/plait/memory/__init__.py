"""Memory policies: the past states that can be read. A memory has no weights; its state is a value."""

from plait.memory.bounded import RelevancyMemory, UniformMemory, WindowMemory
from plait.memory.growing import FullMemory, TopKMemory
from plait.memory.policy import Memory, NoMemory

__all__ = [
    "FullMemory",
    "Memory",
    "NoMemory",
    "RelevancyMemory",
    "TopKMemory",
    "UniformMemory",
    "WindowMemory",
]
