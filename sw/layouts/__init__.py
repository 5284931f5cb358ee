"""Data layouts of the NPU in DRAM: numpy pack and unpack, each with its inverse.

Nothing here knows registers or quantisation; the facts are those of HARDWARE 3.2, 3.3, 3.6 and 3.7.
"""

from __future__ import annotations

from sw.layouts.features import (
    ATOM_BYTES,
    argb_pitch,
    atom_channels,
    pack_argb,
    pack_feature,
    surfaces,
    unpack_argb,
    unpack_feature,
)
from sw.layouts.operands import (
    pack_alu_table,
    pack_bs_table,
    unpack_alu_table,
    unpack_bs_table,
)
from sw.layouts.weights import (
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
