"""Measurements: model runs, speed, comparison with formulas and boards, estimates, shards and reports."""
