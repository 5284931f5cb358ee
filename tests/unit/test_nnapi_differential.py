"""Random operations and chains of NNAPI on the NPU (golden model) against the same ones on the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.emit import EMITTERS
from rkcosim.apis.nnapi.model import Model
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.prepared import prepare
from rkcosim.apis.nnapi.values import ExecutionError
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from tests import seeds
from tests.makers.nnapi_models import F16, I32, S8, U8, Builder, T

Array = npt.NDArray[Any]
Draw = Callable[[int, int], int]
"""Draws an integer between two limits, both included."""

MACHINES: list[Machine] = []


@pytest.fixture(scope="module", autouse=True)
def golden() -> Iterator[None]:
    """Keep one device of the golden model for all tests."""
    MACHINES.append(open_machine(Settings(engine="golden")))
    yield
    MACHINES.pop().close()


class Drawn:
    """One random operation: model, inputs, and the shape of the first input in NHWC."""

    def __init__(self, draw: Draw, kind: T, seed: int) -> None:
        self.draw, self.kind, self.b = draw, kind, Builder()
        self.random = np.random.default_rng(seed)
        self.arrays: list[Array] = []
        self.nchw = bool(draw(0, 1))

    def values(self, shape: tuple[int, ...]) -> Array:
        """Return random elements."""
        if self.kind is F16:
            return self.random.normal(size=shape).astype(np.float16)
        limits = np.iinfo(self.kind.dtype)
        return self.random.integers(limits.min, limits.max + 1, shape).astype(self.kind.dtype)

    @property
    def quantisation(self) -> tuple[float, int]:
        """Return a scale and a zero point for the type."""
        if self.kind is F16:
            return 0.0, 0
        return 2.0 ** self.draw(-6, -3), self.draw(-20, 20) + 128 * (self.kind is U8)

    def tensor(self, shape: tuple[int, ...], quantisation: tuple[float, int]) -> int:
        """Add an input in NHWC, or transposed for NCHW."""
        if self.nchw and len(shape) == 4:
            shape = (shape[0], shape[3], shape[1], shape[2])
        self.arrays.append(self.values(shape))
        return self.b.input(self.kind, shape, *quantisation)

    def map(
        self, quantisation: tuple[float, int], low: int = 1, most: int = 9
    ) -> tuple[int, tuple[int, ...]]:
        """Add an input that is a map."""
        draw = self.draw
        shape = (draw(1, 2), draw(low, 7), draw(low, 7), draw(1, most))
        return self.tensor(shape, quantisation), shape

    def finish(self, kind: str, ends: list[int], quantisation: tuple[float, int], count: int = 1) -> Model:
        """Add the operation with results of unknown rank."""
        self.b.add(kind, ends, *(self.b.output(self.kind, (), *quantisation) for _ in range(count)))
        return self.b.model()

    def scalars(self, *numbers: int | bool) -> list[int]:
        """Add constant scalars."""
        return [self.b.scalar(n) for n in numbers]

    def weights(self, shape: tuple[int, ...], scale: float, channels: int) -> list[int]:
        """Add a constant filter and its bias."""
        if self.kind is F16:
            return [self.b.constant(F16, self.values(shape)), self.b.constant(F16, self.values((channels,)))]
        zero = self.draw(-5, 5) + 128 * (self.kind is U8)
        bias = self.random.integers(-500, 500, channels)
        own = self.b.constant(self.kind, self.values(shape), 0.03125, zero)
        return [own, self.b.constant(I32, bias, 0.03125 * scale)]


def convolution(d: Drawn) -> Model:
    """CONV_2D, DEPTHWISE_CONV_2D or GROUPED_CONV_2D with explicit or implicit padding."""
    draw, q = d.draw, d.quantisation
    x, shape = d.map(q, low=3)
    kind = ("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D")[draw(0, 2)]
    size, channels = (draw(1, 3), draw(1, 3)), shape[3]
    extra: list[int | bool] = []
    if kind == "DEPTHWISE_CONV_2D":
        extra = [draw(1, 2)]
        kernels = d.weights((1, *size, channels * int(extra[0])), q[0], channels * int(extra[0]))
    elif kind == "GROUPED_CONV_2D":
        groups = channels if draw(0, 1) else 1
        extra, count = [groups], groups * draw(1, 2)
        kernels = d.weights((count, *size, channels // groups), q[0], count)
    else:
        count = draw(1, 20)
        kernels = d.weights((count, *size, channels), q[0], count)
    place = [draw(1, 2)] if draw(0, 1) else [draw(0, 1) for _ in range(4)]
    strides, act = [draw(1, 2), draw(1, 2)], draw(0, 3)
    spread = [draw(1, 2), draw(1, 2)] if kind == "CONV_2D" and min(shape[1:3]) >= 5 else []
    made = (2.0, 128 * (d.kind is U8)) if d.kind is not F16 else (0.0, 0)
    ends = [x, *kernels, *d.scalars(*place, *strides, *extra, act, d.nchw, *spread)]
    return d.finish(kind, ends, made)


def pool(d: Drawn) -> Model:
    """AVERAGE_POOL_2D or MAX_POOL_2D."""
    draw, q = d.draw, d.quantisation
    x, _ = d.map(q, low=2)
    place = [draw(1, 2)] if draw(0, 1) else [draw(0, 1) for _ in range(4)]
    rest = [draw(1, 2), draw(1, 2), 2, 2, draw(0, 3), d.nchw]
    return d.finish(("AVERAGE_POOL_2D", "MAX_POOL_2D")[draw(0, 1)], [x, *d.scalars(*place, *rest)], q)


def binary(d: Drawn) -> Model:
    """An operation on two operands of which one is repeated along some axes."""
    draw = d.draw
    shape = tuple(draw(1, 5) for _ in range(draw(1, 4)))
    small = tuple(n if draw(0, 1) else 1 for n in shape)[draw(0, len(shape) - 1) :]
    d.nchw = False
    first, second = d.tensor(shape, d.quantisation), d.tensor(small, d.quantisation)
    kind = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")[draw(0, 4)]
    ends = [first, second] if draw(0, 1) else [second, first]
    made = (0.25, draw(-20, 20) + 128 * (d.kind is U8)) if d.kind is not F16 else (0.0, 0)
    return d.finish(kind, ends + (d.scalars(draw(0, 3)) if kind in ("ADD", "SUB", "MUL") else []), made)


def movement(d: Drawn) -> Model:
    """A movement of elements with one result or two."""
    draw, q = d.draw, d.quantisation
    kind = MOVEMENTS[draw(0, len(MOVEMENTS) - 1)]
    if kind == "SPACE_TO_DEPTH":
        shape = (draw(1, 2), 2 * draw(1, 3), 2 * draw(1, 3), draw(1, 9))
        return d.finish(kind, [d.tensor(shape, q), *d.scalars(2, d.nchw)], q)
    if kind == "DEPTH_TO_SPACE":
        shape = (draw(1, 2), draw(1, 4), draw(1, 4), 4 * draw(1, 5))
        return d.finish(kind, [d.tensor(shape, q), *d.scalars(2, d.nchw)], q)
    if kind.startswith("RESIZE_"):
        x, shape = d.map(q, low=2)
        sizes = [shape[2] * 2, shape[1] * draw(1, 3)]
        if kind == "RESIZE_BILINEAR":
            sizes = [draw(1, 9), draw(1, 9)]
        flags = ((False, False), (True, False), (False, True))[draw(0, 2)]
        return d.finish(kind, [x, *d.scalars(*sizes, d.nchw, *flags)], q)
    d.nchw = False
    if kind.startswith("PAD"):
        x, shape = d.map(q, low=2)
        pads = [[0, 0], *([draw(0, 2), draw(0, 2)] for _ in range(3))]
        fill = [] if kind == "PAD" else [d.b.scalar(draw(1, 9), T.INT32)]
        if kind == "PAD_V2" and d.kind is F16:
            fill = [d.b.scalar(0.5, T.FLOAT16)]
        return d.finish(kind, [x, d.b.constant(I32, pads), *fill], q)
    raise ValueError(kind)


def part(d: Drawn) -> Model:
    """A part of a tensor of any rank, or two tensors joined."""
    draw, q = d.draw, d.quantisation
    kind, d.nchw = PARTS[draw(0, len(PARTS) - 1)], False
    shape = tuple(draw(1, 5) for _ in range(draw(1, 4)))
    x = d.tensor(shape, q)
    if kind == "CONCATENATION":
        axis = draw(0, len(shape) - 1)
        other = tuple(draw(1, 4) if n == axis else size for n, size in enumerate(shape))
        return d.finish(kind, [x, d.tensor(other, d.quantisation), *d.scalars(axis)], q)
    if kind == "SPLIT":
        axis = draw(0, len(shape) - 1)
        if shape[axis] % 2:
            return d.finish(kind, [x, *d.scalars(axis, 1)], q)
        return d.finish(kind, [x, *d.scalars(axis, 2)], q, 2)
    begins = [draw(0, n - 1) for n in shape]
    if kind == "SLICE":
        sizes = [draw(1, n - first) for first, n in zip(begins, shape, strict=True)]
        return d.finish(kind, [x, d.b.constant(I32, begins), d.b.constant(I32, sizes)], q)
    steps = [draw(1, 2) for _ in shape]
    ends = [x, d.b.constant(I32, begins), d.b.constant(I32, shape), d.b.constant(I32, steps)]
    return d.finish(kind, [*ends, *d.scalars(draw(0, 15), draw(0, 15), 0)], q)


PARTS = ("STRIDED_SLICE", "SLICE", "SPLIT", "CONCATENATION")
MOVEMENTS = (
    "PAD",
    "PAD_V2",
    "RESIZE_NEAREST_NEIGHBOR",
    "RESIZE_BILINEAR",
    "SPACE_TO_DEPTH",
    "DEPTH_TO_SPACE",
)

SINGLE = ("RELU", "RELU1", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "ELU", "ABS", "NEG", "FLOOR", "EXP")
"""Functions of one number."""

TURNS = itertools.count()
"""Functions take turns, so that each one is tried."""

REALS_ALONE = {"ELU", "ABS", "NEG", "FLOOR", "EXP", "DIV"}
"""Operations that NNAPI has not on bytes."""


def function(d: Drawn) -> Model:
    """A function of one number, on a tensor of any rank."""
    draw, q = d.draw, d.quantisation
    kinds = SINGLE if d.kind is F16 else tuple(kind for kind in SINGLE if kind not in REALS_ALONE)
    kind, d.nchw = kinds[next(TURNS) % len(kinds)], False
    x = d.tensor(tuple(draw(1, 6) for _ in range(draw(1, 4))), q)
    made = q
    if kind in ("LOGISTIC", "TANH") and d.kind is not F16:
        scale, zero = (1 / 256, 0) if kind == "LOGISTIC" else (1 / 128, 128)
        made = scale, zero - 128 * (d.kind is S8)
    more = [d.b.scalar(1.0, T.FLOAT16)] if kind == "ELU" else []
    return d.finish(kind, [x, *more], made)


def reduction(d: Drawn) -> Model:
    """MEAN over rows and columns, with and without their axes."""
    draw, q = d.draw, d.quantisation
    d.nchw = False
    x, _ = d.map(q)
    axes = ([1, 2], [2, 1], [-2, -3], [1, -2])[draw(0, 3)]
    return d.finish("MEAN", [x, d.b.constant(I32, axes), *d.scalars(draw(0, 1))], q)


def slopes(d: Drawn) -> Model:
    """PRELU with one slope, or one for each index of the last axis."""
    draw, q = d.draw, d.quantisation
    d.nchw = False
    shape = tuple(draw(1, 6) for _ in range(draw(1, 4)))
    count = shape[-1] if draw(0, 1) else 1
    own = (1,) * draw(0, len(shape) - 1) + (count,)
    scale = () if d.kind is F16 else (0.015625, 128 * (d.kind is U8))
    return d.finish("PRELU", [d.tensor(shape, q), d.b.constant(d.kind, d.values(own), *scale)], q)


def connected(d: Drawn) -> Model:
    """FULLY_CONNECTED of matrices and of tensors of more axes."""
    draw, q = d.draw, d.quantisation
    d.nchw = False
    shape = tuple(draw(1, 4) for _ in range(draw(2, 4)))
    depth = int(np.prod(shape[-1 - draw(0, len(shape) - 2) :]))
    kernels = d.weights((draw(1, 9), depth), q[0], 0)[:1]
    units = d.b.operands[kernels[0]].dimensions[0]
    bias = [d.b.constant(F16, d.values((units,)))]
    if d.kind is not F16:
        bias = [d.b.constant(I32, d.random.integers(-500, 500, units), 0.03125 * q[0])]
    made = (2.0, 128 * (d.kind is U8)) if d.kind is not F16 else (0.0, 0)
    return d.finish("FULLY_CONNECTED", [d.tensor(shape, q), *kernels, *bias, *d.scalars(draw(0, 3))], made)


def transposed(d: Drawn) -> Model:
    """TRANSPOSE_CONV_2D with explicit padding."""
    draw, q = d.draw, d.quantisation
    x, shape = d.map(q, low=2, most=5)
    count, size = draw(1, 5), (draw(1, 3), draw(1, 3))
    kernels = d.weights((count, *size, shape[3]), q[0], count)
    made = (2.0, 128 * (d.kind is U8)) if d.kind is not F16 else (0.0, 0)
    words = [0, draw(0, 1), 0, draw(0, 1), draw(1, 2), draw(1, 2), draw(0, 3), d.nchw]
    return d.finish("TRANSPOSE_CONV_2D", [x, *kernels, *d.scalars(*words)], made)


def reshaped(d: Drawn) -> Model:
    """A ReLU, and its result in another shape."""
    draw, q = d.draw, d.quantisation
    d.nchw = False
    shape = (draw(1, 3), *(draw(1, 4) for _ in range(draw(0, 2))), 1)
    x = d.b.between(d.kind, (), *q)
    d.b.add("RELU", [d.tensor(shape, q)], x)
    kind = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")[draw(0, 2)]
    if kind == "RESHAPE":
        more = d.b.constant(I32, (shape[::-1], (-1,), (1, -1, 1), (shape[0], -1))[draw(0, 3)])
    else:
        more = d.b.constant(I32, [len(shape) - 1]) if kind == "SQUEEZE" else d.b.scalar(draw(0, len(shape)))
    return d.finish(kind, [x, more], q)


def quotient(d: Drawn) -> Model:
    """DIV of real numbers; of bytes, which have none, a product."""
    draw, q = d.draw, d.quantisation
    d.nchw = False
    shape = tuple(draw(1, 5) for _ in range(draw(1, 4)))
    ends = [d.tensor(shape, q), d.tensor(shape, q)]
    if d.kind is F16:
        d.arrays[1] = (np.abs(d.arrays[1]) + np.float16(0.5)).astype(np.float16)
        return d.finish("DIV", [*ends, *d.scalars(draw(0, 3))], (0.0, 0))
    return d.finish("MUL", [*ends, *d.scalars(draw(0, 3))], (0.25, 128 * (d.kind is U8)))


MAKERS = (
    convolution,
    pool,
    binary,
    movement,
    part,
    function,
    reduction,
    slopes,
    connected,
    transposed,
    reshaped,
    quotient,
)
DRAWN: set[str] = set()
"""Operations that were drawn."""


def results(model: Model, arrays: list[Array], npu: bool) -> tuple[list[Array] | None, list[str]]:
    """Execute a model; return None if it fails, and where the operations ran."""
    with prepare(model, machine=MACHINES[0], npu=npu) as prepared:
        try:
            return prepared.execute(arrays), [record.place for record in prepared.account.operations]
        except ExecutionError:
            return None, []


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", [U8, S8, F16])
@settings(deadline=None, max_examples=15)
@given(st.data(), st.integers(0, 2**16))
def test_operation(make: Callable[[Drawn], Model], kind: T, data: st.DataObject, seed: int) -> None:
    compare(make, Drawn(lambda low, high: data.draw(st.integers(low, high)), kind, seed))


def compare(make: Callable[[Drawn], Model], d: Drawn) -> None:
    """Compare what the NPU computes of a drawn model with what the host computes."""
    model, kind = make(d), d.kind
    DRAWN.update(OperationType(operation.type).name for operation in model.main.operations)
    found, _ = results(model, d.arrays, True)
    expected, _ = results(model, d.arrays, False)
    assert (found is None) == (expected is None)
    for x, y in zip(found or [], expected or [], strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        if kind is F16:
            np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=2**-8, atol=0.05)
        else:
            assert np.abs(x.astype(int) - y.astype(int)).max(initial=0) <= 1


def test_every_emitter_was_drawn() -> None:
    """No form of an operation for the NPU is without a comparison (runs behind the test above).

    What is drawn there depends on the version of hypothesis, so that what is missing is drawn here.
    """
    rng = np.random.default_rng(seeds.seed(__name__, 3))
    for number in range(400):
        if set(EMITTERS) <= DRAWN:
            break
        draw = Drawn(lambda low, high: int(rng.integers(low, high + 1)), (U8, S8, F16)[number % 3], number)
        compare(MAKERS[number % len(MAKERS)], draw)
    assert set(EMITTERS) <= DRAWN, sorted(set(EMITTERS) - DRAWN)


STEPS = ("RELU", "MAX_POOL_2D", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "PAD", "SLICE", "RESIZE", "CONCATENATION",
         "TRANSPOSE", "RESHAPE", "MAXIMUM")  # fmt: skip


def step(
    b: Builder, draw: Draw, x: int, shape: tuple[int, ...], made: int, kind: str
) -> tuple[int, ...] | None:
    """Add an exact operation from operand x to `made`; return the new shape, None if it does not fit."""
    nchw, again = bool(draw(0, 1)), b.operands[x]
    n, h, w, c = (shape[0], shape[2], shape[3], shape[1]) if nchw else shape

    def given(height: int, width: int, channels: int) -> tuple[int, ...]:
        return (n, channels, height, width) if nchw else (n, height, width, channels)

    if kind == "RELU":
        b.add(kind, [x], made)
        return shape
    if kind == "MAXIMUM":
        b.add(
            kind, [x, b.constant(S8, np.full(shape[-1:], draw(-9, 9)), again.scale, again.zero_point)], made
        )
        return shape
    if kind == "MAX_POOL_2D" and min(h, w) >= 2:
        b.add(kind, [x, *(b.scalar(k) for k in (2, 1, 1, 2, 2, 0)), b.scalar(nchw)], made)
        return given(h - 1, w - 1, c)
    if kind == "SPACE_TO_DEPTH" and h % 2 == w % 2 == 0 and c < 20:
        b.add(kind, [x, b.scalar(2), b.scalar(nchw)], made)
        return given(h // 2, w // 2, 4 * c)
    if kind == "DEPTH_TO_SPACE" and c % 4 == 0 and max(h, w) < 12:
        b.add(kind, [x, b.scalar(2), b.scalar(nchw)], made)
        return given(h * 2, w * 2, c // 4)
    if kind == "PAD" and max(shape) < 14:
        b.add(kind, [x, b.constant(I32, [[0, 0], [1, 0], [0, 1], [0, 0]])], made)
        return shape[0], shape[1] + 1, shape[2] + 1, shape[3]
    if kind == "SLICE" and shape[1] > 1:
        b.add(kind, [x, b.constant(I32, [0, 1, 0, 0]), b.constant(I32, [-1, -1, -1, -1])], made)
        return shape[0], shape[1] - 1, shape[2], shape[3]
    if kind == "RESIZE" and max(h, w) < 8:
        b.add("RESIZE_NEAREST_NEIGHBOR", [x, b.scalar(w * 2), b.scalar(h * 2), b.scalar(nchw)], made)
        return given(h * 2, w * 2, c)
    if kind == "CONCATENATION" and max(shape) < 10:
        axis = draw(1, 3)
        b.add(kind, [x, x, b.scalar(axis)], made)
        return tuple(2 * size if k == axis else size for k, size in enumerate(shape))
    if kind == "RESHAPE" and c % 2 == 0:
        made_shape = (shape[0], shape[1] * 2, *((shape[2] // 2, shape[3]) if shape[2] % 2 == 0 else ()))
        if len(made_shape) == 4:
            b.add(kind, [x, b.constant(I32, made_shape)], made)
            return made_shape
    if kind == "TRANSPOSE":
        b.add(kind, [x, b.constant(I32, [0, 3, 1, 2])], made)
        return shape[0], shape[3], shape[1], shape[2]
    return None


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(0, 2**16))
def test_chain(data: st.DataObject, seed: int) -> None:
    """All results of a chain of exact operations, with both layouts, are the same bytes on NPU and host."""

    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    b, shape = Builder(), (draw(1, 2), draw(1, 6), draw(1, 6), draw(1, 9))
    array = np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
    x = b.input(S8, shape, 0.5, 3)
    for _ in range(draw(1, 8)):
        made = b.output(S8, (), 0.5, 3) if draw(0, 2) == 0 else b.between(S8, (), 0.5, 3)
        after = step(b, draw, x, shape, made, STEPS[draw(0, len(STEPS) - 1)])
        if after is None:
            b.operands.pop()
            continue
        x, shape = made, after
    b.add("RELU", [x], b.output(S8, (), 0.5, 3))
    found, places = results(b.model(), [array], True)
    expected, _ = results(b.model(), [array], False)
    assert found is not None and expected is not None and "npu" in places
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_array_equal(y, z)
