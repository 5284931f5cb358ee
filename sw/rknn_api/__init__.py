"""rknn_api.h, rknn_matmul_api.h and rknn_custom_op.h on the simulated device.

The headers' names, values, structs and functions; beside them `use_device`, `last_error`,
`run_report`, `compiled_model` and `loaded_model`.  `sw.rknn_api.session` is a Pythonic layer on top.
"""

from sw.rknn_api import custom_types, matmul_types, types
from sw.rknn_api.api import rknn_destroy, rknn_dup_context, rknn_init
from sw.rknn_api.custom import rknn_custom_op_get_op_attr, rknn_register_custom_ops
from sw.rknn_api.custom_types import *  # noqa: F403  (the header's constants and structs)
from sw.rknn_api.io import (
    rknn_inputs_set,
    rknn_outputs_get,
    rknn_outputs_release,
    rknn_set_internal_mem,
    rknn_set_io_mem,
    rknn_set_weight_mem,
)
from sw.rknn_api.matmul import (
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
from sw.rknn_api.matmul_types import *  # noqa: F403
from sw.rknn_api.memory import (
    rknn_create_mem,
    rknn_create_mem2,
    rknn_create_mem_from_fd,
    rknn_create_mem_from_mb_blk,
    rknn_create_mem_from_phys,
    rknn_destroy_mem,
    rknn_mem_sync,
)
from sw.rknn_api.query import rknn_query
from sw.rknn_api.run import (
    rknn_run,
    rknn_set_batch_core_num,
    rknn_set_core_mask,
    rknn_set_input_shape,
    rknn_set_input_shapes,
    rknn_wait,
)
from sw.rknn_api.state import compiled_model, last_error, loaded_model, run_report, use_device
from sw.rknn_api.types import *  # noqa: F403

__all__ = [
    "compiled_model",
    "last_error",
    "loaded_model",
    "rknn_B_normal_layout_to_native_layout",
    "rknn_create_mem",
    "rknn_create_mem2",
    "rknn_create_mem_from_fd",
    "rknn_create_mem_from_mb_blk",
    "rknn_create_mem_from_phys",
    "rknn_custom_op_get_op_attr",
    "rknn_destroy",
    "rknn_destroy_mem",
    "rknn_dup_context",
    "rknn_init",
    "rknn_inputs_set",
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
    "rknn_mem_sync",
    "rknn_outputs_get",
    "rknn_outputs_release",
    "rknn_query",
    "rknn_register_custom_ops",
    "rknn_run",
    "rknn_set_batch_core_num",
    "rknn_set_core_mask",
    "rknn_set_input_shape",
    "rknn_set_input_shapes",
    "rknn_set_internal_mem",
    "rknn_set_io_mem",
    "rknn_set_weight_mem",
    "rknn_wait",
    "run_report",
    "use_device",
]
__all__ += types.__all__
__all__ += matmul_types.__all__
__all__ += custom_types.__all__
