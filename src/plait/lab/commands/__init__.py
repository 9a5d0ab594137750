"""Typed functions, one per command: they call the library and return a result; `cli` parses and prints."""
