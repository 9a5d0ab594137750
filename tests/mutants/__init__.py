"""Mutation testing: small faults put into a copy of the source, and the tests that ought to notice them."""
