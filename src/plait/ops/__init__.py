"""Pure tensor functions: the steps a model is made of, and the scans that fuse them.

`steps`, `attention`, `slots` and `walk` are the definition, in plain torch. A folder holds one fused
scan: its `reference.py` is made of the steps here, its other files must match it.
"""
