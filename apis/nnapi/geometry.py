"""Windows of convolutions and pools: which operands are pads, strides, dilations, activation and layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rkcosim.apis.nnapi.model import OperandType
from rkcosim.apis.nnapi.values import OperationCall
from rkcosim.hostops.geometry import Sliding, same_pads

SAME, VALID = 1, 2
"""Codes of the padding schemes."""


@dataclass(frozen=True)
class Geometry:
    """A window that slides over a map.

    Members
    -------
    kernel, strides, dilations : (rows, columns).
    pads : top, left, bottom, right; of a transposed convolution what its result loses (negative: gains).
    act : code of the fused activation.
    nchw : whether maps are (N, C, H, W) instead of (N, H, W, C).
    number : groups of a grouped convolution, multiplier of a depthwise one, else 1.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    act: int = 0
    nchw: bool = False
    dilations: tuple[int, int] = (1, 1)
    number: int = 1

    def output(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (rows, columns) of the result for those of the input."""
        rows, columns = self.over(size).counts
        return rows, columns

    def over(self, size: tuple[int, int]) -> Sliding:
        """Return the windows over a map of (rows, columns)."""
        return Sliding.over(size, self.kernel, self.strides, self.pads[:2], self.pads[2:], self.dilations)

    def transposed_output(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (rows, columns) of a transposed convolution's result."""
        made = [
            (size[axis] - 1) * self.strides[axis] + self.kernel[axis] - self.pads[axis] - self.pads[axis + 2]
            for axis in (0, 1)
        ]
        return made[0], made[1]


def _map_size(call: OperationCall, nchw: bool) -> tuple[int, int]:
    shape = call.value(0).shape
    return (shape[2], shape[3]) if nchw else (shape[1], shape[2])


def _is_bool(call: OperationCall, index: int) -> bool:
    return index < len(call.inputs) and call.value(index).type is OperandType.BOOL


def _checked(call: OperationCall, found: Geometry, padded: bool) -> Geometry:
    if min(*found.strides, *found.dilations, *found.kernel) < 1 or (padded and min(found.pads) < 0):
        raise call.wrong(f"strides {found.strides}, kernel {found.kernel}, pads {found.pads}")
    if found.act not in (0, 1, 2, 3):
        raise call.wrong(f"there is no fused activation {found.act}")
    return found


def _scheme(
    call: OperationCall, scheme: int, size: tuple[int, int], found: Geometry
) -> tuple[int, int, int, int]:
    if scheme not in (SAME, VALID):
        raise call.wrong(f"padding scheme {scheme} is neither 1 (same) nor 2 (valid)")
    if scheme == VALID:
        return 0, 0, 0, 0
    return same_pads(size, found.kernel, found.strides, found.dilations)


def convolution(call: OperationCall) -> Geometry:
    """Return the window of CONV_2D, DEPTHWISE_CONV_2D or GROUPED_CONV_2D; raises ExecutionError."""
    kind, count = call.kind.name, len(call.inputs)
    extra = 0 if kind == "CONV_2D" else 1  # the operand with groups or multiplier
    if kind == "GROUPED_CONV_2D":
        implicit = count == 9
    else:
        implicit = count < 10 + extra or _is_bool(call, 7 + extra)
    at = 4 if implicit else 7
    layout = at + 3 + extra
    found = Geometry(
        kernel=(call.value(1).shape[1], call.value(1).shape[2]),
        strides=(call.integer(at + 1), call.integer(at)),
        pads=(0, 0, 0, 0),
        act=call.integer(at + 2 + extra),
        nchw=call.flag(layout),
        dilations=(call.integer(layout + 2, 1), call.integer(layout + 1, 1)),
        number=call.integer(at + 2) if extra else 1,
    )
    return _padded(call, found, 3, implicit)


def _padded(call: OperationCall, found: Geometry, at: int, implicit: bool) -> Geometry:
    """Return a checked window with its pads: input `at` is the scheme, or the first of four pads."""
    found = _checked(call, found, False)
    if implicit:
        pads = _scheme(call, call.integer(at), _map_size(call, found.nchw), found)
    else:
        left, right, top, bottom = (call.integer(index) for index in range(at, at + 4))
        pads = (top, left, bottom, right)
    return _checked(call, replace(found, pads=pads), True)


def pool(call: OperationCall) -> Geometry:
    """Return the window of a pool; raises ExecutionError."""
    implicit = len(call.inputs) < 10
    at = 2 if implicit else 5
    strides, kernel = (call.integer(at + 1), call.integer(at)), (call.integer(at + 3), call.integer(at + 2))
    act, nchw = call.integer(at + 4), call.flag(at + 5)
    return _padded(call, Geometry(kernel, strides, (0, 0, 0, 0), act, nchw), 1, implicit)


def transposed(call: OperationCall) -> Geometry:
    """Return the window of TRANSPOSE_CONV_2D; raises ExecutionError."""
    filter_shape = call.value(1).shape
    kernel = (filter_shape[1], filter_shape[2])
    if len(call.inputs) == 11:
        left, right, top, bottom = (call.integer(index) for index in range(3, 7))
        strides, pads = (call.integer(8), call.integer(7)), (top, left, bottom, right)
        return _checked(call, Geometry(kernel, strides, pads, call.integer(9), call.flag(10)), True)
    strides, act, nchw = (call.integer(6), call.integer(5)), call.integer(7), call.flag(8)
    found = _checked(call, Geometry(kernel, strides, (0, 0, 0, 0), act, nchw), False)
    shape = call.ints(3)
    if len(shape) != 4:
        raise call.wrong(f"output shape {shape}")
    size = _map_size(call, nchw)
    wanted = (shape[2], shape[3]) if nchw else (shape[1], shape[2])
    full = found.transposed_output(size)
    cut = [full[axis] - wanted[axis] for axis in (0, 1)]
    head = [max(n, 0) // 2 if call.integer(4) == SAME else 0 for n in cut]
    pads = (head[0], head[1], cut[0] - head[0], cut[1] - head[1])
    return Geometry(kernel, strides, pads, act, nchw)
