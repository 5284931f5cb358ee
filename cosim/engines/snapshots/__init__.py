"""Saving engines at a border between tasks, and resuming them in another process (docs/snapshots.md)."""
