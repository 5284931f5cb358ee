"""Operators that move elements: Concat, Split, Slice, Pad, Reshape, Transpose, Resize, blocks."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.limits import (
    CONV_PAD,
    CONV_STRIDE,
    INSERTS,
    MAX_LINES,
    MAX_NOTCH,
    MAX_REPEAT,
    MOST_MOVES,
)

Pair = tuple[int, int]
Shape = tuple[int, ...]

INTERPOLATED = ("align_corners", "asymmetric", "half_pixel")
"""Coordinate modes of a bilinear resize."""


@constraint("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", tasks=MOST_MOVES)
def order_in_memory(before: Shape, after: Shape, kept: bool) -> str:
    """The elements keep their order in the memory of the NPU, or (ONNX) atoms (8 channels of floats, 16 of
    bytes) move as a whole, in at most {tasks} tasks."""
    return "" if kept else f"{before} to {after} moves elements"


@constraint("Gather")
def part_of_a_view(shape: Shape, axis: int, one: bool) -> str:
    """One element is taken of the axis of a transposed value that is the outermost one in memory, of its
    pixels or of its channels."""
    return "" if one else f"elements of axis {axis} of {shape}"


@constraint("MatMul")
def matrices_of_heads(first: Shape, matrices: Shape) -> str:
    """A constant with several matrices has one for each matrix of the first factor."""
    fits = len(matrices) <= len(first) and all(
        n in (1, m) for n, m in zip(matrices[-3::-1], first[-3::-1], strict=False)
    )
    return "" if fits else f"{first} times {matrices}"


@constraint("Slice", "Split", most=CONV_STRIDE)
def slice_steps(steps: Pair) -> str:
    """The steps along rows and columns are at most {most}."""
    return f"steps {steps}" if max(steps) > CONV_STRIDE else ""


@constraint("Pad", most=CONV_PAD)
def pad_edges(pads: tuple[int, ...], value: float | None, real: bool) -> str:
    """At most {most} rows are added above and columns on the left, and floats are padded with 0."""
    if max(pads[:2]) > CONV_PAD:
        return f"pads {tuple(pads)}"
    return f"floats are padded with {value:g}" if real and value is not None else ""


@constraint("Pad")
def pad_mode(mode: str, edges: tuple[int, ...] | None, rank: int = 4) -> str:
    """The mode is constant, and the pads are constants for all dimensions of a map or a line."""
    return (
        ""
        if mode == "constant" and edges is not None and len(edges) == 2 * rank
        else f"mode {mode}, pads {edges}"
    )


@constraint("Pad")
def pad_axes(before: Shape, after: Shape) -> str:
    """Nothing is cut off, and the first dimension is not padded."""
    wrong = min(*before, *after) < 0 or before[0] or after[0]
    return f"pads {(*before, *after)}" if wrong else ""


@constraint("Resize", "Upsample", factor=MAX_REPEAT, lines=MAX_LINES, notch=MAX_NOTCH)
def nearest_factor(before: Pair, after: Pair, whole: bool) -> str:
    """A nearest resize repeats each pixel by a whole factor up to {factor}; above {lines} rows, the factor of
    the rows less one times the columns of the result is at most {notch}."""
    factors = after[0] // before[0], after[1] // before[1]
    lines = (factors[0] - 1) * after[1] > MAX_NOTCH  # a task for each line
    fits = whole and max(factors) <= MAX_REPEAT and not (lines and before[0] > MAX_LINES)
    return "" if fits else f"mode nearest, {before} to {after} rows and columns"


@constraint("Resize", "Upsample")
def resize_mode(mode: str) -> str:
    """The mode is nearest or linear (bilinear)."""
    return "" if mode in ("nearest", "linear") else f"mode {mode}"


@constraint("Resize")
def resize_coordinates(form: str, mode: str, antialias: bool = False) -> str:
    """The coordinate transformation is align_corners, asymmetric, half_pixel or pytorch_half_pixel, without
    antialiasing."""
    if form in (*INTERPOLATED, "pytorch_half_pixel") and not antialias:
        return ""
    return f"mode {mode}, coordinates {form}" + (", antialias" if antialias else "")


@constraint("Resize", "Upsample")
def resize_sizes(before: Shape, after: Shape | None) -> str:
    """Sizes or scales are four constants that leave batch and channels as they are."""
    fits = after is not None and len(after) == 4 and after[1] == before[1] and min(after) >= 1
    return "" if fits else f"{before} to {'sizes computed by the model' if after is None else after}"


@constraint("Resize", "Upsample", factors=", ".join(map(str, INSERTS)))
def bilinear_factor(form: str, before: Pair, after: Pair, fits: bool) -> str:
    """A bilinear resize multiplies rows and columns by {factors} (half_pixel: not both by 8; align_corners:
    their number less one, also by 16, 32 and 64)."""
    if fits:
        return ""
    return f"mode linear, coordinates {form}, {before} to {after} rows and columns"


@constraint("DepthToSpace", "SpaceToDepth", inward=CONV_STRIDE, outward=", ".join(map(str, INSERTS[1:])))
def block_size(size: int, inward: bool) -> str:
    """Blocks of DepthToSpace have a side of {outward}, those of SpaceToDepth one of at most {inward}."""
    return "" if (size <= CONV_STRIDE if inward else size in INSERTS) else f"blocks of {size} x {size}"


@constraint("Concat", "Split", "Slice")
def cube_axis(axis: int, shape: Shape) -> str:
    """The axis is not the first one of a tensor of three or four dimensions."""
    inner = {4: (1, 2, 3), 3: (1, 2), 2: (0, 1), 1: (0,)}.get(len(shape), ())
    return "" if axis in inner else f"axis {axis} of {shape}"
