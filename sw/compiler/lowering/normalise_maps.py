"""Steps of an InstanceNormalization or GroupNormalization of an fp16 map.

With d the difference from the mean of a group, y = d * scale / sqrt(variance + epsilon) + shift.

- The mean is subtracted twice: once as it is rounded to fp16, and then the mean of what is left.
- d is multiplied by a number for each group, s, so that its largest magnitude becomes 128 (or, of a group of
  several channels, the sum of their largest magnitudes).  Then no square leaves the range of fp16, and small
  ones keep their places.  sqrt(epsilon) is the smallest magnitude that is made so large; below it the
  variance does not matter.
- Sums of blocks have powers of two as weights, and the weights of the last sum differ in their last place, so
  that they add up to 1: the mean of equal numbers is exact.
- Squares are added with powers of two as weights, so that no weight is rounded.  The quotient of the number
  of elements and the sum of weights is in the scale of the result.
- A square root begins with the smallest of its tangents at powers of 16, which are all above it, and Heron's
  method halves the distance from both sides.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Clamp, Tensor, Window
from rkcosim.compiler.limits import CONV_KERNEL, PPU_KERNEL, PPU_PAD
from rkcosim.compiler.lowering.makers import Maker, stage
from rkcosim.compiler.steps import FloatStage, FloatStep, PoolStep, Step

DENSE = 128
"""Channels up to which one matrix adds those of a group and copies the sum to all of them."""
LARGEST = 65504.0
"""Largest number of fp16."""
SMALLEST = 2.0**-14
"""Smallest normal number of fp16: what is added to each variance."""
TOP = 128.0
"""Largest magnitude of the numbers that are squared."""
MOST_SCALE = 2.0**15
"""Largest factor of the numbers that are squared."""
TANGENTS = range(-3, 4)
"""Exponents of the powers of 16 with a tangent; the root of a number between two is wrong by up to 25 %."""
ROUNDS = 3
"""Rounds of Heron's method: of 59 %, the error at 32 768, 0.0014 % is left."""


def normalise_map(make: Maker) -> list[Step]:
    """Return the steps of a normalisation over pixels."""
    op, y = make.op, make.output
    inner = type(make)(replace(op, clamp=Clamp()), make.inputs, y)  # type: ignore[call-arg]
    steps, factors, less, gain = _Groups(inner).factors()
    shifted = bool(op.shift.any())
    scale = FloatStage(mul=(op.scale * gain).astype(np.float16))
    limits = FloatStage(relu=make.clamped, high=op.clamp.high if math.isfinite(op.clamp.high) else None)
    scaled = replace(y, name=f"{y.name}.scaled") if shifted else y
    fields = {"inputs": (less, factors), "output": scaled, "second": scale, "method": "mul"}
    steps += make.step(FloatStep, **fields, last=FloatStage() if shifted else limits)
    if shifted:
        second = FloatStage(add=op.shift.astype(np.float32), relu=limits.relu, high=limits.high)
        steps += make.step(FloatStep, inputs=(scaled,), output=y, second=second)
    return steps


class _Groups:
    """The sums of one normalisation: numbers of a group are the same in all of its channels."""

    def __init__(self, make: Maker) -> None:
        self.make, self.x = make, make.x
        self.count, *size = self.x.cube
        self.pixels = size[0] * size[1]
        self.each = self.count // make.op.groups
        self.steps: list[Step] = []

    def factors(self) -> tuple[list[Step], Tensor, Tensor, float]:
        """Return the steps up to s / sqrt(variance of d * s), that tensor, d, and a factor of the result."""
        epsilon = self.make.op.epsilon
        less = self._centred(self._centred(self.x, "first"), "second")
        folds = 2.0 ** -math.ceil(math.log2(self.each))
        top = self._grouped(self._largest(less), "top", folds)
        floor = folds * max(math.sqrt(epsilon), TOP / MOST_SCALE)
        some = self._stages("floor", top, method="max", operand=floor)
        scale = self._stages("factor", some, some, method="div", dividend=TOP * folds)
        wide = self._map("wide")
        self.steps += self.make.elementwise("mul", less, scale, wide)
        squares = self._map("squares")
        self.steps += self.make.elementwise("mul", wide, wide, squares)
        halvings = 2.0 ** -math.ceil(math.log2(self.pixels))
        spread = self._grouped(self._pixel_sum(squares, "variance", halvings), "variance", folds)
        unit = self.each * self.pixels * folds * halvings  # the sum of squares is the variance times this
        root = math.sqrt(epsilon * unit)
        parts = {"first": stage(mul=root), "second": stage(mul=root)}
        added = self._stages("epsilon", scale, scale, method="mul", **parts)
        total = self._stages("total", spread, added, second=stage(add=SMALLEST), method="add")
        quotient = self._stages("quotient", scale, self._root(total), method="div")
        return self.steps, self._stages("limited", quotient, method="min", operand=LARGEST), less, unit**0.5

    def _centred(self, x: Tensor, name: str) -> Tensor:
        """Subtract the mean of each group."""
        mean = self._pixel_sum(x, name, 1.0 / self.pixels)
        less = self._map(f"{name}_less")
        self.steps += self.make.elementwise("sub", x, self._grouped(mean, name, 1.0 / self.each), less)
        return less

    def _root(self, total: Tensor) -> Tensor:
        """Return the square root of a number between 2^-14 and 32 768.

        The number r of round n is kept as r * 2^(n - `ROUNDS`), so that r + total / r is its double.
        """
        root: Tensor | None = None
        for number, exponent in enumerate(TANGENTS):
            at = 4.0**exponent
            second = stage(mul=2.0**-ROUNDS / (2 * at), add=2.0**-ROUNDS * at / 2)
            if root is None:
                root = self._stages("tangent0", total, second=second)
            else:
                root = self._stages(f"tangent{number}", total, root, second=second, method="min")
        assert root is not None
        for number in range(ROUNDS):
            ratio = self._stages(f"ratio{number}", total, root, method="div")
            factor = stage(mul=4.0 ** (number - ROUNDS))
            root = self._stages(f"root{number}", ratio, root, second=factor, method="add")
        return root

    def _grouped(self, x: Tensor, name: str, weight: float) -> Tensor:
        """Add the channels of each group, each times a weight."""
        groups = self.count // self.each
        if self.each == 1:
            return x
        member = np.repeat(np.eye(groups), self.each, axis=1)
        weights = member * np.tile(_weights(weight, self.each), groups)
        made = self._line(f"{name}_spread")
        if self.count <= DENSE:
            self.steps += self.make.pixelwise(x, made, member.T @ weights)
            return made
        sums = self._line(f"{name}_group", groups)
        self.steps += self.make.pixelwise(x, sums, weights)
        self.steps += self.make.pixelwise(sums, made, member.T)
        return made

    def _pixel_sum(self, x: Tensor, name: str, weight: float) -> Tensor:
        """Add the pixels of each channel, each times a weight; sums of blocks are averages."""
        number = 0
        while x.cube[1:] != (1, 1):
            height, width = x.cube[1:]
            if max(height, width) <= CONV_KERNEL:
                down, across = height, width
                part = _weights(weight, down * across).reshape(down, across)
            else:
                down, across = (
                    1 if n <= CONV_KERNEL else 2 if n <= 2 * CONV_KERNEL else 4 for n in (height, width)
                )
                part = np.full((down, across), 1.0 / (down * across))
                weight *= down * across
            counts = (-(-height // down), -(-width // across))
            pads = (0, 0, counts[0] * down - height, counts[1] * across - width)
            made = self._part(f"{name}_sum{number}", (self.count, *counts))
            window = Window((down, across), (down, across), pads)
            self.steps += self.make.depthwise(x, made, part, window.used(made))
            x, number = made, number + 1
        return x

    def _largest(self, x: Tensor) -> Tensor:
        """Return the largest magnitude of each channel."""
        made = self._map("magnitudes")
        self.steps += self.make.step(FloatStep, inputs=(x,), output=made, method="abs")
        x, number = made, 0
        while x.cube[1:] != (1, 1):
            (down, bottom), (across, right) = (_blocks(n) for n in x.cube[1:])
            window = Window((down, across), (down, across), (0, 0, bottom, right))
            counts = tuple(-(-n // b) for n, b in zip(x.cube[1:], (down, across), strict=True))
            made = self._part(f"largest{number}", (self.count, *counts))
            fields = {"method": "max", "window": window.used(made), "pad_value": 0}
            self.steps += self.make.step(PoolStep, inputs=(x,), output=made, **fields)
            x, number = made, number + 1
        return x

    def _stages(self, name: str, *inputs: Tensor, **fields: object) -> Tensor:
        """Add a step on one number of each channel and return its result."""
        made = self._line(name)
        self.steps += self.make.step(FloatStep, inputs=inputs, output=made, **fields)
        return made

    def _map(self, name: str) -> Tensor:
        return self._part(name, self.x.cube)

    def _line(self, name: str, channels: int = 0) -> Tensor:
        return self._part(name, (channels or self.count, 1, 1))

    def _part(self, name: str, cube: tuple[int, ...]) -> Tensor:
        assert len(cube) == 3
        return g.Tensor(f"{self.make.output.name}.{name}", (1, *cube), 1.0, 0, cube, real=True)


def _weights(weight: float, count: int) -> npt.NDArray[np.float16]:
    """Return weights of fp16 that add up to `weight` times `count`, as evenly as possible."""
    low = np.float16(weight)
    if low > weight:
        low = np.nextafter(low, np.float16(0))
    high = np.nextafter(low, np.float16(np.inf))
    more = round(count * (weight - float(low)) / (float(high) - float(low)))
    places = np.arange(count + 1) * more // count
    return np.where(np.diff(places) > 0, high, low)


def _blocks(size: int) -> tuple[int, int]:
    """Return the largest window of the PPU for disjoint blocks of a line, and the padding after the last."""
    for block in range(min(size, PPU_KERNEL), 0, -1):
        if -size % block <= PPU_PAD:
            return block, -size % block
    raise AssertionError("a block of one element has no padding")
