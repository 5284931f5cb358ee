"""rknn_api: matrix products of every type and layout against numpy, on the golden device."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.matmul import KINDS, Matmul, pack_elements
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.state import runtime
from tests.makers.rknn_models import bytes_of

RNG = np.random.default_rng(11)

# type: (A and B, C, elements of an atom of A, columns of a group, elements of an atom of C)
TYPES = {
    rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32: ("f2", "f4", 8, 16, 4),
    rk.RKNN_INT8_MM_INT8_TO_INT32: ("i1", "i4", 16, 32, 4),
    rk.RKNN_INT8_MM_INT8_TO_INT8: ("i1", "i1", 16, 32, 16),
    rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16: ("f2", "f2", 8, 16, 8),
    rk.RKNN_INT8_MM_INT8_TO_FLOAT32: ("i1", "f4", 16, 32, 4),
    rk.RKNN_INT4_MM_INT4_TO_INT16: ("i4bit", "i2", 32, 64, 8),
}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3))
    yield
    for handle in list(runtime.contexts):
        assert rk.rknn_matmul_destroy(handle) == rk.RKNN_SUCC
    rk.use_device(None)


class Product:
    """A product as a program uses it."""

    def __init__(self, m: int, k: int, n: int, kind: int, **info: int) -> None:
        self.info = rk.rknn_matmul_info(M=m, K=k, N=n, type=int(kind), **info)
        self.ctx, self.io = rk.rknn_matmul_ctx(), rk.rknn_matmul_io_attr()
        code = rk.rknn_matmul_create(ct.byref(self.ctx), ct.byref(self.info), ct.byref(self.io))
        assert code == rk.RKNN_SUCC, rk.last_error()
        self.kind = kind
        self.mem = {name: rk.rknn_create_mem(self.ctx, getattr(self.io, name).size) for name in "ABC"}

    def dims(self, name: str) -> list[int]:
        attr = getattr(self.io, name)
        return list(attr.dims[: attr.n_dims])

    def write(self, name: str, values: np.ndarray) -> None:
        """Numbers in the matrix's layout, in C order."""
        bytes_of(self.mem[name])[:] = pack_elements(values, 4 if TYPES[self.kind][0] == "i4bit" else 8)

    def bind(self, names: str = "ABC") -> None:
        for name in names:
            attr = getattr(self.io, name)
            assert rk.rknn_matmul_set_io_mem(self.ctx, self.mem[name], ct.byref(attr)) == rk.RKNN_SUCC

    def run(self) -> None:
        assert rk.rknn_matmul_run(self.ctx) == rk.RKNN_SUCC, rk.last_error(self.ctx)

    def result(self) -> np.ndarray:
        values = bytes_of(self.mem["C"]).view(TYPES[self.kind][1]).reshape(self.dims("C"))
        return values.transpose(1, 0, 2).reshape(values.shape[1], -1) if values.ndim == 3 else values

    def quant(self, name: str, scales, zeros=()) -> int:
        scale = np.asarray(scales, np.float32).reshape(-1)
        zero = np.asarray(zeros, np.int32).reshape(-1)
        params = rk.rknn_quant_params(name=name.encode(), scale_len=scale.size, zp_len=zero.size)
        params.scale = scale.ctypes.data_as(ct.POINTER(ct.c_float))
        params.zp = zero.ctypes.data_as(ct.POINTER(ct.c_int32)) if zero.size else None
        return rk.rknn_matmul_set_quant_params(self.ctx, ct.byref(params))


def numbers(kind: int, *shape: int) -> np.ndarray:
    source = TYPES[kind][0]
    if source == "f2":
        return RNG.normal(size=shape).astype(np.float16)
    low, high = (-8, 8) if source == "i4bit" else (-128, 128)
    return RNG.integers(low, high, shape).astype(np.int8)


def wanted(kind: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    dtype = np.dtype(TYPES[kind][1])
    if dtype.kind == "i":
        exact = np.clip(exact, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return exact.astype(dtype)


def check(kind: int, got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    want = wanted(kind, a, b)
    assert got.dtype == want.dtype and got.shape == want.shape
    if TYPES[kind][0] != "f2":
        assert np.array_equal(got, want)
        return
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    step = 2.0**-10 if want.dtype == np.float16 else 2.0**-20
    assert (np.abs(got.astype(np.float64) - want) <= bound * step).all()


def native_b(b: np.ndarray, group: int) -> np.ndarray:
    """[N/G, K/32, G, 32]: element by element, by the index rule of the vendor's guide."""
    k, n = b.shape
    flat = np.zeros(k * n, b.dtype)
    rows, columns = np.meshgrid(np.arange(k), np.arange(n), indexing="ij")
    place = (((columns // group) * (k // 32) + rows // 32) * group + columns % group) * 32 + rows % 32
    flat[place] = b
    return flat


def native_a(a: np.ndarray, step: int) -> np.ndarray:
    """[K/s, M, s] by the index rule."""
    m, k = a.shape
    flat = np.zeros(m * k, a.dtype)
    rows, columns = np.meshgrid(np.arange(m), np.arange(k), indexing="ij")
    flat[((columns // step) * m + rows) * step + columns % step] = a
    return flat


def b_layout(kind: int) -> int:
    """The normal layout, except for int4, whose B librknnrt 2.3.2 does not take in it."""
    return int(TYPES[kind][0] == "i4bit")


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("b_layout", list(rk.rknn_matmul_layout), ids=lambda layout: layout.name)
@pytest.mark.parametrize("ac_layout", [0, 1], ids=["AC norm", "AC native"])
def test_every_type_and_layout(
    kind: int, b_layout: int, ac_layout: int, caplog: pytest.LogCaptureFixture
) -> None:
    m, k, n = 21, 96, 128
    p = Product(m, k, n, kind, B_layout=int(b_layout), AC_layout=ac_layout)
    _, c_type, step, group, c_step = TYPES[kind]
    assert p.dims("A") == ([k // step, m, step] if ac_layout else [m, k])
    assert p.dims("C") == ([n // c_step, m, c_step] if ac_layout else [m, n])
    assert p.dims("B") == {0: [k, n], 1: [n // group, k // 32, group, 32], 2: [n, k]}[b_layout]
    assert (p.io.A.name, p.io.B.name, p.io.C.name) == (b"A", b"B", b"C")
    assert p.io.C.size == m * n * np.dtype(c_type).itemsize
    a, b = numbers(kind, m, k), numbers(kind, k, n)
    p.write("A", native_a(a, step) if ac_layout else a)
    p.write("B", {0: b, 1: native_b(b, group), 2: b.T}[b_layout])
    if kind == rk.RKNN_INT4_MM_INT4_TO_INT16 and b_layout == rk.RKNN_MM_LAYOUT_NORM:
        assert rk.rknn_matmul_set_io_mem(p.ctx, p.mem["B"], ct.byref(p.io.B)) == rk.RKNN_ERR_FAIL
        assert "Unsupport type bits 0" in caplog.text  # the line of librknnrt 2.3.2
        return
    p.bind()
    p.run()
    check(kind, p.result(), a, b)
    a = numbers(kind, m, k)  # A and C stay bound, only A's bytes change
    p.write("A", native_a(a, step) if ac_layout else a)
    p.run()
    check(kind, p.result(), a, b)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_the_conversion_of_b(kind: int) -> None:
    """Numbers are given one by one, int4 as bytes (K * N), and written as the products read them."""
    k, n = 64, 128
    group, bits = TYPES[kind][3], 4 if TYPES[kind][0] == "i4bit" else 8
    b = numbers(kind, k, n)
    source, target = b.copy(), np.zeros(pack_elements(b, bits).size, np.uint8)
    info = rk.rknn_matmul_info(M=1, K=k, N=n, type=int(kind))
    call = rk.rknn_B_normal_layout_to_native_layout
    assert call(source.ctypes.data, target.ctypes.data, k, n, ct.byref(info)) == rk.RKNN_SUCC
    assert np.array_equal(target, pack_elements(native_b(b, group), bits))
    transposed = np.ascontiguousarray(b.T).view(np.uint8)
    info.B_layout = int(rk.RKNN_MM_LAYOUT_TP_NORM)
    target[:] = 0
    assert call(transposed, target, k, n, info) == rk.RKNN_SUCC
    assert np.array_equal(target, pack_elements(native_b(b, group), bits))
    source = source.view(np.uint8)
    assert call(source, None, k, n, info) == rk.RKNN_ERR_PARAM_INVALID
    assert call(source, target, 33, n, info) == rk.RKNN_ERR_PARAM_INVALID


def test_long_rows_are_segments_in_the_native_layout() -> None:
    m, k, n = 2, 8192 + 64, 32
    p = Product(m, k, n, rk.RKNN_INT8_MM_INT8_TO_INT32, B_layout=1)
    a, b = numbers(p.kind, m, k), numbers(p.kind, k, n)
    source = b.copy()
    target = bytes_of(p.mem["B"])
    call = rk.rknn_B_normal_layout_to_native_layout
    assert call(source.ctypes.data, target.ctypes.data, k, n, ct.byref(p.info)) == rk.RKNN_SUCC
    assert np.array_equal(target[: 8192 * n].view(np.int8), native_b(b[:8192], 32))
    assert np.array_equal(target[8192 * n :].view(np.int8), native_b(b[8192:], 32))
    p.write("A", a)
    p.bind()
    p.run()
    check(p.kind, p.result(), a, b)


@pytest.mark.parametrize(
    ("kind", "m", "k", "n"),
    [
        (rk.RKNN_INT8_MM_INT8_TO_INT32, 1, 64, 16384 + 32),
        (rk.RKNN_INT8_MM_INT8_TO_INT32, 40, 10240, 64),
        (rk.RKNN_INT8_MM_INT8_TO_INT8, 2100, 32, 32),
        (rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, 70, 4096, 48),
        (rk.RKNN_INT4_MM_INT4_TO_INT16, 600, 2048, 128),
        (rk.RKNN_INT8_MM_INT8_TO_INT32, 3, 32, 40960),
    ],
)
def test_large_products_are_cut(kind: int, m: int, k: int, n: int) -> None:
    p = Product(m, k, n, kind, B_layout=b_layout(kind))
    a, b = numbers(kind, m, k), numbers(kind, k, n)
    if kind == rk.RKNN_INT8_MM_INT8_TO_INT8:
        a //= 32
        b //= 32
    p.write("A", a)
    p.write("B", native_b(b, TYPES[kind][3]) if b_layout(kind) else b)
    p.bind()
    p.run()
    check(kind, p.result(), a, b)
    kinds = {
        rk.RKNN_INT8_MM_INT8_TO_INT32: "int8 x int8 -> int32",
        rk.RKNN_INT8_MM_INT8_TO_INT8: "int8 x int8 -> int8",
        rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32: "float16 x float16 -> float32",
        rk.RKNN_INT4_MM_INT4_TO_INT16: "int4 x int4 -> int16",
    }
    assert len(Matmul(KINDS[kinds[kind]], m, k, n).tiles) > 1


IN_PARTS = {
    rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32: (70, 4096, 48),
    rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16: (70, 4096, 48),
    rk.RKNN_INT8_MM_INT8_TO_INT32: (70, 8192, 64),
    rk.RKNN_INT8_MM_INT8_TO_FLOAT32: (70, 8192, 64),
}


@pytest.mark.parametrize("kind", IN_PARTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("b_layout", list(rk.rknn_matmul_layout), ids=lambda layout: layout.name)
@pytest.mark.parametrize("ac_layout", [0, 1], ids=["AC norm", "AC native"])
def test_k_in_parts(kind: int, b_layout: int, ac_layout: int) -> None:
    """Sums of parts of K are read back by ERDMA, in both layouts of C; a native B is not copied."""
    m, k, n = IN_PARTS[kind]
    p = Product(m, k, n, kind, B_layout=int(b_layout), AC_layout=ac_layout)
    _, _, step, group, _ = TYPES[kind]
    a, b = numbers(kind, m, k), numbers(kind, k, n)
    p.write("A", native_a(a, step) if ac_layout else a)
    p.write("B", {0: b, 1: native_b(b, group), 2: b.T}[b_layout])
    p.bind()
    p.run()
    check(kind, p.result(), a, b)
    product = runtime.contexts[p.ctx.value].product()
    assert (len(product.parts) == 1) == (b_layout == rk.RKNN_MM_LAYOUT_NATIVE)


def test_another_m_with_the_same_b() -> None:
    """B is set once; the shape with more rows divides K differently."""
    kind, k, n = rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, 4096, 48
    shapes = (rk.rknn_matmul_shape * 2)(rk.rknn_matmul_shape(8, k, n), rk.rknn_matmul_shape(70, k, n))
    ios = (rk.rknn_matmul_io_attr * 2)()
    info, ctx = rk.rknn_matmul_info(type=int(kind)), rk.rknn_matmul_ctx()
    code = rk.rknn_matmul_create_dynamic_shape(ct.byref(ctx), ct.byref(info), 2, shapes, ios)
    assert code == rk.RKNN_SUCC, rk.last_error()
    memory = {name: rk.rknn_create_mem(ctx, getattr(ios[1], name).size) for name in "ABC"}
    b = numbers(kind, k, n)
    bytes_of(memory["B"])[:] = pack_elements(b, 16)
    assert rk.rknn_matmul_set_io_mem(ctx, memory["B"], ct.byref(ios[0].B)) == rk.RKNN_SUCC
    parts = []
    for index in (0, 1, 0):
        m = shapes[index].M
        assert rk.rknn_matmul_set_dynamic_shape(ctx, ct.byref(shapes[index])) == rk.RKNN_SUCC
        a = numbers(kind, m, k)
        bytes_of(memory["A"])[: a.nbytes] = pack_elements(a, 16)
        for name in "AC":
            attr = getattr(ios[index], name)
            assert rk.rknn_matmul_set_io_mem(ctx, memory[name], ct.byref(attr)) == rk.RKNN_SUCC
        assert rk.rknn_matmul_run(ctx) == rk.RKNN_SUCC, rk.last_error(ctx)
        got = bytes_of(memory["C"])[: m * n * 4].view(np.float32).reshape(m, n)
        check(kind, got, a, b)
        parts.append(len(runtime.contexts[ctx.value].product().parts))
    assert parts == [1, 2, 1]


def test_quantisation_needs_whole_sums() -> None:
    """The quantisation parameters are set after B: B is packed again, in one part."""
    m, k, n = 70, 8192, 64
    p = Product(m, k, n, rk.RKNN_INT8_MM_INT8_TO_FLOAT32)
    a, b = numbers(p.kind, m, k), numbers(p.kind, k, n)
    p.write("A", a)
    p.write("B", b)
    p.bind()
    state = runtime.contexts[p.ctx.value]
    assert len(state.b_parts) > 1
    assert p.quant("A", 0.5) == rk.RKNN_SUCC and p.quant("B", 0.25) == rk.RKNN_SUCC
    p.run()
    assert len(state.b_parts) == 1
    want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32) * np.float32(0.125)
    assert np.array_equal(p.result(), want)


def test_random_shapes() -> None:
    for _ in range(12):
        kind = list(TYPES)[RNG.integers(len(TYPES))]
        _, _, step, group, _ = TYPES[kind]
        m, k, n = int(RNG.integers(1, 60)), 32 * int(RNG.integers(1, 20)), group * int(RNG.integers(1, 5))
        native = int(RNG.integers(2))
        p = Product(m, k, n, kind, AC_layout=native, B_layout=b_layout(kind))
        a, b = numbers(kind, m, k), numbers(kind, k, n)
        p.write("A", native_a(a, step) if native else a)
        p.write("B", native_b(b, group) if b_layout(kind) else b)
        p.bind()
        p.run()
        check(kind, p.result(), a, b)
        assert rk.rknn_matmul_destroy(p.ctx) == rk.RKNN_SUCC


def int8_quantised(per_channel: bool, asymmetric: bool) -> tuple[Product, np.ndarray, np.ndarray, np.ndarray]:
    m, k, n = 19, 64, 96
    b_type = 2 * per_channel + asymmetric
    kind = rk.RKNN_INT8_MM_INT8_TO_INT8
    p = Product(m, k, n, kind, B_quant_type=b_type, AC_quant_type=int(asymmetric))
    a, b = numbers(kind, m, k), numbers(kind, k, n)
    columns = n if per_channel else 1
    sa, sb, sc = 0.02, RNG.uniform(0.01, 0.03, columns).astype(np.float32), 0.4
    za, zb, zc = 5, RNG.integers(-9, 9, columns), -7
    if not asymmetric:
        za, zb, zc = 0, np.zeros(columns, int), 0
    assert p.quant("A", sa, za) == p.quant("B", sb, zb) == p.quant("C", sc, zc) == rk.RKNN_SUCC
    real = ((a.astype(float) - za) * sa) @ ((b.astype(float) - zb) * sb)
    return p, a, b, np.clip(real / sc + zc, -128, 127)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_int8_results_are_requantised(per_channel: bool, asymmetric: bool) -> None:
    p, a, b, want = int8_quantised(per_channel, asymmetric)
    p.write("A", a)
    p.write("B", b)
    p.bind()
    p.run()
    assert np.abs(p.result() - want).max() <= 0.51
    assert len(np.unique(p.result())) > 50


def test_int32_with_a_scale_per_channel_and_float32() -> None:
    m, k, n = 9, 64, 64
    p = Product(m, k, n, rk.RKNN_INT8_MM_INT8_TO_INT32, B_quant_type=2)
    a, b = numbers(p.kind, m, k), numbers(p.kind, k, n)
    scales = RNG.uniform(0.5, 1.0, n).astype(np.float32)
    assert p.quant("B", scales) == rk.RKNN_SUCC
    one = ct.c_float()
    assert rk.rknn_matmul_get_quant_params(p.ctx, rk.rknn_quant_params(), ct.byref(one)) == rk.RKNN_SUCC
    assert one.value == scales.max()
    p.write("A", a)
    p.write("B", b)
    p.bind()
    p.run()
    exact = (a.astype(float) @ b.astype(float)) * scales
    assert np.abs(p.result() * one.value - exact).max() <= np.abs(exact).max() * 2.0**-13 + 1
    q = Product(m, k, n, rk.RKNN_INT8_MM_INT8_TO_FLOAT32, AC_layout=1)
    assert rk.rknn_matmul_get_quant_params(q.ctx, rk.rknn_quant_params(), one) == rk.RKNN_ERR_PARAM_INVALID
    assert q.quant("A", 0.5) == q.quant("B", 0.25) == rk.RKNN_SUCC
    q.write("A", native_a(a, 16))
    q.write("B", b)
    q.bind()
    q.run()
    assert np.array_equal(q.result(), (a.astype(float) @ b.astype(float) / 8).astype(np.float32))


def test_dynamic_shapes() -> None:
    shapes = (rk.rknn_matmul_shape * 3)((1, 64, 32), (8, 64, 32), (8, 96, 64))
    info = rk.rknn_matmul_info(type=int(rk.RKNN_INT8_MM_INT8_TO_INT32))
    ctx, attrs = rk.rknn_matmul_ctx(), (rk.rknn_matmul_io_attr * 3)()
    create = rk.rknn_matmul_create_dynamic_shape
    assert create(ct.byref(ctx), ct.byref(info), 3, shapes, attrs) == rk.RKNN_SUCC
    size = max(attr.C.size for attr in attrs)
    memory = {name: rk.rknn_create_mem(ctx, max(getattr(x, name).size for x in attrs)) for name in "ABC"}
    assert size == 8 * 64 * 4 and list(attrs[2].B.dims[:2]) == [96, 64]
    for shape, attr in reversed(list(zip(shapes, attrs, strict=True))):
        assert rk.rknn_matmul_set_dynamic_shape(ctx, ct.byref(shape)) == rk.RKNN_SUCC
        a, b = RNG.integers(-9, 9, (shape.M, shape.K)), RNG.integers(-9, 9, (shape.K, shape.N))
        bytes_of(memory["A"])[: a.size] = a.astype(np.int8).view(np.uint8).reshape(-1)
        bytes_of(memory["B"])[: b.size] = b.astype(np.int8).view(np.uint8).reshape(-1)
        for name in "ABC":
            assert rk.rknn_matmul_set_io_mem(ctx, memory[name], getattr(attr, name)) == rk.RKNN_SUCC
        assert rk.rknn_matmul_run(ctx) == rk.RKNN_SUCC
        got = bytes_of(memory["C"])[: attr.C.size].view(np.int32).reshape(shape.M, shape.N)
        assert np.array_equal(got, a @ b)
    assert rk.rknn_matmul_set_dynamic_shape(ctx, rk.rknn_matmul_shape(2, 64, 32)) == rk.RKNN_ERR_PARAM_INVALID
    assert create(ctx, info, 0, shapes, attrs) == rk.RKNN_ERR_PARAM_INVALID


def test_refusals(caplog) -> None:
    def create(m: int = 4, k: int = 32, n: int = 64, kind: int = 2, **info: int) -> int:
        given = rk.rknn_matmul_info(M=m, K=k, N=n, type=int(kind), **info)
        ctx = rk.rknn_matmul_ctx()
        code = rk.rknn_matmul_create(ctx, given, rk.rknn_matmul_io_attr())
        return rk.rknn_matmul_destroy(ctx) if code == rk.RKNN_SUCC else code

    bad = rk.RKNN_ERR_PARAM_INVALID
    assert create() == rk.RKNN_SUCC
    for kind in rk.rknn_matmul_type:
        assert create(kind=kind) == (rk.RKNN_SUCC if kind in TYPES else bad)
    assert "unsupported matmul dtype: RKNN_FLOAT16_MM_INT8_TO_FLOAT32 in this platform" in caplog.text
    assert "rknn_matmul_create: the RK3588 has RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, RKNN_INT8" in caplog.text
    assert create(k=33) == create(n=33) == create(m=0) == create(kind=10, n=32) == bad
    assert create(k=1 << 17) == create(AC_layout=2) == create(B_layout=3) == bad
    assert create(B_quant_type=4) == create(AC_quant_type=2) == create(kind=1, B_quant_type=2) == bad
    assert rk.rknn_matmul_create(None, rk.rknn_matmul_info(), rk.rknn_matmul_io_attr()) == bad
    p = Product(4, 32, 64, rk.RKNN_INT8_MM_INT8_TO_INT32)
    assert rk.rknn_matmul_run(p.ctx) == rk.RKNN_ERR_FAIL
    assert "no memory is set for A, B, C" in caplog.text
    assert rk.rknn_matmul_set_io_mem(p.ctx, p.mem["A"], p.io.C) == bad
    assert "memory size(128) < matrix C size(1024)" in caplog.text
    for mask, code in ((0, 0), (2, 0), (3, -1), (7, -1), (0xFFFF, -1), (6, bad)):
        assert rk.rknn_matmul_set_core_mask(p.ctx, mask) == code
    assert "Not support core mask: 3, fallback to single core auto mode" in caplog.text
    assert p.quant("D", 1) == p.quant("B", [1, 2]) == p.quant("A", -1) == bad
    q = Product(4, 32, 64, rk.RKNN_INT4_MM_INT4_TO_INT16)
    assert q.quant("A", 0.5) == bad
    assert rk.rknn_matmul_run(rk.rknn_matmul_ctx(12345)) == rk.RKNN_ERR_CTX_INVALID
    assert rk.rknn_run(p.ctx) == rk.RKNN_ERR_CTX_INVALID, "a product is no model"
