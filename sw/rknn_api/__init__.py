"""rknn_api.h, rknn_matmul_api.h and rknn_custom_op.h on the simulated device.

The package has the names, values, structs and functions of the headers, and in addition `use_device`,
`last_error`, `run_report`, `compiled_model` and `loaded_model`. `rkcosim.rknn_api.session` is a Pythonic
layer on top.
"""

# ruff: noqa: F401  (every name of the headers is exported, see __all__)

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy
from rkcosim.rknn_api.api import rknn_destroy, rknn_dup_context, rknn_init
from rkcosim.rknn_api.custom_types import *  # noqa: F403  (the header's constants and structs)
from rkcosim.rknn_api.io import (
    rknn_inputs_set,
    rknn_outputs_get,
    rknn_outputs_release,
    rknn_set_internal_mem,
    rknn_set_io_mem,
    rknn_set_weight_mem,
)
from rkcosim.rknn_api.matmul_types import *  # noqa: F403
from rkcosim.rknn_api.memory import (
    rknn_create_mem,
    rknn_create_mem2,
    rknn_create_mem_from_fd,
    rknn_create_mem_from_mb_blk,
    rknn_create_mem_from_phys,
    rknn_destroy_mem,
    rknn_mem_sync,
)
from rkcosim.rknn_api.query import rknn_query
from rkcosim.rknn_api.run import (
    rknn_run,
    rknn_set_batch_core_num,
    rknn_set_core_mask,
    rknn_set_input_shape,
    rknn_set_input_shapes,
    rknn_wait,
)
from rkcosim.rknn_api.state import compiled_model, last_error, loaded_model, run_report, use_device
from rkcosim.rknn_api.types import *  # noqa: F403

if TYPE_CHECKING:
    from rkcosim.rknn_api.custom import rknn_custom_op_get_op_attr, rknn_register_custom_ops
    from rkcosim.rknn_api.matmul import (
        rknn_B_normal_layout_to_native_layout,
        rknn_matmul_create,
        rknn_matmul_create_dyn_shape,
        rknn_matmul_create_dynamic_shape,
        rknn_matmul_destroy,
        rknn_matmul_get_quant_params,
        rknn_matmul_run,
        rknn_matmul_set_core_mask,
        rknn_matmul_set_dynamic_shape,
        rknn_matmul_set_io_mem,
        rknn_matmul_set_quant_params,
    )

_PRODUCTS = dict.fromkeys(
    (
        "rknn_B_normal_layout_to_native_layout",
        "rknn_matmul_create",
        "rknn_matmul_create_dyn_shape",
        "rknn_matmul_create_dynamic_shape",
        "rknn_matmul_destroy",
        "rknn_matmul_get_quant_params",
        "rknn_matmul_run",
        "rknn_matmul_set_core_mask",
        "rknn_matmul_set_dynamic_shape",
        "rknn_matmul_set_io_mem",
        "rknn_matmul_set_quant_params",
    ),
    "rkcosim.rknn_api.matmul",
)
"""The functions of rknn_matmul_api.h, which need a part of the compiler that models do not."""

_CUSTOM = dict.fromkeys(("rknn_custom_op_get_op_attr", "rknn_register_custom_ops"), "rkcosim.rknn_api.custom")
__getattr__ = lazy(__name__, _PRODUCTS | _CUSTOM)

__all__ = [name for name in (*dir(), *_PRODUCTS, *_CUSTOM) if name.startswith(("RKNN_", "rknn_", "get_"))]
__all__ += ["compiled_model", "last_error", "loaded_model", "run_report", "use_device"]

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.rknn_api")
