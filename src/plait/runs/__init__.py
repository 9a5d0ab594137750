"""Run folders: layout, kinds, reading, packing; the one place that knows what is in them."""
