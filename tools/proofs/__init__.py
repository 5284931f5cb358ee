"""Formal proofs of blocks of the RTL: properties that hold for all inputs, in all cycles or to a depth."""
