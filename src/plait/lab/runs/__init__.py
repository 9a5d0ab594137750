"""Run folders: layout, kinds, reading, packing; no other room knows the files in them."""
