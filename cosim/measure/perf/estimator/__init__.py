"""Cycles of any model without simulation, from an analytic model fitted to the RTL's cycles."""

from rkcosim.measure.perf.estimator.estimate import Estimate, LayerEstimate, TaskEstimate, estimate_model

__all__ = ["Estimate", "LayerEstimate", "TaskEstimate", "estimate_model"]
