"""Operators that move elements: Concat, Split, Slice, Pad, Reshape, Transpose, Resize, blocks."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.limits import (
    CONV_PAD,
    CONV_STRIDE,
    INSERTS,
    MAX_REPEAT,
    MOST_COPIES,
    MOST_DEPTH,
    MOST_MOVES,
    MOST_ONES,
    MOST_PLACES,
)

Pair = tuple[int, int]
Shape = tuple[int, ...]

COORDINATES = ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel")
"""Coordinate modes of every resize."""


@constraint("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", tasks=MOST_MOVES)
def order_in_memory(before: Shape, after: Shape, kept: bool) -> str:
    """The elements keep their order in the memory of the NPU, or atoms (8 channels of floats, 16 of
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


@constraint("Slice")
def slice_masks(names: tuple[str, ...]) -> str:
    """A STRIDED_SLICE keeps the number of dimensions."""
    return f"{' and '.join(names)} changes the dimensions" if names else ""


@constraint("Resize")
def nearest_mode(mode: str) -> str:
    """The nearest mode is floor, ceil, round_prefer_floor or round_prefer_ceil."""
    return (
        "" if mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil") else f"nearest_mode {mode}"
    )


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
    """The mode is constant, reflect, edge or wrap (TFLite: reflect or symmetric), and the pads are constants
    for all dimensions of a map or a line."""
    return (
        ""
        if mode in ("constant", "reflect", "edge", "wrap") and edges is not None and len(edges) == 2 * rank
        else f"mode {mode}, pads {edges}"
    )


@constraint("Pad")
def pad_axes(before: Shape, after: Shape) -> str:
    """Nothing is cut off, and the first dimension is not padded."""
    wrong = min(*before, *after) < 0 or before[0] or after[0]
    return f"pads {(*before, *after)}" if wrong else ""


@constraint("Resize", "Upsample", most=MOST_COPIES)
def nearest_ranges(count: int, before: Pair, after: Pair) -> str:
    """A nearest resize copies at most {most} ranges of neighbouring rows and columns, unless its elements are
    n / b as far apart as the results, with n and b products of two numbers up to 8 and 7."""
    return f"mode nearest, {before} to {after}, {count} ranges" if count > MOST_COPIES else ""


@constraint("Resize", "Upsample")
def resize_mode(mode: str, more: str = "") -> str:
    """The mode is nearest, linear (bilinear) or cubic, of bytes without antialias and exclude_outside."""
    if mode not in ("nearest", "linear", "cubic"):
        return f"mode {mode}"
    return f"mode {mode}, {more}" if more else ""


@constraint("Resize")
def resize_coordinates(form: str, mode: str) -> str:
    """The coordinate transformation is align_corners, asymmetric, half_pixel or pytorch_half_pixel; of linear
    and cubic resizes also half_pixel_symmetric."""
    more = () if mode == "nearest" else ("half_pixel_symmetric",)
    return "" if form in (*COORDINATES, *more) else f"mode {mode}, coordinates {form}"


@constraint(
    "Resize", most=MOST_PLACES, factor=MAX_REPEAT, inserts=", ".join(map(str, INSERTS)), stride=CONV_STRIDE
)
def resize_ratio(method: str, axis: str, before: int, after: int, fits: bool) -> str:
    """Of bytes, the elements of rows and columns are n / b as far apart as the results, with n up to {most}
    (linear: a product of two numbers up to {factor}) or one of {inserts} (cubic), and b a product of two
    numbers up to {stride}."""
    return "" if fits else f"mode {method}, {before} to {after} {axis}"


@constraint("Resize", most=MOST_DEPTH, weights=f"{MOST_ONES:,}")
def resize_matrix(method: str, axis: str, before: int, after: int, used: int) -> str:
    """Linear and cubic resizes of floats by other ratios are products with a matrix of weights, which has at
    most {weights} places, and {most} elements for each result: the multiplications grow with them."""
    fits = before * after <= MOST_ONES and min(before, used) <= MOST_DEPTH
    return "" if fits else f"mode {method}, {before} to {after} {axis}: {used} elements for a result"


@constraint("Resize")
def resize_of_codes(method: str, fits: bool) -> str:
    """The weights of a resize of bytes are small whole numbers divided by their sum, and a cubic one changes
    one axis alone, because bytes between two convolutions would lose what exceeds their range."""
    return "" if fits else f"mode {method} of bytes"


@constraint("Resize", "Upsample")
def resize_sizes(before: Shape, after: Shape | None, policy: str = "stretch") -> str:
    """Sizes or scales are constants that leave batch and channels of a map as they are, and are taken as they
    are (keep_aspect_ratio_policy stretch)."""
    if policy != "stretch":
        return f"keep_aspect_ratio_policy {policy}"
    fits = after is not None and len(after) == 4 and after[:2] == before[:2] and min(after) >= 1
    return "" if fits else f"{before} to {'sizes computed by the model' if after is None else after}"


@constraint("DepthToSpace", "SpaceToDepth", inward=CONV_STRIDE, outward=", ".join(map(str, INSERTS[1:])))
def block_size(size: int, inward: bool) -> str:
    """Blocks of DepthToSpace have a side of {outward}, those of SpaceToDepth one of at most {inward}."""
    return "" if (size <= CONV_STRIDE if inward else size in INSERTS) else f"blocks of {size} x {size}"


@constraint("Concat", "Split", "Slice", "Pad", weights=f"{MOST_ONES:,}")
def moved_channels(channels: int, sources: int) -> str:
    """Channels that do not begin at an atom are moved by a convolution of ones, with at most {weights}
    weights."""
    return "" if channels * sources <= MOST_ONES else f"{channels:,} channels of {sources:,}"


@constraint("Concat", "Split", "Slice")
def cube_axis(axis: int, shape: Shape) -> str:
    """The axis is not the first one of a tensor of three or four dimensions."""
    inner = {4: (1, 2, 3), 3: (1, 2), 2: (0, 1), 1: (0,)}.get(len(shape), ())
    return "" if axis in inner else f"axis {axis} of {shape}"
