"""Data layouts of the NPU in DRAM: pack and unpack functions on numpy arrays.

The functions do not depend on registers or quantisation; the facts are those of [HW 3].
"""

from __future__ import annotations

from rkcosim.spec.layouts.features import (
    ATOM_BYTES,
    argb_pitch,
    atom_channels,
    pack_argb,
    pack_feature,
    surfaces,
    unpack_argb,
    unpack_feature,
)
from rkcosim.spec.layouts.operands import (
    pack_alu_table,
    pack_bs_table,
    unpack_alu_table,
    unpack_bs_table,
)
from rkcosim.spec.layouts.weights import (
    CHANNEL_GROUP,
    DEPTHWISE_GROUP,
    KERNEL_GROUP,
    depthwise_bytes,
    pack_weights,
    pack_weights_depthwise,
    padded_channels,
    padded_kernels,
    unpack_weights,
    unpack_weights_depthwise,
    weights_bytes,
)

__all__ = [
    "ATOM_BYTES",
    "CHANNEL_GROUP",
    "DEPTHWISE_GROUP",
    "KERNEL_GROUP",
    "argb_pitch",
    "atom_channels",
    "depthwise_bytes",
    "pack_alu_table",
    "pack_argb",
    "pack_bs_table",
    "pack_feature",
    "pack_weights",
    "pack_weights_depthwise",
    "padded_channels",
    "padded_kernels",
    "surfaces",
    "unpack_alu_table",
    "unpack_argb",
    "unpack_bs_table",
    "unpack_feature",
    "unpack_weights",
    "unpack_weights_depthwise",
    "weights_bytes",
]
