"""The explorer: a local page for memory, gradients, depth and width, and runs.

Imported only by `plait explore`; it needs the extra `explore`.
"""
