"""DIOPI's operators in numpy: arithmetic in float64, rounded once to the type of the result."""
