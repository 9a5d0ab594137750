"""Drawing primitives: data in, a file out. matplotlib is imported when something is drawn."""
