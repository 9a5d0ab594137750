"""A typed function per command: it calls the library and returns what to show; `cli` parses and prints."""
