"""Time that the vendor's driver takes for a submit, beside the work of the NPU [HW 12.5]."""

from __future__ import annotations

SUBMIT_PARTS_US = {"submit": 2.5, "interrupt": 2.0, "wake-up": 18.0}
"""Microseconds that parts of the vendor's driver take for each submit of a model: the submit, the interrupt
handler, its threaded part ([HW 12.5], "vendor driver path", ftrace)."""

SUBMIT_US = sum(SUBMIT_PARTS_US.values())
"""Their sum.  A time for each layer was also tried and rejected: fitted to the one network of the fitted
half, it makes the others worse (docs/board_times.md)."""
