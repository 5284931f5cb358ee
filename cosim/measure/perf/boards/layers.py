"""Models of the single layers of published rows."""

from __future__ import annotations

from collections.abc import Callable

from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.boards.table import BoardRow

Build = Callable[[BoardRow, int, bool], bytes]
"""Function of a row, the number of input channels, and whether it is int8; it returns an ONNX file."""


def _size(row: BoardRow) -> tuple[int, int]:
    _, height, width = row.input
    return height, width


def _conv(row: BoardRow, channels: int, int8: bool) -> bytes:
    depthwise = row.family == "depthwise"
    return layer_models.conv(
        channels,
        channels if depthwise else row.output[0],
        _size(row),
        int8=int8,
        kernel=row.kernel,
        stride=row.stride,
        pad=row.pad,
        depthwise=depthwise,
        activation=row.activation,
        added=row.operation == "conv+add",
    )


def _concat(row: BoardRow, _: int, int8: bool) -> bytes:
    return layer_models.concat(row.input, 4 if row.input[0] % 3 else 3, int8=int8)


def _transpose(row: BoardRow, _: int, int8: bool) -> bytes:
    """Exchange axes: a map of C x H x W becomes H x W x 1 x C, or that a map again."""
    if len(row.input) == 3:
        return layer_models.transpose(row.input, (1, 2, 0), int8=int8)
    height, width, _one, channels = row.input
    return layer_models.transpose((height, width, channels), (2, 0, 1), int8=int8)


OPERATIONS: dict[str, Build] = {
    "conv": _conv,
    "conv+add": _conv,
    "deconv": lambda row, channels, int8: layer_models.deconv(
        channels, _size(row), row.kernel, row.stride, row.pad, int8=int8
    ),
    "maxpool": lambda row, _, int8: layer_models.max_pool(
        row.input, row.kernel, row.stride, row.pad, int8=int8
    ),
    "resize": lambda row, _, int8: layer_models.resize(row.input, row.kernel, int8=int8),
    "concat": _concat,
    "split": lambda row, _, int8: layer_models.split(row.input, 2, int8=int8),
    "slice": lambda row, _, int8: layer_models.cut(row.input, row.output[0], int8=int8),
    "pad": lambda row, _, int8: layer_models.pad(row.input, (row.output[1] - row.input[1]) // 2, int8=int8),
    "add": lambda row, _, int8: layer_models.add(row.input, int8=int8),
    "mul-channel": lambda row, _, int8: layer_models.by_channel("Mul", row.input, int8=int8),
    "add-channel": lambda row, _, int8: layer_models.by_channel("Add", row.input, int8=int8),
    "batchnorm": lambda row, _, int8: layer_models.batch_norm(row.input, int8=int8),
    "layernorm": lambda row, _, int8: layer_models.layer_norm(row.input, int8=int8),
    "transpose": _transpose,
    "operator": lambda row, _, int8: layer_models.operator(row.activation, row.input, int8=int8),
}
"""Operation of a row -> its model."""


def model_of(row: BoardRow, channels: int) -> bytes:
    """Return an ONNX model of a row's layer with this number of input channels.

    Raises
    ------
    ValueError
        If the row is no single layer.
    """
    if row.operation not in OPERATIONS:
        raise ValueError(f"{row.id}: there is no operation {row.operation}")
    return OPERATIONS[row.operation](row, channels, row.type == "int8")
