"""Bounded caches of language models: opening models, reading texts, measuring what a small cache costs."""
