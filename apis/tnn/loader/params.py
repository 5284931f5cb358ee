"""Parameters of layers: the words of a layer's line in a `.tnnproto` file, by layer type.

The order of the words is that of Tencent/TNN f0cb0812, source/tnn/interpreter/tnn/layer_interpreter/.  Pairs
are (height, width), as in the file; TNN's classes keep them as (width, height).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from rkcosim.apis.tnn.loader.proto import LayerInfo
from rkcosim.compiler.graph import ModelError

Params = Mapping[str, Any]

MOST = 64
"""Largest number of values in a list."""

PAIR_LIMIT = 1 << 16
"""Largest kernel, stride, pad or dilation."""


class Words:
    """The words of a layer, taken one after the other; missing ones have the default."""

    def __init__(self, layer: LayerInfo) -> None:
        self.layer, self.at = layer, 0

    @property
    def left(self) -> int:
        """Number of words that are left."""
        return max(len(self.layer.params) - self.at, 0)

    def wrong(self, text: str) -> ModelError:
        """Return an error that names the layer."""
        return ModelError(f"{self.layer.label}: parameter {self.at}: {text}")

    def word(self) -> str | None:
        """Return the next word; None if there is none."""
        self.at += 1
        return self.layer.params[self.at - 1] if self.at <= len(self.layer.params) else None

    def integer(self, default: int | None = 0) -> int:
        """Return an integer; with the default None there must be one."""
        word = self.word()
        if word is None:
            if default is None:
                raise self.wrong("an integer is missing")
            return default
        if not re.fullmatch(r"[+-]?\d{1,11}(\.0*)?", word):
            raise self.wrong(f"'{word[:40]}' is not an integer")
        return int(float(word))

    def real(self, default: float = 0.0) -> float:
        """Return a finite number."""
        word = self.word()
        if word is None:
            return default
        try:
            value = float(word)
        except ValueError:
            raise self.wrong(f"'{word[:40]}' is not a number") from None
        if not math.isfinite(value):
            raise self.wrong(f"'{word[:40]}' is not finite")
        return value

    def integers(self, count: int, default: int | None = None) -> tuple[int, ...]:
        """Return some integers."""
        if not 0 <= count <= MOST:
            raise self.wrong(f"a list of {count} values")
        return tuple(self.integer(default) for _ in range(count))

    def listed(self) -> tuple[int, ...]:
        """Return a list that begins with its length."""
        return self.integers(self.integer(None))

    def sizes(self, lowest: int, default: int | None = None) -> tuple[int, int]:
        """Return a pair (height, width)."""
        high, wide = self.integers(2, default)
        if not (lowest <= high <= PAIR_LIMIT and lowest <= wide <= PAIR_LIMIT):
            raise self.wrong(f"{high} x {wide} is not at least {lowest} and at most {PAIR_LIMIT}")
        return high, wide


def _convolution(w: Words) -> Params:
    group, inputs, outputs = w.integers(3)
    found = {
        "group": group,
        "input_channel": inputs,
        "output_channel": outputs,
        "kernels": w.sizes(1),
        "strides": w.sizes(1),
        "pads": w.sizes(0),
        "bias": w.integer(),
        "pad_type": w.integer(-1),
        "dialations": w.sizes(1, 1),
        "activation_type": w.integer(),
    }
    if group < 1 or outputs < 1 or outputs % group:
        raise w.wrong(f"{group} groups of {outputs} kernels")
    if found["activation_type"] not in (0, 1, 2, 0x100):
        raise w.wrong(f"the activation {found['activation_type']} is not known")
    return found


def _kernel_indices(w: Words) -> tuple[int, int]:
    """Return the axes of the input whose sizes are the kernel's; -1 is none, for columns that of the rows."""
    rows, columns = w.integers(2, -1)
    if not all(-1 <= axis <= 3 for axis in (rows, columns)):
        raise w.wrong(f"a kernel as large as the axes {rows} and {columns}")
    return rows, rows if columns == -1 else columns


def _pooling(w: Words) -> Params:
    found: dict[str, Any] = {
        "pool_type": w.integer(),
        "kernels": w.sizes(0),
        "strides": w.sizes(0),
        "pads": w.sizes(0),
        "kernel_indexs": _kernel_indices(w),
        "pad_type": w.integer(-1),
        "ceil_mode": w.integer(),
        "is_adaptive_pool": w.integer(),
        "output_shape": w.integers(2, 0),
    }
    if found["pool_type"] not in (0, 1):
        raise w.wrong(f"pooling of the type {found['pool_type']} is not known")
    return found


def _inner_product(w: Words) -> Params:
    names = ("num_output", "has_bias", "transpose", "axis")
    found = dict(zip(names, w.integers(4), strict=True))
    if found["num_output"] < 1:
        raise w.wrong("num_output is below 1")
    return found  # TNN's devices ignore transpose: weights are (num_output, elements)


def _pad(w: Words) -> Params:
    w.integers(2, 0)
    top, bottom, left, right, before, after = w.integers(6, 0)
    return {
        "begins": (0, before, top, left),
        "ends": (0, after, bottom, right),
        "type": w.integer(),
        "value": w.real(),
    }


def _pad_v2(w: Words) -> Params:
    count = w.integer(None)
    return {
        "begins": w.integers(count),
        "ends": w.integers(count),
        "type": w.integer(),
        "value": w.real(),
    }


def _upsample(w: Words) -> Params:
    found: dict[str, Any] = {"mode": w.integer(None), "scales": (w.real(), w.real())}
    found["align_corners"] = w.integer()
    found["dims"] = w.integers(2, 0) if w.left >= 2 else ()
    return found


def _reshape(w: Words) -> Params:
    axis, axes = w.integers(2)
    return {"axis": axis, "num_axes": axes, "shape": w.listed(), "reshape_type": w.integer()}


def _slices(w: Words) -> Params:
    axis = w.integer(None)
    return {"axis": axis, "slices": w.integers(w.integer(0))}


def _lrn(w: Words) -> Params:
    return {"alpha": w.real(), "beta": w.real(), "bias": w.real(), "size": w.integer(None)}


def _normalize(w: Words) -> Params:
    return {
        "across_spatial": w.integer(),
        "epsilon": w.real(1e-12),
        "channel_shared": w.integer(1),
        "axis": w.integer(1),
        "p": w.integer(2),
    }


def _scale(w: Words) -> Params:
    return dict(zip(("axis", "num_axes", "bias_term"), w.integers(3, 0), strict=True))


def _reduce(w: Words) -> Params:
    return {"keep_dims": w.integer(None), "axis": w.integers(w.left)}


UNARY = (
    *(
        "ReLU",
        "ReLU6",
        "Sigmoid",
        "Tanh",
        "Swish",
        "Softplus",
        "Softsign",
        "LogSigmoid",
        "GELU",
        "Erf",
        "Abs",
    ),
    *("Neg", "Exp", "Log", "Sqrt", "Rsqrt", "Reciprocal", "Square", "Floor", "Ceil", "Sign", "Sin", "Cos"),
)
"""Types of one number without parameters."""

BINARY = ("Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "SquaredDifference")

REDUCTIONS = (
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
)

PARAMS: dict[str, Callable[[Words], Params]] = {
    **dict.fromkeys((*UNARY, "Dropout", "Identity", "Split", "BatchNormCxx", "BiasAdd"), lambda w: {}),
    **dict.fromkeys(BINARY, lambda w: {"weight_input_index": w.integer(1)}),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("Convolution", "Deconvolution"), _convolution),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Concat"), lambda w: {"axis": w.integer(1)}),
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "MatMul": lambda w: {"weight_position": w.integer(-1)},
    "PReLU": lambda w: {"channel_shared": w.integer(), "has_filler": w.integer()},
    "Elu": lambda w: {"alpha": w.real(1.0)},
    "Selu": lambda w: {"alpha": w.real(1.6732632), "gamma": w.real(1.050701)},
    "Clip": lambda w: {"min": w.real(), "max": w.real()},
    **dict.fromkeys(("HardSigmoid", "HardSwish"), lambda w: {"alpha": w.real(1.0), "beta": w.real()}),
    "Power": lambda w: {"exponent": w.real(1.0), "scale": w.real(1.0), "shift": w.real()},
    "Scale": _scale,
    "InstBatchNormCxx": lambda w: {"channels": w.integer(), "eps": w.real(1e-5)},
    "LRN": _lrn,
    "Normalize": _normalize,
    "SplitV": _slices,
    "Reshape": _reshape,
    "Flatten": lambda w: {"axis": w.integer(None)},
    "Permute": lambda w: {"orders": w.listed()},
    **dict.fromkeys(("Squeeze", "Unsqueeze"), lambda w: {"axes": w.listed()}),
    "StridedSlice": lambda w: {"begins": w.listed(), "ends": w.listed(), "strides": w.listed()},
    "StridedSliceV2": lambda w: {
        "begins": w.listed(),
        "ends": w.listed(),
        "axes": w.listed(),
        "strides": w.listed(),
    },
    "Pad": _pad,
    "PadV2": _pad_v2,
    "Upsample": _upsample,
    "PixelShuffle": lambda w: {"upscale_factor": w.integer(None)},
    "ShuffleChannel": lambda w: {"group": w.integer(1)},
    "Const": lambda w: {"dims": w.integers(w.integer())},
}
"""Readers of parameters by layer type: the types that this project has."""


def read_params(layer: LayerInfo) -> Params:
    """Return the parameters of a layer by TNN's names.

    Raises
    ------
    ModelError
        If the type is not one of `PARAMS`, or a word is wrong; the message names the layer.
    """
    reader = PARAMS.get(layer.type)
    if reader is None:
        raise ModelError(f"{layer.label}: layers of this type are not supported")
    return reader(Words(layer))
