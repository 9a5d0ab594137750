"""The explorer: a local page to look at memory, gradients, depth and width, and runs.

Loaded by `plait explore` alone; it needs the extra `explore`.
"""
