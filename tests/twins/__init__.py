"""Naive twins of the blocks: simple rather than fast, written from docs/reference, element by element."""
