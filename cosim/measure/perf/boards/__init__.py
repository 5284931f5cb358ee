"""Comparison of published measurements of boards with the RTL (`rkcosim validate`)."""
