"""Bounded caches for language models of `transformers`: what to keep of a text, at a fixed size.

Needs `pip install 'plait[hf]'`. `BoundedCache` goes into a model's own `generate(past_key_values=...)`.
"""

from plait.hf.adapters import Adapter
from plait.hf.cache import BoundedCache
from plait.hf.policies import POLICIES
from plait.hf.scores import Scores

__all__ = ["POLICIES", "Adapter", "BoundedCache", "Scores"]
