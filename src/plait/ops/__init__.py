"""Pure tensor functions: the steps a model is made of, and the scans that fuse them.

`steps`, `attention`, `slots` and `walk` are the definition, in plain torch. A folder that ends in `_scan`
holds one fused scan: its `reference.py` is made of the steps here, its other files must match it, and its
`naive.py` is a version for readers, in a screenful of torch alone. `lifetimes` and `bounded_attention` are a
bounded memory for all steps at once; `naive.py` is their definition.
"""
