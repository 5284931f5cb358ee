"""rknn_api.h on the simulated device: the header's names, values, structs and functions.

Beside the header there are `use_device`, `last_error`, `run_report`, `compiled_model` and
`loaded_model`.
"""

from sw.rknn_api import types
from sw.rknn_api.api import (
    rknn_destroy,
    rknn_init,
    rknn_inputs_set,
    rknn_outputs_get,
    rknn_outputs_release,
    rknn_query,
    rknn_run,
)
from sw.rknn_api.state import compiled_model, last_error, loaded_model, run_report, use_device
from sw.rknn_api.types import *  # noqa: F403  (the header's constants and structs)

__all__ = [
    "compiled_model",
    "last_error",
    "loaded_model",
    "rknn_destroy",
    "rknn_init",
    "rknn_inputs_set",
    "rknn_outputs_get",
    "rknn_outputs_release",
    "rknn_query",
    "rknn_run",
    "run_report",
    "use_device",
]
__all__ += types.__all__
