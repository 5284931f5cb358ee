"""Naive models of the blocks: simple rather than fast, written from docs/reference."""
