"""The first difference of two runs of the same work."""
