"""Matrix products whose K is computed in parts: the RTL and the golden device, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.compiler.matmul.shape import pack_elements
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf.boards.matmul_plans import Cut, tiles_of
from rkcosim.measure.perf.workloads import multiply
from rkcosim.rknn_api.session import matmul

RNG = np.random.default_rng(17)


@pytest.fixture(autouse=True)
def no_device_left() -> Iterator[None]:
    yield
    rk.use_device(None)


@pytest.mark.parametrize(
    ("kind", "m", "k", "n"),
    [
        (rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, 70, 4096, 48),
        (rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16, 37, 8224, 32),
        (rk.RKNN_INT8_MM_INT8_TO_INT32, 70, 8192, 64),
        (rk.RKNN_INT8_MM_INT8_TO_FLOAT32, 37, 16416, 32),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_rtl_equals_golden(kind: int, m: int, k: int, n: int) -> None:
    a, b = (RNG.normal(size=shape).astype(np.float16) for shape in ((m, k), (k, n)))
    if "INT8" in kind.name:
        a, b = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    rk.use_device(GoldenNpu(1))
    wanted = matmul(a, b, kind)
    engine = open_engine(cores=1)
    try:
        rk.use_device(engine, quiet=True)
        got = matmul(a, b, kind)
        assert len(engine.task_log()) > 2
    finally:
        rk.use_device(None)
        engine.close()
    assert np.array_equal(got.view(np.uint8), wanted.view(np.uint8))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    step = 2.0**-10 if got.dtype == np.float16 else 2.0**-20
    assert (np.abs(got - exact) <= np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * step).all()


def test_tasks_of_the_measured_software() -> None:
    """Parts of K outermost, sums in fp16, rows of A used again: the RTL, the golden device and numpy."""
    kind = KINDS["float16 x float16 -> float16"]
    whole = Matmul(kind, 32, 128, 48, c_native=True)
    product = whole.with_tiles(tiles_of(whole, Cut(16, 16, 64)))
    assert len(product.tiles) == 12 and sum(tile.data_reuse for tile in product.tiles) == 8
    a, b = (RNG.normal(size=shape).astype(np.float16) for shape in ((32, 128), (128, 48)))
    given = pack_elements(a, kind.bits), product.pack_b(b)
    wanted = multiply(Driver(GoldenNpu(1)), product, *given)
    with open_engine(cores=1) as engine:
        got = multiply(Driver(engine), product, *given)
    assert np.array_equal(got, wanted)
    found = wanted.view(np.float16).reshape(6, 32, 8).transpose(1, 0, 2).reshape(32, 48)
    parts = [a[:, k : k + 64].astype(np.float64) @ b[k : k + 64].astype(np.float64) for k in (0, 64)]
    near = np.abs(parts[0]) + np.abs(parts[0] + parts[1]) + 0.5
    assert (np.abs(found - (parts[0] + parts[1])) <= near * 2.0**-9).all()
