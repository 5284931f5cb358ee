"""Programs that make the checked-in results of the package: fits, calibrations, measured effects.

They are run in a checkout as `python -m tools.NAME` and are not part of the wheel.
"""
