"""The compiler's steps as nodes of the graph-level golden model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Tensor, Window, in_rows
from rkcosim.compiler.requant import SECOND_SHIFT
from rkcosim.compiler.steps import (
    AtomsStep,
    BinaryStep,
    ByteTilesStep,
    Converter,
    ConvStep,
    CopyStep,
    FloatStage,
    FloatStep,
    FoldStep,
    HostStep,
    Limits,
    LookupStep,
    PermuteStep,
    PoolStep,
    ProductStep,
    RepeatStep,
    RescaleStep,
    SlopeStep,
    Step,
    SumsStep,
    TableStep,
    TilesStep,
)
from rkcosim.golden.graph import (
    Clamp,
    FAverage,
    FBinary,
    FClamp,
    FClampNode,
    FConv,
    FCopy,
    FHost,
    FPool,
    FProduct,
    FSlope,
    FStage,
    FStages,
    FTable,
    HostGather,
    HostPool,
    HostSoftmax,
    Node,
    Operand,
    Output,
    QAdd,
    QConv,
    QCopy,
    QDepthwise,
    QLookup,
    QPool,
    QProduct,
    QScale,
    QSlope,
    QSums,
    Reshape,
    Stage,
)

Index = npt.NDArray[np.int64]


def _output(converter: Converter) -> Output:
    return Output(scale=converter.scale, shift=converter.shift, offset=converter.zero)


def _clamp(limits: Limits) -> Clamp:
    return Clamp() if limits is None else Clamp(low=limits[0], high=limits[1])


def _ends(step: Step) -> dict[str, Any]:
    """Return the names of a step's first input and its output, as most nodes take them."""
    return {"x": step.inputs[0].name, "y": step.output.name}


def _window(window: Window, y: Tensor) -> dict[str, Any]:
    """Return the parameters of a window of the output `y`."""
    return {"size": y.cube[1:], "stride": window.strides, "pad": window.pads[:2]}


def _conv_node(step: ConvStep) -> Node:
    weights = step.weights.astype(np.int64) - step.weight_zero
    limits, late, scale, b, operand = _clamp(step.limits), Clamp(), 1, None, Operand()
    if step.addend is not None:
        late, limits = limits, _clamp(step.addend.own_limits)
        scale, b = step.addend.own_scale, step.inputs[1].name
        operand = Operand(offset=-step.inputs[1].zero_point, scale=step.addend.scale)
    elif step.correction is not None:
        late, limits = limits, late
    elif step.slopes is not None:
        scale = step.slopes.own_scale
    stage = Stage(
        add=step.bias - step.x_zero * weights.reshape(weights.shape[0], -1).sum(axis=1),
        mul=step.multipliers,
        shift=step.shift,
        clamp=limits if step.seconds is None else Clamp(),
    )
    second = None if step.seconds is None else Stage(mul=step.seconds, shift=SECOND_SHIFT, clamp=limits)
    kind: type[QDepthwise] | type[QConv] = QDepthwise if step.depthwise else QConv
    return kind(
        **_ends(step),
        **_window(step.window, step.output),
        weights=step.weights[:, 0] if step.depthwise else step.weights,
        dilation=step.window.dilations,
        pad_value=step.x_zero,
        window_mul=-step.weight_zero,
        stage=stage,
        second=second,
        output=_output(step.converter),
        insert=step.insert,
        correction=step.correction,
        b=b,
        b_operand=operand,
        scale=scale,
        clamp=late,
        slopes=None if step.slopes is None else step.slopes.words,
        slope_shift=0 if step.slopes is None else step.slopes.shift,
    )


def graph_nodes(step: Step) -> list[Node]:
    """Return the graph-level nodes of a compiler's step; the last one makes its output.

    Raises
    ------
    TypeError
        for an unknown kind of step.
    """
    if isinstance(step, ConvStep) and step.activation is not None:
        alone = step.alone
        offset, count = alone.output.zero_point + step.activation.limits[0] + 128, step.activation.table.size
        table = np.zeros(256, np.int8)
        table[offset : offset + count] = step.activation.table  # other codes do not occur
        return [_node(alone), QLookup(x=alone.output.name, y=step.output.name, table=table)]
    if isinstance(step, FoldStep):
        return _fold_nodes(step)
    return [_node(step)]


def _fold_nodes(step: FoldStep) -> list[Node]:
    """Return the surfaces of each group as rows, their maximum, and its shape; the last group repeats one."""
    x, y = step.inputs[0], step.output
    pixels, (rows, made) = x.cube[1] * x.cube[2], (f"{y.name}.rows", f"{y.name}.row")
    channel, row, pixel = np.indices((y.cube[0], step.size, pixels))
    surface = channel // 8 * step.size + row
    surface = np.where(surface < step.surfaces, surface, channel // 8 * step.size)
    index = (8 * surface + channel % 8) * pixels + pixel
    plain = (1.0, 0)
    return [
        HostGather(xs=(x.name,), y=rows, index=index, codings=(plain,), coding=plain),
        FPool(x=rows, y=made, method="max", kernel=(step.size, 1), size=(1, pixels)),
        Reshape(x=made, y=y.name, shape=y.cube),
    ]


def _moved(step: AtomsStep | TilesStep | ByteTilesStep | PermuteStep) -> Index:
    from rkcosim.verify.crosscheck import product_nodes

    if isinstance(step, PermuteStep):
        return product_nodes.permuted_index(step)
    if isinstance(step, ByteTilesStep):
        return product_nodes.byte_tiles_index(step)
    if isinstance(step, AtomsStep):
        return product_nodes.atoms_index(step)
    return product_nodes.tiles_index(step)


def _node(step: Step) -> Node:
    x, y = step.inputs[0], step.output
    if isinstance(step, RepeatStep):
        channel, row, column = np.indices(y.cube)
        row, column = row // step.factors[0], column // step.factors[1]
        index = (channel * x.cube[1] + row) * x.cube[2] + column
        return HostGather(xs=(x.name,), y=y.name, index=index, codings=((1.0, 0),), coding=(1.0, 0), fill=0)
    if isinstance(step, AtomsStep | TilesStep | ByteTilesStep | PermuteStep):
        index = _moved(step)
        return HostGather(xs=(x.name,), y=y.name, index=index, codings=((1.0, 0),), coding=(1.0, 0), fill=0)
    if y.real:
        return float_node(step)
    match step:
        case ConvStep():
            return _conv_node(step)
        case BinaryStep():
            b = step.inputs[1]
            return QAdd(
                a=x.name,
                b=b.name,
                y=y.name,
                op="add" if step.method == "sub" else step.method,
                a_operand=Operand(offset=-x.zero_point, scale=step.scales[0]),
                b_operand=Operand(offset=-b.zero_point, scale=step.scales[1]),
                clamp=_clamp(step.limits),
                output=_output(step.converter),
            )
        case RescaleStep():
            stage = Stage(add=-x.zero_point, mul=step.scale, clamp=_clamp(step.limits))
            return QScale(**_ends(step), stage=stage, output=_output(step.converter))
        case SlopeStep():
            return QSlope(
                **_ends(step),
                offset=-x.zero_point,
                scale=step.scale,
                slopes=step.slopes.words,
                shift=step.slopes.shift,
                output=_output(step.converter),
            )
        case LookupStep():
            return QLookup(**_ends(step), table=step.table)
        case CopyStep():
            return QCopy(
                **_ends(step),
                shape=y.cube,
                source=step.source,
                target=step.target,
                size=step.size,
                stage=Stage(add=-x.zero_point, mul=step.scale),
                output=_output(step.converter),
            )
        case PoolStep():
            return QPool(
                **_ends(step),
                **_window(step.window, y),
                method=step.method,
                kernel=step.window.kernel,
                pad_value=step.pad_value,
            )
        case SumsStep():
            from rkcosim.verify.crosscheck.product_nodes import sums_index

            weight_zero = step.weight_zero
            return QSums(x=x.name, y=y.name, index=sums_index(step), zero=step.zero, weight_zero=weight_zero)
        case ProductStep():
            from rkcosim.verify.crosscheck.product_nodes import product_indices

            first, second, target = product_indices(step)
            return QProduct(
                a=x.name,
                b=step.inputs[1].name,
                y=y.name,
                sums=step.inputs[2].name if len(step.inputs) > 2 else None,
                a_index=first,
                b_index=second,
                y_index=target,
                shape=y.cube,
                weight_zero=step.weight_zero,
                output=_output(step.converter),
            )
        case HostStep():
            return _host_node(step)
    raise TypeError(f"no graph node for {type(step).__name__}")


def _float_clamp(limits: Limits) -> FClamp:
    if limits is None:
        return FClamp()
    high = None if limits[1] is None else float(np.array(limits[1], np.int32).view(np.float32))
    return FClamp(relu=True, high=high)


def _float_stage(stage: FloatStage) -> FStage:
    return FStage(add=stage.add, mul=stage.mul, relu=stage.relu, high=stage.high)


def float_node(step: Step) -> Node:
    """Return the node of a step on fp16 tensors.

    Raises
    ------
    TypeError
        for an unknown kind of step.
    """
    x, y = step.inputs[0], step.output
    match step:
        case ConvStep():
            return FConv(
                **_ends(step),
                **_window(step.window, y),
                weights=np.asarray(step.weights, np.float16),
                bias=np.asarray(step.bias, np.float32),
                dilation=step.window.dilations,
                insert=step.insert,
                depthwise=step.depthwise,
                clamp=_float_clamp(step.limits),
                slopes=None if step.slopes is None else np.asarray(step.slopes.values, np.float16),
            )
        case ProductStep():
            from rkcosim.verify.crosscheck.product_nodes import product_indices

            a, b, target = product_indices(step)
            names = {"a": x.name, "b": step.inputs[1].name, "y": y.name}
            return FProduct(**names, a_index=a, b_index=b, y_index=target, shape=y.cube, scale=step.scale)
        case FloatStep():
            return FStages(
                **_ends(step),
                b=step.inputs[1].name if len(step.inputs) > 1 else None,
                first=_float_stage(step.first),
                second=_float_stage(step.second),
                method=step.method,
                operand=step.operand,
                dividend=step.dividend,
                last=_float_stage(step.last),
            )
        case TableStep():
            return FTable(
                **_ends(step),
                scale=float(np.float16(step.scale)),
                low=step.low,
                high=step.high,
                select=step.select,
                fraction=step.fraction,
            )
        case SlopeStep():
            return FSlope(**_ends(step), slopes=np.asarray(step.slopes.values, np.float16))
        case BinaryStep():
            clamp = _float_clamp(step.limits)
            return FBinary(a=x.name, b=step.inputs[1].name, y=y.name, op=step.method, clamp=clamp)
        case RescaleStep():
            return FClampNode(**_ends(step), clamp=_float_clamp(step.limits))
        case CopyStep():
            return FCopy(**_ends(step), shape=y.cube, source=step.source, target=step.target, size=step.size)
        case PoolStep(window=window, method=method):
            return FPool(**_ends(step), **_window(window, y), method=method, kernel=window.kernel)
        case HostStep(function="AveragePool", attributes={"window": window}):
            return FAverage(**_ends(step), **_window(window, y), kernel=window.kernel)
        case HostStep(function="MaxPool", attributes={"window": window}):
            return FPool(**_ends(step), **_window(window, y), method="max", kernel=window.kernel)
        case HostStep(function="Softmax"):
            return FHost(**_ends(step), function="Softmax", **_softmax_lines(step))
        case HostStep(function="Function"):
            given = step.attributes
            alpha, beta = given.get("alpha") or 0.0, given.get("beta") or 0.0
            return FHost(**_ends(step), function=given["function"], alpha=alpha, beta=beta)
        case HostStep():
            return _host_node(step)
    raise TypeError(f"no graph node for {type(step).__name__}")


def _host_node(step: HostStep) -> Node:
    x, y = step.inputs[0], step.output
    if step.function == "Softmax":
        return HostSoftmax(
            **_ends(step),
            scale=x.scale * step.attributes.get("beta", 1.0),
            zero_point=x.zero_point,
            **_softmax_lines(step),
            output_scale=y.scale,
            output_zero_point=y.zero_point,
        )
    if step.function in ("MaxPool", "AveragePool"):
        window = step.attributes["window"]
        return HostPool(
            **_ends(step),
            **_window(window, y),
            method="max" if step.function == "MaxPool" else "average",
            kernel=window.kernel,
            coding=(x.scale, x.zero_point),
            output_coding=(y.scale, y.zero_point),
        )
    return HostGather(
        xs=tuple(t.name for t in step.inputs),
        y=y.name,
        index=_index(step),
        codings=tuple((t.scale, t.zero_point) for t in step.inputs),
        coding=(y.scale, y.zero_point),
        fill=step.attributes.get("value", y.zero_point),
    )


def _softmax_lines(step: HostStep) -> dict[str, Any]:
    """Return the places of the lines along a Softmax's axis, one of the tensor's shape, in both cubes."""
    x, axis = step.inputs[0], step.attributes["axis"]
    places = tuple(np.indices(x.shape))

    def lines(tensor: Tensor) -> Index:
        return np.moveaxis(_element(tensor, places), axis, -1).reshape(-1, x.shape[axis])

    return {"lines": lines(x), "to": lines(step.output), "shape": step.output.cube}


def _element(tensor: Tensor, coordinates: tuple[Index, ...]) -> Index:
    """Return the position in the cube (C, H, W order) of elements of the tensor's shape."""
    _, height, width = tensor.cube
    flat = np.ravel_multi_index(coordinates, tensor.shape)
    matrix = len(tensor.shape) in (2, 3) and tensor.shape[-1] == tensor.cube[0] and height > 1
    if not (matrix or tensor.channels_last or in_rows(tensor.shape, tensor.cube)):
        return flat
    channel, pixel = flat % tensor.cube[0], flat // tensor.cube[0]
    return channel * height * width + pixel


def _index(step: HostStep) -> Index:
    """Return the source of each element of the output's cube, -1 for the fill value."""
    x, y = step.inputs[0], step.output
    channel, row, column = np.indices(y.cube)
    if step.function == "Rearrange":
        return _rearranged(step)
    if step.function == "Concat":
        along = (channel, row, column)[step.attributes["axis"]]
        result, base, start = np.full(y.cube, -1), 0, 0
        for part in step.inputs:
            size = part.cube[step.attributes["axis"]]
            place = [channel, row, column]
            place[step.attributes["axis"]] = along - start
            inside = (along >= start) & (along < start + size)
            flat = (place[0] * part.cube[1] + place[1]) * part.cube[2] + place[2]
            result = np.where(inside, base + flat, result)
            base, start = base + int(np.prod(part.cube)), start + size
        return result
    if step.function == "Slice":
        begin, strides = step.attributes["begin"], step.attributes.get("strides", (1, 1, 1))
        channel, row, column = (
            b + i * s for b, i, s in zip(begin, (channel, row, column), strides, strict=True)
        )
    elif step.function == "Pad":
        top, left, *_ = step.attributes["pads"]
        channel, row, column = channel - step.attributes.get("channels", (0, 0))[0], row - top, column - left
    elif step.function == "Pick":
        row = np.array(step.attributes["rows"])[row]
        column = np.array(step.attributes["columns"])[column]
    elif step.function == "Insert":
        fy, fx = step.attributes["factors"]
        gap = (row % fy != 0) | (column % fx != 0)
        row, column = np.where(gap, -1, row // fy), column // fx
    else:
        raise TypeError(f"no graph node for the host's {step.function}")
    inside = np.ones(y.cube, bool)
    for place, size in zip((channel, row, column), x.cube, strict=True):
        inside &= (place >= 0) & (place < size)
    return np.where(inside, (channel * x.cube[1] + row) * x.cube[2] + column, -1)


def _rearranged(step: HostStep) -> Index:
    """Follow each element of x through transpose, reshape and transpose."""
    x, y = step.inputs[0], step.output
    places = np.unravel_index(np.arange(x.elements), x.shape)
    before = step.attributes.get("before") or tuple(range(len(x.shape)))
    middle = step.attributes["shape"]
    after = step.attributes.get("after") or tuple(range(len(middle)))
    flat = np.ravel_multi_index(
        tuple(places[axis] for axis in before), tuple(x.shape[axis] for axis in before)
    )
    moved = np.unravel_index(flat, middle)
    source = _element(x, places)
    target = _element(y, tuple(moved[axis] for axis in after))
    result = np.empty(x.elements, dtype=np.int64)
    result[target] = source
    return result.reshape(y.cube)
