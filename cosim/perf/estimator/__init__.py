"""Cycles of any model without running it: an analytic model fitted to the RTL's own cycles."""

from __future__ import annotations

from cosim.perf.estimator.estimate import (
    Estimate,
    LayerEstimate,
    TaskEstimate,
    estimate_model,
    estimate_shape,
)

__all__ = ["Estimate", "LayerEstimate", "TaskEstimate", "estimate_model", "estimate_shape"]
