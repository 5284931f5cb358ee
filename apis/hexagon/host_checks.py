"""Operations of test graphs: comparisons that make an execution fail, and prints into the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.host_bytes import limits_at
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value

MANY = None

CLOSE = 0.07
"""Allowed difference of an element, as a part of the largest reference number or of the reference's range."""

SHOWN = 2000
"""Elements that a print writes to the log."""


def _same_shape(call: NodeCall) -> None:
    found, wanted = call.inputs[0], call.inputs[1]
    if found.shape != wanted.shape or found.data.size != wanted.data.size:
        raise Failure(
            f"a tensor of {found.shape} ({found.data.size} bytes), but {wanted.shape} "
            f"({wanted.data.size} bytes) is wanted"
        )


@operation("Sink", "PreFree", ins=(0, MANY), outs=0, place="check")
def nothing(call: NodeCall) -> list[Value]:
    return []


@operation("Check", ins=2, outs=0, place="check")
def check(call: NodeCall) -> list[Value]:
    _same_shape(call)
    wrong = np.flatnonzero(call.inputs[0].data != call.inputs[1].data)
    if wrong.size:
        at = int(wrong[0])
        raise Failure(f"byte {at} is {call.inputs[0].data[at]}, but {call.inputs[1].data[at]} is wanted")
    return []


def _compare(found: npt.NDArray[Any], wanted: npt.NDArray[Any], most: float) -> None:
    """Raise Failure if numbers differ by more than `most`, or are NaN."""
    difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).reshape(-1)
    if not (difference <= most).all():
        at = int(np.nanargmax(difference)) if not np.isnan(difference).all() else 0
        raise Failure(
            f"element {at} is {found.reshape(-1)[at]:g}, but {wanted.reshape(-1)[at]:g} is wanted "
            f"(differences up to {most:g})"
        )


@operation("Close_f", ins=(2, 3), outs=0, place="check")
def close_f(call: NodeCall) -> list[Value]:
    _same_shape(call)
    found, wanted = (x.data[: x.data.size // 4 * 4].view(np.float32) for x in call.inputs[:2])
    part = call.inputs[2].scalar if len(call.inputs) > 2 else CLOSE
    reach = float(wanted.max(initial=0)) - float(wanted.min(initial=0))
    _compare(found, wanted, max(CLOSE, reach * part))
    return []


def _close_codes(name: str, dtype: type[Any], most_inputs: int) -> None:
    @operation(name, ins=(2, most_inputs), outs=0, place="check")
    def close(call: NodeCall) -> list[Value]:
        _same_shape(call)
        found, wanted = (x.array(dtype) for x in call.inputs[:2])
        _compare(found, wanted, CLOSE * float(np.abs(wanted.astype(np.int64)).max(initial=0)))
        return []


_close_codes("Close_quint8", np.uint8, 2)
_close_codes("Close_int32", np.int32, 3)
_close_codes("Close_qint32", np.int32, 2)


def _close_real(name: str, wide: bool) -> None:
    @operation(name, ins=(6, 8), outs=0, place="check")
    def close(call: NodeCall) -> list[Value]:
        found, wanted = limits_at(call, 1), limits_at(call, 4)
        part = call.inputs[7].scalar if len(call.inputs) > 7 else CLOSE
        x, y = call.inputs[0], call.inputs[3]
        if x.shape != y.shape:
            raise Failure(f"a tensor of {x.shape}, but {y.shape} is wanted")
        if wide:
            values = found.reals32(x.ints), wanted.reals32(y.ints)
        else:
            values = found.reals(x.codes), wanted.reals(y.codes)
        _compare(*values, part * (wanted.high - wanted.low))
        return []


_close_real("Close_q_quint8", False)
_close_real("Close_q_qint32", True)


def _print(name: str, dtype: type[Any]) -> None:
    @operation(name, ins=(1, 4), outs=0, place="check")
    def print_tensor(call: NodeCall) -> list[Value]:
        """Write elements; inputs 1 to 3 limit them to a part of an axis: axis, first, end."""
        x = call.inputs[0].array(dtype)
        axis, *ends = [*(one.whole for one in call.inputs[1:4]), *(-1, 0)[len(call.inputs) - 1 :]]
        first = ends[0] if ends else 0
        end = ends[1] if len(ends) > 1 else first + 1
        call.say(f"{call.name} of node 0x{call.node:x}: {'x'.join(str(n) for n in x.shape)}")
        written = 0
        for place in np.ndindex(*x.shape):
            if 0 <= axis < 4 and not first <= place[axis] < end:
                continue
            if written == SHOWN:
                call.say(f"... {x.size} elements")
                break
            written += 1
            call.say(f"[{','.join(str(n) for n in place)}] = {x[place]:g}")
        return []


_print("PPrint_8", np.uint8)
_print("PPrint_32", np.int32)
_print("PPrint_f", np.float32)
