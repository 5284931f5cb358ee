"""Parameters of LiteRT's operators: C structures of the runtime, and the options of the file format.

The runtime keeps the options of each operator as a C structure.  Names, types and order of the members are
facts of `tensorflow/lite/core/c/builtin_op_data.h` (tensorflow/tensorflow, commit 0affd841), where new
members are only appended.  Of the appended ones only those are read that the compiler needs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameters:
    """The structure of an operator.

    Members
    -------
    options : name of the options in the file format, without "Options"; empty for none.
    form : types of the members, for `struct`.
    members : names of the options' members in the order of the structure.
    """

    options: str = ""
    form: str = ""
    members: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the members that are read."""
        return struct.calcsize(f"@{self.form}")

    def values(self, data: bytes) -> dict[str, Any]:
        """Return the options' members by name, as the file format has them."""
        found = dict(zip(self.members, struct.unpack(f"@{self.form}", data), strict=True))
        if "padding" in found:
            found["padding"] -= 1  # the structure has 1 and 2, the file format 0 (SAME) and 1 (VALID)
        return found


_FUSED = "fusedActivationFunction"
_CONV = ("padding", "strideW", "strideH")
_CORNERS = ("alignCorners", "halfPixelCenters")
_POOL = Parameters("Pool2D", "6i", (*_CONV, "filterWidth", "filterHeight", _FUSED))
_REDUCE = Parameters("Reducer", "?", ("keepDims",))

TABLE: dict[str, Parameters] = {
    "CONV_2D": Parameters("Conv2D", "6i", (*_CONV, _FUSED, "dilationWFactor", "dilationHFactor")),
    "DEPTHWISE_CONV_2D": Parameters(
        "DepthwiseConv2D", "7i", (*_CONV, "depthMultiplier", _FUSED, "dilationWFactor", "dilationHFactor")
    ),
    "TRANSPOSE_CONV": Parameters("TransposeConv", "4i", (*_CONV, _FUSED)),
    "FULLY_CONNECTED": Parameters("FullyConnected", "2i?", (_FUSED, "weightsFormat", "keepNumDims")),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    **{name: Parameters(name.capitalize(), "i", (_FUSED,)) for name in ("ADD", "SUB", "MUL", "DIV")},
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX"), _REDUCE),
    "SOFTMAX": Parameters("Softmax", "f", ("beta",)),
    "CONCATENATION": Parameters("Concatenation", "2i", ("axis", _FUSED)),
    "LEAKY_RELU": Parameters("LeakyRelu", "f", ("alpha",)),
    "STRIDED_SLICE": Parameters(
        "StridedSlice", "5i", ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")
    ),
    "RESIZE_BILINEAR": Parameters("ResizeBilinear", "2?", _CORNERS),
    "RESIZE_NEAREST_NEIGHBOR": Parameters("ResizeNearestNeighbor", "2?", _CORNERS),
    "SPLIT": Parameters("Split", "i", ("numSplits",)),
    "SPLIT_V": Parameters("SplitV", "i", ("numSplits",)),
    "DEPTH_TO_SPACE": Parameters("DepthToSpace", "i", ("blockSize",)),
    "SPACE_TO_DEPTH": Parameters("SpaceToDepth", "i", ("blockSize",)),
    "GELU": Parameters("Gelu", "?", ("approximate",)),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), Parameters("Reshape")),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), Parameters("MaximumMinimum")),
    "PAD": Parameters("Pad"),
    "PADV2": Parameters("PadV2"),
    "SLICE": Parameters("Slice"),
    "TRANSPOSE": Parameters("Transpose"),
    "QUANTIZE": Parameters("Quantize"),
    "DEQUANTIZE": Parameters("Dequantize"),
    "HARD_SWISH": Parameters("HardSwish"),
    "ABS": Parameters("Abs"),
    "NEG": Parameters("Neg"),
    "EXP": Parameters("Exp"),
    **dict.fromkeys(
        ("PRELU", "LOGISTIC", "TANH", "FLOOR", "CEIL", "ELU", "RELU", "RELU6", "RELU_N1_TO_1"), Parameters()
    ),
}
"""Operators whose parameters are known.  For RESHAPE and the like, the shape of the result is enough."""

FUSED_TRANSPOSED = 4
"""Version of TRANSPOSE_CONV from which it has an activation."""
