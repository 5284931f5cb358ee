"""Naive twins of the blocks: obvious rather than fast, written from docs/hardware.md."""
