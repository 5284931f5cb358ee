"""Names of everything in a `.rknn` container: header, slots of its flatbuffer's tables, and codes.

The container has no public specification. The meanings were derived from the bytes of public files
(docs/rknn_files.md, "Where the facts come from"). Slots that are not listed have no known meaning and are
ignored.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import Any

import numpy as np

MAGIC = b"RKNN\0\0\0\0"
"""First eight bytes of a readable file."""

ENCRYPTED = b"CYPTRKNN"
"""First eight bytes of an encrypted file."""

HEADER = struct.Struct("<8sQQ")
"""Header: magic, version, size of the flatbuffer in bytes."""

FLATBUFFER_AT = 64
"""Offset of the flatbuffer in the file."""

FLATBUFFER_AT_V1 = 24
"""Offset of the flatbuffer in a file of container version 1, directly behind the header."""

IDENTIFIER = b"RKNN"
"""File identifier of the flatbuffer, at its byte 4."""

TARGET = "rk3588"
"""The supported target platform."""

FORMAT = "RKNPU v2"
"""Name of the format (`Root.GENERATOR`)."""

OURS = "rkcosim"
"""Name of the compiler (`Root.COMPILER`) in files that `rkcosim compile` has written."""


PLATFORMS = re.compile(rb'"target_platform"\s*:\s*\[([^\]]{0,200})\]')
"""The target platforms in the trailing JSON."""

TRAILER_MOST = 1 << 20
"""Number of bytes at the end of a file in which the trailing JSON of an unknown container is looked for."""

CHIPS = {0x1004: "rv1103 or rv1106"}
"""Chips whose files have another version of the container."""


OTHER_NPU = b'"ovxlib_version"'
"""Name in the trailing JSON of files for the chips `OTHER_CHIPS`; those of toolkit 1.2 name no platform
(aciddust/MNIST-RKNN-TF 0a5e6aa, negan1123/behavior_rknn aaae88d)."""

OTHER_CHIPS = "RK1808, RK3399PRO, RV1109 or RV1126"


class Version(IntEnum):
    """Supported versions of the container; 1 and 2 differ only in where the flatbuffer starts."""

    FIRST = 1
    TOOLKIT_1 = 2
    TOOLKIT_2 = 6


class Root(IntEnum):
    """Slots of the root table."""

    VERSION = 0
    GENERATOR = 1
    GRAPHS = 2
    ATTRIBUTES = 3
    SECTIONS_V2 = 4
    COMPILER = 7
    TARGET = 8
    FRAMEWORK = 9
    INPUTS_JSON = 12
    OUTPUTS_JSON = 13
    BATCH = 14
    SHAPES = 16
    SIZES = 19
    SECTIONS = 20
    TOTAL = 21


class Sizes(IntEnum):
    """Slots of the table of sizes, 64-bit numbers of bytes."""

    WEIGHTS = 0
    INTERNAL = 1


class GraphSlot(IntEnum):
    """Slots of a graph."""

    TENSORS = 0
    NODES = 1
    INPUTS = 2
    OUTPUTS = 3
    RELOCATIONS = 7
    INPUT_LAYOUTS = 8
    PLANS = 10


class LayoutSlot(IntEnum):
    """Slots of the tables in `GraphSlot.INPUT_LAYOUTS`: an input, and a table for each task that reads it.

    A table of a task has pairs of a value and the index of the word that holds it (`PITCH`: LINE_STRIDE of
    DMA_CON1); the other pairs are not used here.
    """

    INPUT = 0
    TASKS = 1
    PITCH = 3


class TensorSlot(IntEnum):
    """Slots of a tensor."""

    DTYPE = 0
    LAYOUT = 1
    KIND = 2
    NATIVE = 3
    SHAPE = 4
    NAME = 5
    QUANTISED_BY = 6
    DTYPE_NAME = 7
    LOW = 8
    HIGH = 9
    SCALE = 10
    ZERO_POINT = 11
    BYTES = 12
    OFFSET = 13
    COMPRESSED = 14
    PAYLOADS = 15
    STARTS = 16
    HEADERS = 17
    SECTION = 18


class NodeSlot(IntEnum):
    """Slots of a node."""

    TYPE = 1
    NAME = 2
    TARGET = 3
    INPUTS = 4
    OUTPUTS = 5
    TASKS_V2 = 6
    CODE = 7
    ATTRIBUTES = 8
    MODEL_ATTRIBUTES = 9
    TASKS = 10
    TABLE_TASKS = 11
    ELEMENTS = 12
    CONVOLVES = 13


class TaskSlotV2(IntEnum):
    """Slots of a node's task in version 2."""

    LIST = 0
    TABLE = 1
    FLAGS = 2
    ENABLE = 3
    INTERRUPTS = 4
    RELOCATIONS = 5
    PART = 6
    CORE_MASK = 7
    CORES = 8


class RelocationSlot(IntEnum):
    """Slots of a relocation: all command words that hold an address within one tensor."""

    TENSOR = 0
    WORDS = 1
    PARTS = 2


class Kind(IntEnum):
    """Role of a tensor."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2
    INTERNAL = 3
    CONSTANT = 4
    HOST_CONSTANT = 5
    TABLE = 6
    LIST = 7
    RESIZE_CONSTANT = 8
    """Weights or bias of a depthwise convolution that computes a part of a Resize; no node names it."""
    REGCMD = 9
    TASKS = 10


class Layout(IntEnum):
    """Order of a tensor's elements in memory."""

    PLAIN = 0
    ROW_MAJOR = 2
    NATIVE = 64
    WEIGHTS = 65


DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
}
"""Element types by their codes, which are those of ONNX's `TensorProto.DataType`."""

RAW = 13
"""Code of the element type of command words, records and tables."""

ON_NPU = 2
"""`NodeSlot.TARGET` of a node that the NPU runs; nodes of the host do not have the slot."""

RECORD = struct.Struct("<8IQ")
"""A task record: flags, op_idx, enable_mask, int_mask, int_clear, int_status, regcfg_amount, regcfg_offset,
and the offset of its list (the driver's `struct rknpu_task`)."""

WEIGHT_ALIGN = 64
"""Alignment in bytes to which the size of each constant in the weight buffer is rounded up."""

SURFACE_ATOMS = 4
"""Number of atoms to which the vendor's compiler rounds up a surface of several atoms that the NPU writes."""

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_CONV_TRANSPOSE = (
    "auto_pad",
    "dilations",
    "group",
    "kernel_shape",
    "output_padding",
    "output_shape",
    "pads",
    "strides",
)
_MAX_POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides")
_AVERAGE_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
_RESIZE = ("coordinate_transformation_mode", "", "", "", "mode", "nearest_mode")
ATTRIBUTES = {
    1: _CONV,
    2: _CONV_TRANSPOSE,
    3: _MAX_POOL,
    5: _AVERAGE_POOL,
    18: ("axis",),
    19: ("axis",),
    20: ("axis", "split"),
    25: ("perm",),
    26: _RESIZE,
    34: ("axes", "keepdims"),
}
"""Names of a node's attributes in the order of their slots, by the node's code."""

TEXTS = {"auto_pad", "coordinate_transformation_mode", "mode", "nearest_mode"}
"""Attributes that are text."""

NUMBERS = {"ceil_mode": 1, "count_include_pad": 1, "group": 4, "storage_order": 4, "axis": 4, "keepdims": 4}
"""Attributes that are one number, with its size in bytes; all others are vectors of 32-bit numbers."""

CODES = {
    "Conv": 1,
    "ConvTranspose": 2,
    "MaxPool": 3,
    "AveragePool": 5,
    "Softmax": 18,
    "Concat": 19,
    "Split": 20,
    "Transpose": 25,
    "Resize": 26,
    "ReduceMean": 34,
}
"""Codes of node types; fused convolutions have the code of the convolution."""
