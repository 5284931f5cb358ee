"""Operations that only move elements, as steps, for tensors of bytes and of floats.

They differ in how many channels an atom has, and in the step that copies a part (`Copy`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sw.compiler.graph import Concat, Conv, OnHost, Op, Pad, Slice, Tensor, Upsample
from sw.compiler.steps import HostStep, Step

Place = tuple[int, int, int]
"""Channel, row, column; or a size along them."""

Copy = Callable[[Op, Tensor, Tensor, Place, Place, Place], Step]
"""A step that copies a part: operation, from, to, place in the one, place in the other, size."""


def concat_steps(
    op: Concat, inputs: tuple[Tensor, ...], output: Tensor, atom_channels: int, copy: Copy
) -> list[Step]:
    """One copy per input; channels must begin at atoms, else the host does it."""
    steps: list[Step] = []
    place = [0, 0, 0]
    for x in inputs:
        if op.axis == 0 and place[0] % atom_channels:
            return [HostStep(op.name, op.kind, inputs, output, "Concat", {"axis": op.axis})]
        steps.append(copy(op, x, output, (0, 0, 0), (place[0], place[1], place[2]), x.cube))
        place[op.axis] += x.cube[op.axis]
    return steps


def slice_steps(
    op: Slice, inputs: tuple[Tensor, ...], output: Tensor, atom_channels: int, copy: Copy
) -> list[Step]:
    """A copy; channels must begin at atoms, else the host does it."""
    if op.begin[0] % atom_channels:
        return [HostStep(op.name, op.kind, inputs, output, "Slice", {"begin": op.begin})]
    return [copy(op, inputs[0], output, op.begin, (0, 0, 0), output.cube)]


def insert_on_host(op: Conv, x: Tensor) -> tuple[Conv, HostStep]:
    """The zeros of a transposed convolution put in by the host, and the plain convolution behind that."""
    channels, height, width = x.cube
    cube = (channels, (height - 1) * op.insert[0] + 1, (width - 1) * op.insert[1] + 1)
    wide = replace(x, name=f"{op.output}.spread", shape=(1, *cube), cube=cube, channels_last=False)
    step = HostStep(op.name, op.kind, (x,), wide, "Insert", {"factors": op.insert})
    return replace(op, inputs=(wide.name,), insert=(1, 1)), step


def pad_on_host(op: Pad, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """The whole padding by the host."""
    return [HostStep(op.name, op.kind, inputs, output, "Pad", {"pads": op.pads})]


def upsample_on_host(op: Upsample, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """Each pixel of the result picked by the host."""
    picks = [tuple(i // f for i in range(n)) for f, n in zip(op.factors, output.cube[1:], strict=True)]
    return [
        HostStep(op.name, op.kind, inputs, output, "Pick", {"rows": picks[0], "columns": picks[1]}),
    ]


def on_host(op: OnHost, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """What the loader has left to the host."""
    return [HostStep(op.name, op.kind, inputs, output, op.function, op.attributes)]
