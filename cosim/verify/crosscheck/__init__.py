"""Comparison of the RTL with the golden models."""
