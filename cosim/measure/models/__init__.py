"""Runs of a model through `rknn_api` with a report, and comparisons with other runtimes."""
