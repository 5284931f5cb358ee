"""Steps of a LayerNormalization or RMSNormalization over the channels of an fp16 tensor.

Squares of fp16 numbers leave its range, so there are two sums of squares: of the numbers times 16 and of the
numbers divided by 64.  A gate of 0 or 1 for each pixel chooses; the second sum tells whether a square of the
first one may be too large.  1 / sqrt(s) begins with the largest of its tangents at powers of four, which are
all below it, and Newton's method does the rest without divisions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.lowering.makers import LANES, Maker, copied, like, stage
from rkcosim.compiler.steps import FloatStage, FloatStep, Step

DENSE = 384
"""Channels up to which one matrix subtracts the mean; for more, the mean is copied to all channels first."""
LARGEST = 65504.0
"""Largest number of fp16."""
SMALLEST = 2.0**-14
"""Smallest normal number of fp16: the smallest sum of squares."""
FINE = 16.0
"""Factor of the numbers in the first sum of squares: variances from 2.4e-7 on."""
WIDE = 64.0
"""Divisor of the numbers in the second sum of squares: up to 16 380 from the mean."""
TANGENTS = range(-7, 9)
"""Exponents of the powers of four with a tangent."""
ROUNDS = 4
"""Rounds of Newton's method: tangents are wrong by up to 13 %, and each round squares the error."""


def normalise(make: Maker) -> list[Step]:
    """Return the steps of a normalisation."""
    op, x, y = make.op, make.x, make.output
    count = x.cube[0]
    tensor = partial(like, y)
    steps: list[Step] = []
    less = x
    if op.centred:
        less = tensor("less", count)
        steps += _centred(make, less)
    fine, wide = tensor("fine", LANES), tensor("wide", LANES)
    for name, sums, factor in (("fine", fine, FINE**2), ("wide", wide, WIDE**-2)):
        squares = tensor(f"{name}_squares", count)
        # The product with the factor is not rounded before it is multiplied by the number itself.
        limits = {"second": stage(mul=factor), "last": FloatStage(high=LARGEST)}
        steps += _stages(make, (less, less), squares, method="mul", **limits)
        weights = np.full((LANES, count), 1.0 / count)
        steps += make.pixelwise(squares, sums, weights, np.full(LANES, factor * op.epsilon))
    root, made = _inverse_root(make, fine, wide)
    steps += made
    factors = tensor("factors", count)
    steps += make.pixelwise(root, factors, copied(count))
    shifted = bool(op.shift.any())
    scaled = tensor("scaled", count) if shifted else y
    second = FloatStage() if (op.scale == 1).all() else FloatStage(mul=op.scale.astype(np.float16))
    steps += _stages(make, (less, factors), scaled, second=second, method="mul")
    if shifted:
        steps += _stages(make, (scaled,), y, second=FloatStage(add=op.shift.astype(np.float32)))
    return steps


def _stages(make: Maker, inputs: tuple[Tensor, ...], y: Tensor, **fields: Any) -> list[Step]:
    return make.step(FloatStep, inputs=inputs, output=y, **fields)


def _centred(make: Maker, less: Tensor) -> list[Step]:
    """Return the steps that subtract the mean of a pixel's channels."""
    x, count = make.x, make.x.cube[0]
    if count <= DENSE:
        return make.pixelwise(x, less, np.eye(count) - 1.0 / count)
    mean, spread = like(make.output, "mean", LANES), like(make.output, "means", count)
    return [
        *make.pixelwise(x, mean, np.full((LANES, count), 1.0 / count)),
        *make.pixelwise(mean, spread, copied(count)),
        *make.elementwise("sub", x, spread, less),
    ]


def _between(value: float) -> float:
    """Return a number near `value` in the middle between two neighbouring fp16 numbers."""
    low = np.float16(value)
    return float((np.float64(low) + np.float64(np.nextafter(low, np.float16(np.inf)))) / 2)


def _inverse_root(make: Maker, fine: Tensor, wide: Tensor) -> tuple[Tensor, list[Step]]:
    """Return a tensor of one atom with 1 / sqrt(variance), and its steps."""
    tensor = partial(like, make.output)
    steps: list[Step] = []

    def named(suffix: str) -> Tensor:
        return tensor(suffix, LANES)

    names = ("gate", "rest", "own", "other", "both", "squares")
    gate, rest, own, other, both, mean = (named(name) for name in names)
    bound = _between(0.97 * LARGEST / (FINE * WIDE) ** 2 / make.x.cube[0])
    first, second = stage(mul=2.0**15, add=-bound), stage(mul=2.0**15, high=1.0)
    steps += _stages(make, (wide,), gate, first=first, second=second)
    steps += _stages(make, (gate,), rest, second=stage(mul=-1.0, add=1.0))
    steps += make.elementwise("mul", fine, rest, own)
    steps += make.elementwise("mul", wide, gate, other)
    steps += make.elementwise("add", own, other, both)
    steps += _stages(make, (both,), mean, method="max", operand=SMALLEST)
    root: Tensor | None = None
    for number, exponent in enumerate(TANGENTS):
        # (3 - s / a) / (2 * sqrt(a)) at a = 4^exponent
        slope = -(2.0 ** (-3 * exponent - 1))
        first, shift = stage(mul=2.0**10 if exponent < 0 else 1.0), 1.5 * 2.0**-exponent
        second = stage(mul=slope / (2.0**10 if exponent < 0 else 1.0), add=shift)
        made = named(f"tangent{number}")
        ends = (mean,) if root is None else (mean, root)
        method = {} if root is None else {"method": "max"}
        steps += _stages(
            make, ends, made, first=first if exponent < 0 else FloatStage(), second=second, **method
        )
        root = made
    assert root is not None
    for number in range(ROUNDS):
        square, product, made = (named(f"{name}{number}") for name in ("square", "product", "root"))
        steps += make.elementwise("mul", root, root, square)
        steps += make.elementwise("mul", square, mean, product)
        steps += _stages(make, (product, root), made, second=stage(mul=-0.5, add=1.5), method="mul")
        root = made
    scale, result = named("gain"), named("inverse")
    steps += _stages(make, (gate,), scale, second=stage(mul=1.0 / WIDE - FINE, add=FINE))
    return result, [*steps, *make.elementwise("mul", root, scale, result)]
