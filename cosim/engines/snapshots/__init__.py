"""Engines saved at a border between tasks, and gone on with in another process (docs/snapshots.md)."""
