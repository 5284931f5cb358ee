"""ONNX nodes for the layers of a TNN network: real numbers.

Operators of the graph are built from ONNX's nodes (`rkcosim.compiler.loaders.operators`), so a layer
becomes the node, or the few nodes, of the same arithmetic; `rkcosim.apis.tnn.loader.convert` has the
int8 layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rkcosim.apis.tnn.loader.bound import INT_MAX, INT_MIN, Bound, element
from rkcosim.apis.tnn.loader.emitter import Emitter, filters, real
from rkcosim.apis.tnn.loader.geometry import deconvolution_pads, window, window_pads
from rkcosim.apis.tnn.loader.params import BINARY, REDUCTIONS
from rkcosim.apis.tnn.loader.resources import Array
from rkcosim.apis.tnn.loader.shapes import (
    corners,
    matmul_operands,
    order,
    paddings,
    ranges,
    reduced_axes,
    slices,
    slopes,
    summands,
)


def flat_pads(pads: tuple[tuple[int, int], tuple[int, int]]) -> list[int]:
    """Return paddings in ONNX's order: top, left, bottom, right."""
    return [pads[0][0], pads[1][0], pads[0][1], pads[1][1]]


SHUFFLED = 2048
"""Channels up to which a ShuffleChannel is a convolution; weights grow with their square."""


def _convolution(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    weights = e.constant("filter", filters(b, real(b, "filter")))
    inputs = [x[0], weights]
    if b.params["bias"] and "bias" in b.resource:
        inputs.append(e.constant("offsets", real(b, "bias").reshape(-1)))
    convolve(e, b, inputs, y[0])


def convolve(e: Emitter, b: Bound, inputs: Sequence[str], y: str, six: Array | None = None) -> None:
    """Add a convolution with its activation; `six` is the upper bound of ReLU6 of each channel."""
    p = b.params
    activation = p["activation_type"]
    made = e.node(
        "Conv",
        inputs,
        None if activation else y,
        group=p["group"],
        strides=p["strides"],
        dilations=p["dialations"],
        kernel_shape=p["kernels"],
        pads=flat_pads(window_pads(b)),
    )
    if activation == 0x100:
        e.node("Mul", [made, e.node("Sigmoid", [made])], y)
    elif activation == 2 and six is not None:
        e.node("Min", [e.node("Relu", [made]), e.constant("six", six)], y)
    elif activation:
        clamp(e, made, y, activation == 2)


def clamp(e: Emitter, x: str, y: str, six: bool) -> None:
    """Add a ReLU, or ReLU6."""
    if six:
        e.node("Clip", [x, e.constant("zero", 0.0), e.constant("six", 6.0)], y)
    else:
        e.node("Relu", [x], y)


def _deconvolution(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    p = b.params
    shape = (b.map()[1], p["output_channel"] // p["group"], *p["kernels"])
    inputs = [x[0], e.constant("filter", real(b, "filter").reshape(shape))]
    if p["bias"] and "bias" in b.resource:
        inputs.append(e.constant("offsets", real(b, "bias").reshape(-1)))
    made = e.node(
        "ConvTranspose",
        inputs,
        None if p["activation_type"] else y[0],
        group=p["group"],
        strides=p["strides"],
        dilations=p["dialations"],
        kernel_shape=p["kernels"],
        pads=flat_pads(deconvolution_pads(b)),
    )
    if p["activation_type"] == 0x100:
        e.node("Mul", [made, e.node("Sigmoid", [made])], y[0])
    elif p["activation_type"]:
        clamp(e, made, y[0], p["activation_type"] == 2)


def _pooling(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    p, size = b.params, b.map()[2:]
    method = "Average" if p["pool_type"] else "Max"
    if p["is_adaptive_pool"]:
        if tuple(p["output_shape"]) != (1, 1):
            raise b.wrong(f"adaptive pooling to {p['output_shape']} is not supported on the NPU")
        e.node(f"Global{method}Pool", x, y[0])
        return
    kernels, strides = window(b)
    pads = flat_pads(window_pads(b))
    if kernels == size and not any(pads):
        e.node(f"Global{method}Pool", x, y[0])
        return
    e.node(f"{method}Pool", x, y[0], kernel_shape=kernels, strides=strides, pads=pads)


def _inner_product(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    inputs = [e.constant("weight", real(b, "weight").reshape(b.params["num_output"], -1))]
    bias = b.resource.get("bias")
    if b.params["has_bias"] and bias is not None and bias.size:
        inputs.append(e.constant("offsets", real(b, "bias").reshape(-1)))
    multiply(e, b, x[0], inputs, y[0])


def multiply(e: Emitter, b: Bound, x: str, inputs: Sequence[str], y: str) -> None:
    """Add the product of an inner product layer; `inputs` are weights (N, K) and bias."""
    dims, axis = b.inputs[0], b.axis(b.params["axis"])
    if len(dims) != 2 or axis != 1:
        x = e.node("Flatten", [x], axis=axis)
    fits = len(b.outputs[0]) == 2
    made = e.node("Gemm", [x, *inputs], y if fits else None, transB=1)
    if not fits:
        reshape(e, made, b.outputs[0], y)


def reshape(e: Emitter, x: str, dims: Sequence[int], y: str) -> None:
    """Add a reshape."""
    e.node("Reshape", [x, e.constant("shape", dims, np.int64)], y)


def _matmul(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    operands = list(x)
    if len(x) == 1:
        first, second = matmul_operands(b)
        place = 0 if b.params["weight_position"] == 0 else 1
        operands.insert(
            place, e.constant("weight", real(b, "weight").reshape(first if place == 0 else second))
        )
    e.node("MatMul", operands, y[0])


_ONNX = {
    **{"Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div", "Maximum": "Max", "Minimum": "Min"},
    **{"Sigmoid": "Sigmoid", "Tanh": "Tanh", "Softplus": "Softplus", "Softsign": "Softsign", "GELU": "Gelu"},
    **{"Erf": "Erf", "Abs": "Abs", "Neg": "Neg", "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "ReLU": "Relu"},
    **{
        "Reciprocal": "Reciprocal",
        "Floor": "Floor",
        "Ceil": "Ceil",
        "Sign": "Sign",
        "Sin": "Sin",
        "Cos": "Cos",
    },
    **dict.fromkeys(("Dropout", "Identity"), "Identity"),
}
"""Types that are one node without attributes."""


def _plain(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    e.node(_ONNX[b.layer.type], x, y[0])


def _binary(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    operands = list(x)
    if len(x) == 1:
        operands.insert(b.params["weight_input_index"] != 0, e.constant("element", element(b)))
    made = operands[0]
    kind = b.layer.type
    for number, other in enumerate(operands[1:], 2):
        last = y[0] if number == len(operands) else None
        if kind == "SquaredDifference":
            apart = e.node("Sub", [made, other])
            made = e.node("Mul", [apart, apart], last)
        else:
            made = e.node(_ONNX[kind], [made, other], last)


def _swish(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    e.node("Mul", [x[0], e.node("Sigmoid", x)], y[0])


def _hard_swish(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    alpha, beta = b.params["alpha"], b.params["beta"]
    if len(x) == 1 and math.isclose(alpha, 1 / 6, rel_tol=1e-4) and beta == 0.5:
        e.node("HardSwish", x, y[0])
        return
    e.node("Mul", [x[0], e.node("HardSigmoid", [x[-1]], alpha=alpha, beta=beta)], y[0])


def _power(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    p, made = b.params, x[0]
    if p["scale"] != 1.0:
        made = e.node("Mul", [made, e.constant("scale", p["scale"])])
    if p["shift"] != 0.0:
        made = e.node("Add", [made, e.constant("shift", p["shift"])])
    if p["exponent"] == 2.0:
        e.node("Mul", [made, made], y[0])
    elif p["exponent"] == 1.0:
        e.node("Identity", [made], y[0])
    else:
        e.node("Pow", [made, e.constant("exponent", p["exponent"])], y[0])


def _normalisation(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    """BatchNormCxx, Scale and BiasAdd: a factor and an offset for each channel."""
    channels, rank = b.inputs[0][1], len(b.inputs[0])
    scale = real(b, "scale") if "scale" in b.resource else np.ones(1, np.float32)
    bias = summands(b)
    bias = bias if bias.size else np.zeros(1, np.float32)
    scale, bias = (np.broadcast_to(values.reshape(-1), (channels,)) for values in (scale, bias))
    if rank != 4:
        spread = (channels,) + (1,) * (rank - 2)
        made = e.node("Mul", [x[0], e.constant("scale", scale.reshape(spread))])
        e.node("Add", [made, e.constant("offsets", bias.reshape(spread))], y[0])
        return
    names = [e.constant("scale", scale), e.constant("offsets", bias)]
    names += [e.constant("mean", np.zeros(channels)), e.constant("variance", np.ones(channels))]
    e.node("BatchNormalization", [x[0], *names], y[0], epsilon=0.0)


def _instance(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    channels = b.inputs[0][1]
    bias = b.resource.get("bias", np.zeros(0, np.float32))
    bias = bias if bias.size else np.zeros(channels, np.float32)
    arrays = [np.broadcast_to(values.reshape(-1), (channels,)) for values in (real(b, "scale"), bias)]
    names = [e.constant(what, values) for what, values in zip(("scale", "offsets"), arrays, strict=True)]
    e.node("InstanceNormalization", [x[0], *names], y[0], epsilon=b.params["eps"])


def _prelu(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    found = slopes(b)
    if found.size == 1:
        e.node("LeakyRelu", x, y[0], alpha=float(found[0]))
    else:
        shape = (found.size,) + (1,) * (len(b.inputs[0]) - 2)
        e.node("PRelu", [x[0], e.constant("slope", found.reshape(shape))], y[0])


def _lrn(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    """LRN; TNN divides the sum of an even window by its size, but it has a channel less."""
    p = b.params
    if p["alpha"] < 0 or p["beta"] < 0:  # onnxruntime, which computes it, has only positive ones
        raise b.wrong(f"a negative alpha or beta ({p['alpha']:g}, {p['beta']:g}) is not supported on the NPU")
    if p["size"] < 1:
        raise b.wrong(f"a window of {p['size']} channels is not supported on the NPU")
    size = 2 * ((p["size"] - 1) // 2) + 1
    alpha = p["alpha"] * size / p["size"]
    e.node("LRN", x, y[0], alpha=alpha, beta=p["beta"], bias=p["bias"], size=size)


def _normalize(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    p = b.params
    kinds = {1: "ReduceL1", 2: "ReduceL2", INT_MAX: "ReduceMax", INT_MIN: "ReduceMin"}
    if p["p"] not in kinds or p["axis"] != 1 or p["across_spatial"]:
        raise b.wrong("TNN has p 1, 2 or infinite, axis 1, and not across_spatial")
    made = e.node(kinds[p["p"]], [x[0], e.constant("axes", [1], np.int64)], keepdims=1)
    if p["p"] == 2:
        made = e.node("Max", [made, e.constant("epsilon", p["epsilon"])])
    e.node("Div", [x[0], made], y[0])


def _split_v(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    sizes = e.constant("sizes", slices(b), np.int64)
    e.nodes_of("Split", [x[0], sizes], y, axis=b.axis(b.params["axis"]))


def _reshape(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    dims = b.outputs[0]
    if b.params.get("reshape_type", 0) == 0:
        reshape(e, x[0], dims, y[0])
        return
    if not all(2 <= len(one) <= 4 for one in (b.inputs[0], dims)):
        raise b.wrong(f"a reshape of {b.inputs[0]} to {dims} in NHWC order is not supported")
    last = e.node("Transpose", x, perm=[0, *range(2, len(b.inputs[0])), 1])
    shape = e.constant("shape", [dims[0], *dims[2:], dims[1]], np.int64)
    back = [0, len(dims) - 1, *range(1, len(dims) - 1)]
    e.node("Transpose", [e.node("Reshape", [last, shape])], y[0], perm=back)


def _slice(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    found = []
    for axis, (size, (first, last, step)) in enumerate(zip(b.inputs[0], ranges(b), strict=True)):
        if (first, last, step) != (0, size, 1):
            found.append((axis, first, last if last >= 0 else -size - 1, step))
    names = [
        e.constant(what, [one[place] for one in found], np.int64)
        for what, place in (("begins", 1), ("ends", 2), ("axes", 0), ("steps", 3))
    ]
    e.node("Slice", [x[0], *names], y[0]) if found else e.node("Identity", x, y[0])


def _pad(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    begins, ends = paddings(b)
    mode = ("constant", "reflect", "edge")[b.params["type"]]
    names = [e.constant("pads", [*begins, *ends], np.int64)]
    names += [e.constant("value", b.params["value"])] if mode == "constant" else []
    e.node("Pad", [x[0], *names], y[0], mode=mode)


def _upsample(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    """A Resize; to one row or column TNN's places are those of pytorch_half_pixel, except in cubic mode."""
    mode, source = b.params["mode"], x[0]
    attributes: dict[str, Any] = {"mode": ("nearest", "linear", "cubic")[mode - 1]}
    form = "align_corners" if corners(b) else "half_pixel"
    if mode == 2 and form == "half_pixel" and 1 in b.outputs[0][2:] and b.inputs[0] != b.outputs[0]:
        form = "pytorch_half_pixel"
    if mode == 3 and form == "half_pixel":
        source = _between(e, b, source, y[0])
    attributes["coordinate_transformation_mode"] = "asymmetric" if mode == 1 else form
    if mode == 1:
        attributes["nearest_mode"] = "floor"
    if source != y[0]:
        sizes = e.constant("sizes", b.outputs[0], np.int64)
        e.node("Resize", [source, "", "", sizes], y[0], **attributes)


def _between(e: Emitter, b: Bound, x: str, y: str) -> str:
    """Add the axes of one row or column of a cubic Upsample, which TNN takes at -0.5; return its output.

    There the weights of the elements before the first one, which are the first one, and of the second one are
    as everywhere between two elements: -3/32, 19/32, 19/32, -3/32.
    """
    axes = [axis for axis in (2, 3) if b.outputs[0][axis] == 1 and b.inputs[0][axis] > 1]
    left = [axis for axis in (2, 3) if axis not in axes and b.outputs[0][axis] != b.inputs[0][axis]]
    for axis in axes:
        parts = []
        for place, share in enumerate((35 / 32, -3 / 32)):
            bounds = [
                e.constant(f"{what}{axis}{place}", [value], np.int64)
                for what, value in (("begin", place), ("end", place + 1), ("axis", axis))
            ]
            part = e.node("Slice", [x, *bounds])
            parts.append(e.node("Mul", [part, e.constant(f"share{axis}{place}", share)]))
        x = e.node("Add", parts, y if axis == axes[-1] and not left else None)
    return x


def _shuffle(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    """ShuffleChannel as a convolution with a permutation, which the NPU computes exactly."""
    (n, channels, *size), groups = b.inputs[0], b.params["group"]
    h, w = math.prod(size[:-1]), math.prod(size[-1:])
    if channels > SHUFFLED:
        parts = e.constant("parts", [n, groups, channels // groups, h, w], np.int64)
        turned = e.node("Transpose", [e.node("Reshape", [x[0], parts])], perm=[0, 2, 1, 3, 4])
        reshape(e, turned, b.outputs[0], y[0])
        return
    weights = np.zeros((channels, channels, 1, 1), np.float32)
    order = np.arange(channels).reshape(groups, -1).T.reshape(-1)
    weights[np.arange(channels), order] = 1.0
    order_of = e.constant("order", weights)
    if len(size) == 2:
        e.node("Conv", [x[0], order_of], y[0], kernel_shape=[1, 1])
        return
    as_map = e.node("Reshape", [x[0], e.constant("map", [n, channels, h, w], np.int64)])
    reshape(e, e.node("Conv", [as_map, order_of], kernel_shape=[1, 1]), b.outputs[0], y[0])


def _reduce(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    axes = e.constant("axes", reduced_axes(b), np.int64)
    e.node(b.layer.type, [x[0], axes], y[0], keepdims=int(b.params["keep_dims"] != 0))


def _selu(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    e.node("Selu", x, y[0], alpha=b.params["alpha"], gamma=b.params["gamma"])


def _clip(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    """A Clip; TNN takes the lower bound last, so that it is the result if it is above the other."""
    low, high = b.params["min"], max(b.params["min"], b.params["max"])
    e.node("Clip", [x[0], e.constant("min", low), e.constant("max", high)], y[0])


def _hard_sigmoid(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    if b.params["alpha"] <= 0:  # TNN compares x with bounds, which are then the wrong way round
        raise b.wrong(f"alpha {b.params['alpha']:g} is not supported on the NPU")
    e.node("HardSigmoid", x, y[0], **b.params)


def _split(e: Emitter, b: Bound, x: list[str], y: list[str]) -> None:
    for name in y:
        e.node("Identity", x, name)


Emission = Callable[[Emitter, Bound, list[str], list[str]], Any]

EMITTERS: dict[str, Emission] = {
    **dict.fromkeys(_ONNX, _plain),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("BatchNormCxx", "Scale", "BiasAdd"), _normalisation),
    **dict.fromkeys(("StridedSlice", "StridedSliceV2"), _slice),
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax"),
        lambda e, b, x, y: e.node(b.layer.type, x, y[0], axis=b.axis(b.params["axis"])),
    ),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshape),
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "MatMul": _matmul,
    "ReLU6": lambda e, b, x, y: clamp(e, x[0], y[0], True),
    "Swish": _swish,
    "LogSigmoid": lambda e, b, x, y: e.node("Log", [e.node("Sigmoid", x)], y[0]),
    "Square": lambda e, b, x, y: e.node("Mul", [x[0], x[0]], y[0]),
    "Rsqrt": lambda e, b, x, y: e.node("Reciprocal", [e.node("Sqrt", x)], y[0]),
    "PReLU": _prelu,
    "Elu": lambda e, b, x, y: e.node("Elu", x, y[0], alpha=b.params["alpha"]),
    "Selu": _selu,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Power": _power,
    "InstBatchNormCxx": _instance,
    "LRN": _lrn,
    "Normalize": _normalize,
    "Concat": lambda e, b, x, y: e.node("Concat", x, y[0], axis=b.axis(b.params["axis"])),
    "SplitV": _split_v,
    "Split": _split,
    "Permute": lambda e, b, x, y: e.node("Transpose", x, y[0], perm=order(b)),
    "Upsample": _upsample,
    "PixelShuffle": lambda e, b, x, y: e.node(
        "DepthToSpace", x, y[0], blocksize=b.params["upscale_factor"], mode="CRD"
    ),
    "ShuffleChannel": _shuffle,
    "Const": lambda e, b, x, y: e.node(
        "Identity", [e.constant("value", real(b, "weight").reshape(b.outputs[0]))], y[0]
    ),
}
"""Emission of layers by type."""
