"""Tables of the results pages, each computed from the archives beside its page."""
