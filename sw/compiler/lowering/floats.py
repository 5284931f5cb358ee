"""Lowering of operations on fp16 numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.functions import function_of_floats
from rkcosim.compiler.graph import Clamp, ModelError, Op, Tensor, Window
from rkcosim.compiler.graph_products import KernelAtoms, KernelTiles, Product
from rkcosim.compiler.lowering.common import (
    INSERTS,
    Array,
    exceeds,
    ppu_does,
    reaches_outside,
    staged_blocks,
)
from rkcosim.compiler.lowering.curves import (
    BENDS,
    CURVES,
    GATES,
    TABLE_FRACTION,
    Bend,
    Curve,
    curve_table,
    float_stage,
)
from rkcosim.compiler.lowering.moves import Moves
from rkcosim.compiler.lowering.normalise import normalise
from rkcosim.compiler.lowering.softmax import softmax
from rkcosim.compiler.normalisation import Normalise, NormaliseMap
from rkcosim.compiler.programs.floats import single_bits
from rkcosim.compiler.softmax import Softmax
from rkcosim.compiler.steps import (
    AtomsStep,
    BinaryStep,
    Converter,
    ConvStep,
    FloatStage,
    FloatStep,
    Limits,
    PoolStep,
    ProductStep,
    Slopes,
    Step,
    TableStep,
    TilesStep,
)


class Floats(Moves):
    """Lowering for fp16: float16 weights, float32 biases, limits as binary32 patterns, no converter."""

    atom_channels = 8
    unit = 1

    def steps(self) -> list[Step]:
        clamp = self.op.clamp
        if clamp == Clamp() or (clamp.low == 0.0 and clamp.high > 0.0):
            return super().steps()
        last = FloatStage(high=clamp.high if math.isfinite(clamp.high) else None)
        fields: dict[str, Any] = {"last": last}
        if math.isfinite(clamp.low):
            fields |= {"method": "max", "operand": clamp.low}
        if isinstance(self.op, g.Rescale):
            return self.step(FloatStep, **fields)
        between = replace(self.output, name=f"{self.output.name}.unclamped")
        first = self.also(replace(self.op, clamp=Clamp()), self.inputs, between)
        return [*first, *self.step(FloatStep, inputs=(between,), **fields)]

    def movements(self) -> dict[type[Op], Callable[[], list[Step]]]:
        kinds: dict[type[Op], type[Step]] = {
            KernelAtoms: AtomsStep,
            KernelTiles: TilesStep,
            Product: ProductStep,
        }
        own = {op: partial(self._of_product, step) for op, step in kinds.items()}
        return {
            **super().movements(),
            **own,
            Softmax: partial(softmax, self),
            Normalise: partial(normalise, self),
            NormaliseMap: self._normalise_map,
        }

    def _normalise_map(self) -> list[Step]:
        from rkcosim.compiler.lowering.normalise_maps import normalise_map

        return normalise_map(self)

    def joined_channels(self) -> list[Step]:
        """Place the channels of each input with a convolution of ones, and add these."""
        y, steps, first = self.output, [], 0
        before: Tensor | None = None
        for number, x in enumerate(self.inputs):
            made = replace(y, name=f"{y.name}.placed{number}")
            weights = np.zeros((y.cube[0], x.cube[0], 1, 1), dtype=np.int8)
            weights[first + np.arange(x.cube[0]), np.arange(x.cube[0])] = 1
            first += x.cube[0]
            steps += self.select(weights, Window((1, 1)), inputs=(x,), output=made)
            if before is not None:
                both = y if number == len(self.inputs) - 1 else replace(y, name=f"{y.name}.join{number}")
                steps += self.elementwise("add", before, made, both)
                made = both
            before = made
        return steps

    def elementwise(self, method: str, a: Tensor, b: Tensor, y: Tensor) -> list[Step]:
        """Return an operation on the elements of two tensors."""
        ends, converter = {"inputs": (a, b), "output": y}, self.converter(1.0)
        return self.step(BinaryStep, **ends, method=method, scales=(1, 1), limits=None, converter=converter)

    def pixelwise(self, x: Tensor, y: Tensor, weights: Array, bias: Array | None = None) -> list[Step]:
        """Return a convolution of one tap with weights (OC, IC)."""
        sums = np.zeros(len(weights)) if bias is None else bias
        halves = self._halves(weights, "weight").reshape(*weights.shape, 1, 1)
        return self._sums(halves, sums, Window((1, 1)), False, inputs=(x,), output=y)

    def depthwise(self, x: Tensor, y: Tensor, weights: Array, window: Window) -> list[Step]:
        """Return sums of windows with weights (rows, columns), each channel by itself."""
        halves = self._halves(np.tile(weights, (x.cube[0], 1, 1, 1)), "weight")
        return self._sums(halves, np.zeros(len(halves)), window, True, inputs=(x,), output=y)

    def curve(self, curve: Curve, x: Tensor, y: Tensor) -> list[Step]:
        """Return a table of a function between 0 and 1."""
        return self._table(curve, False, y, x)

    def reciprocal(self, x: Tensor, y: Tensor) -> list[Step]:
        """Return 1 / x."""
        return self.step(FloatStep, inputs=(x, x), output=y, method="div", dividend=1.0)

    def _of_product(self, kind: type[Step]) -> list[Step]:
        if self.clamped:  # a product has no stage that limits
            return self.clamp_apart("unclamped")
        more = {"scale": self.op.scale} if kind is ProductStep else {}
        return self.step(kind, factors=self.op.factors, **more)

    def affine(self) -> list[Step]:
        """Multiply and add in BN; a gate is limited in BS, scaled in BN and multiplied by x in EW.

        BS has its operand in a register, so a gate with one number per channel is in BN.
        """
        op, limits = self.op, self._last()
        if not op.gated:
            second = float_stage(op.scale, op.shift, limits)
            return self.step(FloatStep, second=second)
        if op.shift.size == 1 and op.scale.size == 1 and float(op.scale[0]) == 1.0:
            first = float_stage(np.ones(1), op.shift, limits)
            second = float_stage(np.array([op.gain]), np.zeros(1))
        else:
            first, second = FloatStage(), float_stage(op.scale, op.shift, limits)
            if op.gain != 1.0:
                raise ModelError(f"{self.what}: a gate with two factors")
        return self.step(FloatStep, inputs=(self.x, self.x), first=first, second=second, method="mul")

    def _last(self) -> FloatStage:
        """Return the operation's clamp at 0 and above as limits of a stage."""
        high = self.op.clamp.high
        return FloatStage(relu=self.clamped, high=high if math.isfinite(high) else None)

    def real_function(self) -> list[Step]:
        """Lower a function of one number: stages of the DPU, or tables with interpolation."""
        op, name = self.op, self.op.function
        if self.clamped:
            return self.clamp_apart("unclamped")
        ends = (op.name, op.inputs, op.output)
        if name == "HardSigmoid":
            clamp = Clamp(0.0, 1.0)
            return self._as(g.Affine(*ends, np.array([op.alpha]), np.array([op.beta]), clamp=clamp))
        if name == "HardSwish":
            clamp, one = Clamp(0.0, 6.0), np.ones(1)
            return self._as(g.Affine(*ends, one, 3 * one, gated=True, gain=1 / 6, clamp=clamp))
        if name in ("Abs", "Neg", "Floor", "Ceil"):
            return self.step(FloatStep, method=name.lower())
        if name == "Reciprocal":
            return self.reciprocal(self.x, self.output)
        if name == "Swish" and op.alpha <= 0:
            raise ModelError(f"{self.what}: the factor {op.alpha} is not positive")
        if name in GATES:
            between = replace(self.output, name=f"{self.output.name}.gate")
            gate = self._table(GATES[name](op.alpha), False, between)
            inputs = (self.x, between)
            return [*gate, *self.step(FloatStep, inputs=inputs, method="mul")]
        if name in CURVES:
            return self._table(*CURVES[name], self.output)
        if name in BENDS and (bend := BENDS[name](op.alpha, op.beta)):
            return self._bend(bend)
        if name == "Softsign":
            return self._softsign()
        raise function_of_floats.error(self.what, name, False)

    def _bend(self, bend: Bend) -> list[Step]:
        """Combine a table of the bend with x itself or with its positive part."""
        function, reach = bend.curve
        unit = 2.0**-bend.exponent
        table = curve_table((lambda x: function(x) * unit, reach), True)
        whole = replace(self.output, name=f"{self.output.name}.whole")
        fields = {"scale": table.scale, "low": table.low, "high": table.high, "select": table.select}
        steps = self.step(TableStep, output=whole, fraction=0, **fields)
        method, part = "max", self.x
        if bend.slope:
            method, part = "add", replace(self.output, name=f"{self.output.name}.positive")
            mul = None if bend.slope == 1 else np.array([bend.slope], np.float16)
            steps += self.step(FloatStep, output=part, second=FloatStage(mul=mul, relu=True))
        back = FloatStage(mul=np.array([2.0 ** (bend.exponent - TABLE_FRACTION)], np.float16))
        return [*steps, *self.step(FloatStep, inputs=(whole, part), second=back, method=method)]

    def _softsign(self) -> list[Step]:
        """Return x / (1 + |x|)."""
        size, divisor = (
            replace(self.output, name=f"{self.output.name}.{end}") for end in ("size", "divisor")
        )
        return [
            *self.step(FloatStep, output=size, method="abs"),
            *self.step(
                FloatStep, inputs=(size,), output=divisor, second=FloatStage(add=np.ones(1, np.float32))
            ),
            *self.step(FloatStep, inputs=(self.x, divisor), method="div"),
        ]

    def _as(self, op: Op) -> list[Step]:
        steps = self.also(op, self.inputs, self.output)
        return [replace(step, kind=self.op.kind) for step in steps]

    def _table(self, curve: Curve, signed: bool, output: Tensor, x: Tensor | None = None) -> list[Step]:
        """Return a table of a function; one of both signs is scaled in a second task.

        The exponent of its result cannot be reduced as it is written, because that changes a zero.
        """
        table = curve_table(curve, signed)
        fields = {"scale": table.scale, "low": table.low, "high": table.high, "select": table.select}
        if not signed:
            ends = {"inputs": (x or self.x,), "output": output}
            return self.step(TableStep, **ends, fraction=TABLE_FRACTION, **fields)
        whole = replace(output, name=f"{output.name}.whole")
        steps = self.step(TableStep, output=whole, fraction=0, **fields)
        unit = FloatStage(mul=np.array([2.0**-TABLE_FRACTION], np.float16))
        return [*steps, *self.step(FloatStep, inputs=(whole,), output=output, second=unit)]

    def converter(self, unit: float) -> Converter:
        return Converter(1, 0, 0)

    def limits(self, unit: float = 1.0) -> Limits:
        if not self.clamped:
            return None
        return 0, None if math.isinf(self.op.clamp.high) else single_bits(self.op.clamp.high)

    def conv(self) -> list[Step]:
        if inserted := self.inserted_by_host():
            return inserted
        if exceeds(self.op, self.output):
            from rkcosim.compiler.lowering.wide import narrowed

            return narrowed(self)
        return self._conv(self.op)

    def _conv(self, conv: g.Conv, **fields: Any) -> list[Step]:
        weights = self._halves(conv.npu_weights, "weight")
        window = conv.window.used(self.output)
        return self._sums(weights, conv.bias, window, conv.depthwise, insert=conv.insert, **fields)

    def _sums(
        self, weights: Array, bias: npt.ArrayLike, window: Window, depthwise: bool, **fields: Any
    ) -> list[Step]:
        return self.step(
            ConvStep,
            weights=weights,
            bias=np.asarray(bias, np.float32),
            multipliers=np.zeros(len(weights), dtype=np.int64),
            window=window,
            depthwise=depthwise,
            limits=self.limits(),
            **fields,
        )

    def conv_slope(self) -> list[Step]:
        """Multiply negative sums in BN; they are not rounded to fp16 before."""
        insert = self.op.conv.insert
        if insert[0] not in INSERTS or insert[1] not in INSERTS:
            raise ModelError("the host inserts pixels first")
        if exceeds(self.op.conv, self.output):
            raise ModelError("a convolution of this size has several tasks")
        return self._conv(self.op.conv, slopes=self.slopes())

    def binary(self) -> list[Step]:
        a, b = self.inputs
        if b.cube != a.cube and b.cube != (a.cube[0], 1, 1):
            raise ModelError(f"{self.what}: operands {a.shape} and {b.shape} cannot be combined")
        if self.op.method == "rsub":
            second = FloatStage(mul=np.array([-1.0], np.float16))
            return self.step(FloatStep, second=second, method="add", last=self._last())
        if self.op.method == "div":  # limits do not act on the bits of a quotient
            return self.clamp_apart("quotient") if self.clamped else self.step(FloatStep, method="div")
        converter = self.converter(1.0)
        return self.step(
            BinaryStep, method=self.op.method, scales=(1, 1), limits=self.limits(), converter=converter
        )

    def pool(self) -> list[Step]:
        op, x, window = self.op, self.x, self.op.window
        if self.clamped:
            return self.clamp_apart("pooled")
        outside = reaches_outside(window, x, self.output)
        if op.method == "average" and outside and not op.count_pad:
            return self.host("AveragePool", window=window)
        if ppu_does(op, self.output):
            return self.step(PoolStep, method=op.method, window=window, pad_value=0)
        if op.method == "max":
            return self.host("MaxPool", window=window)
        if self.past_convolution():
            if op.count_pad and outside:
                raise ModelError(f"{self.what}: window {window.kernel} over padding is too large for floats")
            found = staged_blocks(window.kernel) if op.whole else None
            return self.host("AveragePool", window=window) if found is None else self._staged(*found[:2])
        channels, taps = x.cube[0], window.kernel[0] * window.kernel[1]
        weights = np.full((channels, 1, *window.kernel), 1 / taps, dtype=np.float16)
        return self._sums(weights, np.zeros(channels), window.used(self.output), True)

    def select(
        self,
        weights: Array,
        window: Window,
        *,
        depthwise: bool = False,
        insert: tuple[int, int] = (1, 1),
        value: float | None = None,
        norm: int = 1,
        **ends: Any,
    ) -> list[Step]:
        halves = self._halves(weights / norm, "weight")
        return self._sums(halves, np.zeros(len(halves)), window, depthwise, insert=insert, **ends)

    def whole(self, weights: Array) -> tuple[Array, int] | None:
        return weights, 1

    def _staged(self, block: tuple[int, int], counts: tuple[int, int]) -> list[Step]:
        """Lower a global average as sums of blocks over a power of two, and a weighted sum of these."""
        op, x, size = self.op, self.x, self.op.window.kernel
        taps = 2 ** math.ceil(math.log2(block[0] * block[1]))
        cube = (x.cube[0], *counts)
        between = replace(x, name=f"{op.output}.blocks", shape=(1, *cube), cube=cube, channels_last=False)
        pads = (0, 0, counts[0] * block[0] - size[0], counts[1] * block[1] - size[1])
        result: list[Step] = []
        for source, y, window, weight in (
            (x, between, Window(block, block, pads), 1 / taps),
            (between, self.output, Window(counts), taps / (size[0] * size[1])),
        ):
            weights = np.full((cube[0], 1, *window.kernel), weight, dtype=np.float16)
            ends = {"inputs": (source,), "output": y}
            result += self._sums(weights, np.zeros(cube[0]), window, True, **ends)
        return result

    def slopes(self) -> Slopes:
        return Slopes(self._halves(self.op.slopes, "slope"), 0)

    def _halves(self, values: Array, what: str) -> npt.NDArray[np.float16]:
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        if not np.isfinite(halves).all():
            raise ModelError(f"{self.what}: a {what} is outside the range of fp16")
        return halves
