"""Mutation check: small faults in RTL or golden sources, and the share of them that conformance finds."""
