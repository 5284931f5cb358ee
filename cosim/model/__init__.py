"""The Python interface to models: `load` makes a `Model`, whose methods return reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.model.advice import AdviceReport
    from rkcosim.model.model import ClosedError, Model, load
    from rkcosim.model.outputs import Outputs
    from rkcosim.model.reports import (
        AccuracyReport,
        Check,
        ComparisonReport,
        EstimateReport,
        EstimateRow,
        Profile,
        Report,
        SaveError,
        TaskRow,
    )
    from rkcosim.model.signature import ModelTensor, ModelTensors
    from rkcosim.model.tables import MissingExtraError, Table

__all__ = [
    "AccuracyReport",
    "AdviceReport",
    "Check",
    "ClosedError",
    "ComparisonReport",
    "EstimateReport",
    "EstimateRow",
    "MissingExtraError",
    "Model",
    "ModelTensor",
    "ModelTensors",
    "Outputs",
    "Profile",
    "Report",
    "SaveError",
    "Table",
    "TaskRow",
    "load",
]

_HOMES = {
    "advice": ("AdviceReport",),
    "model": ("ClosedError", "Model", "load"),
    "outputs": ("Outputs",),
    "reports": (
        *("AccuracyReport", "Check", "ComparisonReport", "EstimateReport", "Profile", "Report", "SaveError"),
        *("EstimateRow", "TaskRow"),
    ),
    "signature": ("ModelTensor", "ModelTensors"),
    "tables": ("MissingExtraError", "Table"),
}

__getattr__ = lazy(
    __name__, {name: f"rkcosim.model.{module}" for module, names in _HOMES.items() for name in names}
)
