"""Formal proofs of blocks of the RTL: each property holds for every input, by induction or to a bounded depth."""
