"""Shapes of the outputs of layers, by layer type: TNN's InferOutputShape.

Source: Tencent/TNN f0cb0812, source/tnn/layer/ and source/tnn/utils/dims_function_utils.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rkcosim.apis.tnn.loader.bound import INT_MAX, INT_MIN, Bound, Dims, element
from rkcosim.apis.tnn.loader.geometry import convolution, deconvolution, pooling
from rkcosim.apis.tnn.loader.params import BINARY, REDUCTIONS, UNARY, read_params
from rkcosim.apis.tnn.loader.proto import MAX_RANK, LayerInfo
from rkcosim.apis.tnn.loader.resources import Array, Resource
from rkcosim.compiler.graph import MAX_ELEMENTS


def _inner_product(b: Bound) -> list[Dims]:
    axis = b.axis(b.params["axis"])
    b.array("weight", b.params["num_output"] * math.prod(b.inputs[0][axis:]))
    return [(*b.inputs[0][:axis], b.params["num_output"])]


def matmul_operands(b: Bound) -> tuple[Dims, Dims]:
    """Return the shapes of both operands of a MatMul; a constant one is in the resource."""
    if len(b.inputs) == 2:
        return b.inputs[0], b.inputs[1]
    weight = b.array("weight").shape
    return (weight, b.inputs[0]) if b.params["weight_position"] == 0 else (b.inputs[0], weight)


def _matmul(b: Bound) -> list[Dims]:
    first, second = matmul_operands(b)
    if len(first) < 2 or len(second) < 2 or first[-1] != second[-2]:
        raise b.wrong(f"the product of {first} and {second} does not exist")
    return [(*_spread(b, (first[:-2], second[:-2])), first[-2], second[-1])]


def _spread(b: Bound, shapes: Sequence[Dims]) -> Dims:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise b.wrong(f"the shapes {', '.join(map(str, shapes))} do not broadcast") from None


def _binary(b: Bound) -> list[Dims]:
    shapes = list(b.inputs)
    if len(shapes) == 1:
        shapes.append(element(b).shape)
    return [_spread(b, shapes)]


def _concat(b: Bound) -> list[Dims]:
    axis, first = b.axis(b.params["axis"]), b.inputs[0]
    rest = {(*dims[:axis], *dims[axis + 1 :]) for dims in b.inputs}
    if len(rest) != 1 or any(len(dims) != len(first) for dims in b.inputs):
        raise b.wrong(f"{', '.join(map(str, b.inputs))} cannot be joined along axis {axis}")
    return [(*first[:axis], sum(dims[axis] for dims in b.inputs), *first[axis + 1 :])]


def slices(b: Bound) -> tuple[int, ...]:
    """Return the sizes of the parts of a SplitV."""
    size, count = b.inputs[0][b.axis(b.params["axis"])], len(b.layer.outputs)
    given = tuple(b.params["slices"]) or ((size // count,) * count if size % count == 0 else ())
    if len(given) != count or sum(given) != size or min(given) < 1:
        raise b.wrong(f"the parts {given} for {count} outputs do not make {size}")
    return given


def _split_v(b: Bound) -> list[Dims]:
    axis, dims = b.axis(b.params["axis"]), b.inputs[0]
    return [(*dims[:axis], size, *dims[axis + 1 :]) for size in slices(b)]


def _reshape(b: Bound) -> list[Dims]:
    dims, axis, shape = b.inputs[0], b.params["axis"], b.params["shape"]
    if not 0 <= axis <= len(dims) or b.params["reshape_type"] not in (0, 1):
        raise b.wrong(f"axis {axis}, reshape_type {b.params['reshape_type']}")
    out = list(dims[:axis])
    for place, size in enumerate(shape, axis):
        if size == 0 and place >= len(dims):
            raise b.wrong(f"dimension {place} of {dims} does not exist")
        out.append(dims[place] if size == 0 else size)
    rest = math.prod(size for size in out if size != -1)
    if out.count(-1) == 1 and rest > 0:
        out[out.index(-1)] = math.prod(dims) // rest
    if min(out, default=1) < 1 or math.prod(out) != math.prod(dims):
        raise b.wrong(f"{dims} cannot have the shape {tuple(shape)}")
    return [tuple(out)]


def _flatten(b: Bound) -> list[Dims]:
    axis, dims = b.axis(b.params["axis"], 1), b.inputs[0]
    return [(math.prod(dims[:axis]), math.prod(dims[axis:]))]


def order(b: Bound) -> Dims:
    """Return the order of the axes of a Permute; axes that the file does not name follow in their order."""
    given, dims = tuple(b.params["orders"]), b.inputs[0]
    made = (*given, *(axis for axis in range(len(dims)) if axis not in given))
    if sorted(made) != list(range(len(dims))):
        raise b.wrong(f"the order {given} is none of {dims}")
    return made


def _permute(b: Bound) -> list[Dims]:
    dims = b.inputs[0]
    return [tuple(dims[axis] for axis in order(b))]


def _squeeze(b: Bound) -> list[Dims]:
    out = list(b.inputs[0])
    for value in reversed(b.params["axes"]):
        if not -len(out) <= value < len(out) or out[value] != 1:
            raise b.wrong(f"axis {value} of {b.inputs[0]} is not 1")
        del out[value]
    return [tuple(out)]


def _unsqueeze(b: Bound) -> list[Dims]:
    out = list(b.inputs[0])
    for value in b.params["axes"]:
        place = value + len(out) + 1 if value < 0 else value
        if not 0 <= place <= len(out):
            raise b.wrong(f"axis {value} does not fit {b.inputs[0]}")
        out.insert(place, 1)
    return [tuple(out)]


def ranges(b: Bound) -> list[tuple[int, int, int]]:
    """Return first element, end and step of a slice along each axis, as Python's range has them.

    StridedSliceV2 may have negative steps, whose end INT_MIN is before the first element (here -1).
    """
    dims, p = b.inputs[0], b.params
    axes = p.get("axes", tuple(range(len(dims))))
    if not len(p["begins"]) == len(p["ends"]) == len(p["strides"]) == len(axes):
        raise b.wrong("begins, ends and strides have different lengths, or not one value per axis")
    found = [(0, size, 1) for size in dims]
    for axis, begin, end, step in zip(axes, p["begins"], p["ends"], p["strides"], strict=True):
        size = dims[b.axis(axis)]
        first = begin + size if begin < 0 else begin
        last = size if end == INT_MAX or end > size or (end == 0 and "axes" not in p) else end
        if step < 0 and last == INT_MIN and "axes" in p:
            last = -1
        else:
            last += size if last < 0 else 0
        turned = step < 0 and "axes" in p and -1 <= last < first < size
        if not turned and (step < 1 or not 0 <= first < last <= size):
            raise b.wrong(f"elements {begin} to {end} in steps of {step} of {size}")
        found[axis % len(dims)] = (first, last, step)
    return found


def _slice(b: Bound) -> list[Dims]:
    return [tuple(len(range(*one)) for one in ranges(b))]


def paddings(b: Bound) -> tuple[Dims, Dims]:
    """Return the padding before and after each axis."""
    begins, ends, rank = tuple(b.params["begins"]), tuple(b.params["ends"]), len(b.inputs[0])
    if b.layer.type == "Pad" and rank != 4:
        raise b.wrong(f"its input {b.inputs[0]} has not four dimensions")
    if len(begins) != rank or min((*begins, *ends), default=0) < 0 or b.params["type"] not in (0, 1, 2):
        raise b.wrong(f"padding {begins}, {ends} of the type {b.params['type']} for {b.inputs[0]}")
    if b.params["type"] == 1 and any(
        max(x) >= size for *x, size in zip(begins, ends, b.inputs[0], strict=True)
    ):
        raise b.wrong(f"reflected padding {begins}, {ends} is not smaller than {b.inputs[0]}")
    return begins, ends


def _pad(b: Bound) -> list[Dims]:
    begins, ends = paddings(b)
    return [tuple(sum(three) for three in zip(begins, b.inputs[0], ends, strict=True))]


def _upsample(b: Bound) -> list[Dims]:
    n, c, h, w = b.map()
    if b.params["mode"] not in (1, 2, 3):
        raise b.wrong(f"mode {b.params['mode']} is not known")
    high, wide = b.params["dims"] or (
        math.floor(x * s + 0.5) for x, s in zip((h, w), b.params["scales"], strict=True)
    )
    return [(n, c, high, wide)]


def corners(b: Bound) -> bool:
    """Whether an Upsample aligns the corners.

    A negative parameter means that it does when it shrinks by factors, and any other one but 0 that it does.
    """
    given = b.params["align_corners"]
    if given < 0 and not b.params["dims"]:
        return min(b.params["scales"]) < 1.0
    return bool(given)


def slopes(b: Bound) -> Array:
    """Return the slopes of a PReLU: one, or one for each channel; a shared one is the first of the file."""
    found = b.array("slope").astype(np.float32).reshape(-1)
    if b.params["channel_shared"] or found.size == 1:
        return found[:1]
    if found.size != b.inputs[0][1]:
        raise b.wrong(f"{found.size} slopes for {b.inputs[0][1]} channels")
    return found


def summands(b: Bound) -> Array:
    """Return the summands of BatchNormCxx, Scale or BiasAdd: none, one, or one for each channel.

    With one factor for all channels the first summand is that of all, however many the file has.
    """
    found = b.resource.get("bias", np.zeros(0, np.float32)).astype(np.float32).reshape(-1)
    shared = "scale" in b.resource and b.array("scale").size == 1
    return found[:1] if shared else found


def _prelu(b: Bound) -> list[Dims]:
    if len(b.inputs[0]) < 2:
        raise b.wrong(f"its input {b.inputs[0]} has no channels")
    slopes(b)
    return [b.inputs[0]]


def _pixel_shuffle(b: Bound) -> list[Dims]:
    n, c, h, w = b.map()
    factor = b.params["upscale_factor"]
    if not 1 <= factor <= 64 or c % (factor * factor):
        raise b.wrong(f"{c} channels are no blocks of {factor} x {factor}")
    return [(n, c // (factor * factor), h * factor, w * factor)]


def _shuffle(b: Bound) -> list[Dims]:
    dims, groups = b.inputs[0], b.params["group"]
    if len(dims) < 2 or groups < 1 or dims[1] % groups:
        raise b.wrong(f"{dims} in {groups} groups")
    return [dims]


def reduced_axes(b: Bound) -> tuple[int, ...]:
    """Return the axes of a reduction."""
    given = b.params["axis"] or tuple(range(len(b.inputs[0])))
    return tuple(sorted({b.axis(axis) for axis in given}))


def _reduce(b: Bound) -> list[Dims]:
    axes, keep = reduced_axes(b), b.params["keep_dims"] != 0
    return [tuple(1 if n in axes else x for n, x in enumerate(b.inputs[0]) if keep or n not in axes)]


def _const(b: Bound) -> list[Dims]:
    weight = b.array("weight")
    return [tuple(b.params["dims"]) or weight.shape]


def _same(b: Bound) -> list[Dims]:
    return [b.inputs[0]] * len(b.layer.outputs)


def _of_channels(b: Bound) -> list[Dims]:
    """Return the shape of the input, whose channels have one value each, or one for all, in the resource."""
    if len(b.inputs[0]) < 2:
        raise b.wrong(f"its input {b.inputs[0]} has no channels")
    for name, values in b.resource.items():
        if values.size not in (0, 1, b.inputs[0][1]):
            raise b.wrong(f"its {name} has {values.size} elements for {b.inputs[0][1]} channels")
    return [b.inputs[0]]


SHAPES: dict[str, Callable[[Bound], list[Dims]]] = {
    **dict.fromkeys((*UNARY, "Dropout", "Identity", "Split", "Elu", "Selu", "Clip", "HardSigmoid"), _same),
    **dict.fromkeys(("Power", "LRN", "Normalize", "Softmax", "LogSoftmax"), _same),
    **dict.fromkeys((*BINARY, "HardSwish"), _binary),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("Scale", "BatchNormCxx", "InstBatchNormCxx", "BiasAdd"), _of_channels),
    **dict.fromkeys(("StridedSlice", "StridedSliceV2"), _slice),
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    "PReLU": _prelu,
    "Convolution": convolution,
    "Deconvolution": deconvolution,
    "Pooling": pooling,
    "InnerProduct": _inner_product,
    "MatMul": _matmul,
    "Concat": _concat,
    "SplitV": _split_v,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Permute": _permute,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Upsample": _upsample,
    "PixelShuffle": _pixel_shuffle,
    "ShuffleChannel": _shuffle,
    "Const": _const,
}
"""Shapes of outputs by layer type."""

SEVERAL = {"Concat", "Add", "Mul", "Maximum", "Minimum", *BINARY, "HardSwish", "MatMul", "Const"}
"""Types that may have another number of inputs than one."""


def bind(layer: LayerInfo, resource: Resource | None, inputs: Sequence[Dims]) -> Bound:
    """Return a layer with parameters, resource and shapes.

    Parameters
    ----------
    layer
        The layer.
    resource
        Its arrays; None if the `.tnnmodel` has none.
    inputs
        Shapes of its inputs.

    Raises
    ------
    ModelError
        If the type is not supported, or parameters, arrays and shapes do not fit; the message names it.
    """
    bound = Bound(layer, read_params(layer), resource or {}, tuple(inputs))
    lowest = 0 if layer.type == "Const" else 1
    if not lowest <= len(inputs) or (len(inputs) > 1 and layer.type not in SEVERAL):
        raise bound.wrong(f"{len(inputs)} inputs")
    if layer.type in ("HardSwish",) and len(inputs) == 1:
        shapes = _same(bound)
    else:
        shapes = SHAPES[layer.type](bound)
    if len(shapes) != len(layer.outputs):
        raise bound.wrong(f"{len(layer.outputs)} outputs, its type has {len(shapes)}")
    for dims in shapes:
        if len(dims) > MAX_RANK or min(dims, default=1) < 1 or math.prod(dims) > MAX_ELEMENTS:
            raise bound.wrong(f"an output has the shape {dims}")
    return Bound(layer, bound.params, bound.resource, bound.inputs, tuple(shapes))


def infer(
    layers: Sequence[LayerInfo], resources: Mapping[str, Resource], known: Mapping[str, Dims]
) -> tuple[list[Bound], dict[str, Dims]]:
    """Return all layers with their shapes, and the shapes of all blobs.

    Parameters
    ----------
    layers
        Layers in order.
    resources
        Arrays by layer name.
    known
        Shapes of the network's inputs.

    Raises
    ------
    ModelError
        As `bind`.
    """
    dims, bound = dict(known), []
    for layer in layers:
        one = bind(layer, resources.get(layer.name), [dims[name] for name in layer.inputs])
        dims.update(zip(layer.outputs, one.outputs, strict=True))
        bound.append(one)
    return bound, dims
