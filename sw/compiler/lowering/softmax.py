"""Steps of a Softmax over the channels of an fp16 tensor.

With m the maximum of a pixel it is exp(x - m) / sum(exp(x - m)).  The PPU finds maxima of surfaces, and a
convolution brings the eight lanes of an atom side by side for it.  Convolutions of ones add the channels and
copy a number to all of them; the LUT has the exponential function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.lowering.curves import Curve
from rkcosim.compiler.lowering.makers import LANES, Maker, copied, like
from rkcosim.compiler.steps import Converter, CopyStep, FoldStep, Step

LOWEST = -60000.0
"""A number below those of all channels, for lanes without a channel."""
MAX_FOLD = 16
"""Largest number of surfaces of a maximum: the rows of the PPU's window [HW 9]."""
EXPONENTIAL: Curve = (lambda x: np.exp(np.minimum(x, 0.0)), 11.0)
"""The function of the LUT and the distance at which it is below its last place."""


def softmax(make: Maker) -> list[Step]:
    """Return the steps of a Softmax over the channels."""
    x, y = make.x, make.output
    count = x.cube[0]
    surfaces = -(-count // LANES)

    tensor = partial(like, y)
    aligned = count == surfaces * LANES
    source, steps = x, []
    if (
        not aligned
    ):  # the lanes without a channel get low numbers, and a surface behind them is for the maxima
        source = tensor("padded", (surfaces + 1) * LANES)
        weights = np.eye(source.cube[0], count)
        bias = np.where((np.arange(source.cube[0]) < count), 0.0, LOWEST)
        steps += make.pixelwise(x, source, weights, bias)
    largest, found = _largest(make, source, surfaces, tensor)
    steps += found
    less, powers = tensor("less", count), tensor("powers", count)
    if aligned:
        spread = tensor("largest", count)
        steps += make.pixelwise(largest, spread, copied(count))
        steps += make.elementwise("sub", x, spread, less)
    else:
        places = {"source": (0, 0, 0), "target": (surfaces * LANES, 0, 0), "size": largest.cube}
        ends = {"inputs": (largest,), "output": source}
        steps += make.step(CopyStep, **ends, **places, scale=1, converter=Converter(1, 0, 0))
        weights = np.eye(count, source.cube[0])
        weights[:, surfaces * LANES] = -1.0
        steps += make.pixelwise(source, less, weights)
    steps += make.curve(EXPONENTIAL, less, powers)
    total, inverse, factors = tensor("total", LANES), tensor("inverse", LANES), tensor("factors", count)
    steps += make.pixelwise(powers, total, np.ones((LANES, count)))
    steps += make.reciprocal(total, inverse)
    steps += make.pixelwise(inverse, factors, copied(count))
    return steps + make.elementwise("mul", powers, factors, y)


def _largest(
    make: Maker, source: Tensor, surfaces: int, tensor: Callable[[str, int], Tensor]
) -> tuple[Tensor, list[Step]]:
    """Return a tensor of one atom that has the largest of a pixel's channels in all lanes, and its steps."""
    steps: list[Step] = []
    current, left = source, surfaces
    while left > 1 or (current is source and source.cube[0] > LANES):
        parts = -(-left // MAX_FOLD)
        size = -(-left // parts)
        made = tensor(f"fold{len(steps)}", parts * LANES)
        ends = {"inputs": (current,), "output": made}
        steps += make.step(FoldStep, **ends, size=size, surfaces=left)
        current, left = made, parts
    turned = np.concatenate([np.roll(np.eye(LANES), lane, axis=1) for lane in range(LANES)])
    lanes, largest = tensor("lanes", LANES * LANES), tensor("maximum", LANES)
    steps += make.pixelwise(current, lanes, turned)
    ends = {"inputs": (lanes,), "output": largest}
    steps += make.step(FoldStep, **ends, size=LANES, surfaces=LANES)
    return largest, steps
