"""DIOPI on the host: memory, streams, tensors, errors, and operators beside other definitions of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from rkcosim.apis.diopi import library, runtime
from rkcosim.apis.diopi.bounds import check_bound
from rkcosim.apis.diopi.enums import Device, Dtype, Error
from rkcosim.apis.diopi.host import moves
from rkcosim.apis.diopi.memory import Memory, Stream
from rkcosim.apis.diopi.names import NAMES
from rkcosim.apis.diopi.operators import OPERATORS, pools, products
from rkcosim.apis.diopi.tensor import TensorP, diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar
from tests.makers.diopi_tensors import Calls, scalar, size


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Calls in a library that is initialised, and ended afterwards."""
    runtime.init_library()
    yield Calls()
    runtime.finalize_library()


def test_memory_has_bounds() -> None:
    """A copy beyond a block, a block freed twice and an unknown address are errors."""
    memory = Memory()
    block = memory.allocate(64)
    memory.view(block + 32, 32)[:] = 7
    assert memory.view(block, 64).sum() == 7 * 32
    with pytest.raises(DiopiError, match=r"33 bytes at .* are not within a block"):
        memory.view(block + 32, 33)
    memory.free(block)
    for call in (lambda: memory.free(block), lambda: memory.view(block, 1), lambda: memory.allocate(-1)):
        with pytest.raises(DiopiError):
            call()


def test_copies_wait_for_their_stream(calls: Calls) -> None:
    """A copy reads its source when the stream gets to it, in order; a destroyed stream takes none."""
    stream = runtime.device_make_stream()
    block = runtime.device_malloc(8)
    source, target = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    assert not runtime.device_memcpy_h2d_async(stream, block, source.ctypes.data, 8)
    assert not runtime.device_memcpy_d2h_async(stream, target.ctypes.data, block, 8)
    source[0] = 9
    assert not target.any()
    assert not runtime.device_synchronize_stream(stream)
    assert target.tolist() == [9, 1, 2, 3, 4, 5, 6, 7]
    assert not runtime.device_destroy_stream(stream)
    copy = runtime.device_memcpy_d2d_async
    assert copy(stream, block, block, 8) is Error.diopi_error_occurred
    assert runtime.get_last_error_string() == "device_memcpy_d2d_async: the stream was destroyed"
    assert copy(stream, block, block + 1, 8) is Error.diopi_error_occurred
    assert runtime.device_free(block) is Error.diopi_success
    assert runtime.device_free(block) is Error.diopi_error_occurred
    assert runtime.device_synchronize_stream(None) is Error.diopi_error_occurred  # type: ignore[arg-type]
    assert runtime.device_malloc(-1) == 0


def test_functions_must_be_registered() -> None:
    """Without registration a tensor has no memory; a framework's own functions are called."""
    runtime.finalize_library()
    members = library.members()
    with pytest.raises(DiopiError, match="diopiRegisterDeviceMallocFunc") as error:
        Calls().empty((2, 2))
    assert error.value.code is Error.diopi_no_registered_device_memory_malloc_function
    kept, freed = {}, []

    def malloc(count: int) -> int:
        block = np.full(count, 3, np.uint8)
        kept[int(block.ctypes.data)] = block
        return int(block.ctypes.data)

    members["diopiRegisterDeviceMallocFunc"](malloc)
    members["diopiRegisterDevMemFreeFunc"](freed.append)
    tensor = Calls().empty((4,), np.uint8)
    assert tensor.array().tolist() == [3, 3, 3, 3]
    del tensor
    assert freed == list(kept)
    with pytest.raises(DiopiError) as error:
        Calls().tensor(np.zeros(2, np.float16))
    assert error.value.code is Error.diopi_no_registered_host2device_memory_copy_function
    runtime.finalize_library()


def test_tensors(calls: Calls) -> None:
    """Strides, copies to the host, another shape, and types that numpy has not."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1)
    tensor = calls.tensor(np.ascontiguousarray(x))
    assert tensor.shape().data == [4, 2, 3] and tensor.get_stride().data == [6, 3, 1]
    strided = diopiTensor(size(2, 3), size(1, 2), Dtype.float32, Device.AIChip, calls.context, x.ctypes.data)
    assert strided.array().tolist() == [[0, 2, 4], [1, 3, 5]]
    read = np.zeros(24, np.float32)
    tensor.read(read.ctypes.data)
    assert (read == x.reshape(-1)).all()
    assert tensor.reset_shape(size(8, 3)) and not tensor.reset_shape(size(5, 5))
    brain = diopiTensor(size(2), None, Dtype.bfloat16, Device.AIChip, calls.context)
    code, text = calls.result("Relu", brain, brain)
    assert code is Error.diopi_dtype_not_supported and "bfloat16" in text
    for wrong in ((size(2, -1), None), (size(2, 2), size(1)), (size(2), size(-1))):
        with pytest.raises(DiopiError):
            diopiTensor(*wrong, Dtype.int8, Device.Host)


def test_every_declared_operator_answers(calls: Calls) -> None:
    """The package has all declared names; those without an implementation say so."""
    members = library.members()
    missing = [name for name in NAMES if f"diopi{name}" not in OPERATORS]
    assert len(NAMES) > 400 and len(missing) > 150
    assert all(f"diopi{name}" in members for name in NAMES)
    assert all(name.removeprefix("diopi") in NAMES for name in OPERATORS)
    for name in missing:
        assert members[f"diopi{name}"](calls.context) is Error.diopi_no_implement
    assert runtime.get_last_error_string().startswith(f"diopi{missing[-1]}: ")


def test_wrong_arguments_are_errors(calls: Calls) -> None:
    """Null pointers, other types, other shapes and other windows: a result and a text, and no change."""
    x, out = calls.tensor(np.ones((1, 2, 4, 4), np.float32)), calls.empty((1, 2, 4, 4), np.float32)
    w = calls.tensor(np.ones((3, 2, 3, 3), np.float32))
    conv = (size(1, 1), size(0, 0), size(1, 1), 1)
    wrong: list[tuple[str, tuple[Any, ...], str]] = [
        ("Relu", (None, x), "out is null"),
        ("Relu", (out, 3), "input is int, not a tensor"),
        ("Relu", (calls.empty((2,), np.float32), x), r"out has the shape (2,), the result (1, 2, 4, 4)"),
        ("Convolution2d", (out, x, w, None, *conv), "the result (1, 3, 2, 2)"),
        ("Convolution2d", (out, x, w, None, size(1), *conv[1:]), "[1] is not 2 numbers"),
        ("Convolution2d", (out, x, w, None, *conv[:3], 0), "0 groups do not fit"),
        ("MaxPool2d", (out, x, size(2, 2), size(0, 2), size(0, 0), size(1, 1), False), "[0, 2]"),
        ("MaxPool2d", (out, x, size(3, 3), size(1, 1), size(0, 0), size(3, 3), False), "do not fit (4, 4)"),
        ("Mm", (out, x, x), "is not of rank 2"),
        ("Cat", (out, [TensorP(x), TensorP()], 2, 0), "tensor 1 of the list is null"),
        ("Cat", (out, [], 1, 0), "1 tensors of a list of 0"),
        ("Transpose", (out, x, 0, 4), "axis 4 of a tensor of rank 4"),
        ("Add", (out, x, calls.tensor(np.ones(5, np.float32)), scalar(1)), "broadcast"),
        ("Pad", (out, x, size(1), "constant"), "1 paddings"),
        ("Pad", (out, x, size(1, 1), "mirror"), "mode 'mirror'"),
        ("Gelu", (out, x, "exact"), "approximate is 'exact'"),
        ("Slice", (out, x, 0, 0, 1, 0), "step 0"),
    ]
    for name, arguments, text in wrong:
        code, found = calls.result(name, *arguments)
        assert code is Error.diopi_error_occurred, name
        assert found.startswith(f"diopi{name}: ") and text in found, found
    assert not out.array().any()
    with pytest.raises(TypeError):
        OPERATORS["diopiRelu"](calls.context, out)
    assert OPERATORS["diopiRelu"](None, out, x) is Error.diopi_error_occurred  # type: ignore[arg-type]


def test_errors_are_those_of_their_thread(calls: Calls) -> None:
    """Two threads with errors and results of their own."""
    texts: dict[int, set[str]] = {0: set(), 1: set()}

    def work(number: int) -> None:
        mine = Calls()
        x = np.full((5,), number, np.float32)
        for _ in range(50):
            mine.result("Transpose", mine.empty((5,), np.float32), mine.tensor(x), 0, number + 3)
            texts[number].add(runtime.get_last_error_string())
            assert mine.compute("AddScalar", (5,), x, scalar(1), scalar(1), dtype=np.float32)[0] == number + 1

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: {f"diopiTranspose: axis {n + 3} of a tensor of rank 1"} for n in (0, 1)}


def test_scalars_are_unions() -> None:
    """An integer that is read as a real number is its bits, as in C."""
    one = diopiScalar(Dtype.int64, 1.0)
    assert one.ival == 0x3FF0000000000000 and one.fval == 1.0
    assert diopiScalar(Dtype.float32, 3).value == 3.0 and diopiScalar(Dtype.int8, -2).value == -2


WINDOW = st.tuples(
    *(st.integers(1, 3) for _ in range(2)),  # kernel
    *(st.integers(1, 3) for _ in range(2)),  # strides
    *(st.integers(0, 1) for _ in range(2)),  # padding
    *(st.integers(1, 2) for _ in range(2)),  # dilation
)


def _node(kind: str, *inputs: np.ndarray | None, **attributes: Any) -> list[np.ndarray]:
    """Return the outputs of a node of ONNX by its reference implementation; None stands for no input."""
    given = {f"x{i}": one for i, one in enumerate(inputs) if one is not None}
    names = [f"x{i}" if one is not None else "" for i, one in enumerate(inputs)]
    count = 2 if attributes.pop("two", False) else 1
    node = helper.make_node(kind, names, [f"y{i}" for i in range(count)], **attributes)
    made = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in (*given, *node.output)]
    graph = helper.make_graph([node], "one", made[: len(given)], made[len(given) :])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    found: Any = ReferenceEvaluator(model).run(None, given)
    return list(found)


@settings(max_examples=25, deadline=None)
@given(WINDOW, st.sampled_from([1, 2]), st.integers(0, 2**32 - 1))
def test_convolutions_are_onnx_s(window: tuple[int, ...], groups: int, seed: int) -> None:
    """Convolution and transposed convolution equal those of ONNX's reference."""
    kernel, strides, padding, dilation = (list(window[i : i + 2]) for i in range(0, 8, 2))
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, 4, 7, 8))
    same = {"strides": strides, "pads": padding * 2, "dilations": dilation, "group": groups}
    w = random.normal(size=(6, 4 // groups, *kernel))
    right = _node("Conv", x, w, **same)[0]
    np.testing.assert_allclose(
        products.convolution(x, w, strides, padding, dilation, groups), right, rtol=1e-12, atol=1e-12
    )
    w = random.normal(size=(4, 6 // groups, *kernel))
    parts = zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
    one = same | {"group": 1}  # the reference has an error for groups
    right = np.concatenate([_node("ConvTranspose", a, b, **one)[0] for a, b in parts], 1)
    found = products.transposed_convolution(x, w, strides, padding, [0, 0], groups, dilation)
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(WINDOW, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_pools_are_their_definition(window: tuple[int, ...], ceil: bool, include: bool, seed: int) -> None:
    """Each element of a pool is the largest one, or the mean, of a window written out."""
    kernel, strides, padding, dilation = (list(window[i : i + 2]) for i in range(0, 8, 2))
    padding = [min(p, k // 2) for p, k in zip(padding, kernel, strict=True)]
    x = np.random.default_rng(seed).normal(size=(2, 6, 7))
    best, places = pools.max_pool(x, kernel, strides, padding, dilation, ceil)
    for index in np.ndindex(*best.shape):
        inside = [
            (r, c)
            for i, j in itertools.product(range(kernel[0]), range(kernel[1]))
            for r in [index[1] * strides[0] - padding[0] + i * dilation[0]]
            for c in [index[2] * strides[1] - padding[1] + j * dilation[1]]
            if 0 <= r < 6 and 0 <= c < 7
        ]
        found = max(x[index[0], r, c] for r, c in inside)
        assert best[index] == found and x[index[0]].reshape(-1)[places[index]] == found
    means = pools.average_pool(x, kernel, strides, padding, ceil, include, None)
    for index in np.ndindex(*means.shape):
        first = [i * s - p for i, s, p in zip(index[1:], strides, padding, strict=True)]
        last = [min(f + k, n + p) for f, k, n, p in zip(first, kernel, (6, 7), padding, strict=True)]
        rows, columns = (range(max(f, 0), min(e, n)) for f, e, n in zip(first, last, (6, 7), strict=True))
        total = sum(x[index[0], r, c] for r in rows for c in columns)
        count = (last[0] - first[0]) * (last[1] - first[1]) if include else len(rows) * len(columns)
        assert abs(means[index] - total / count) < 1e-12


@pytest.mark.parametrize(("align", "cubic"), list(itertools.product((True, False), (True, False))))
def test_interpolation_is_onnx_s(align: bool, cubic: bool) -> None:
    """Interpolated maps equal those of ONNX's Resize."""
    x = np.random.default_rng(3).normal(size=(1, 2, 5, 6))
    attributes = {
        "mode": "cubic" if cubic else "linear",
        "coordinate_transformation_mode": "align_corners" if align else "pytorch_half_pixel",
    }
    sizes = np.array([1, 2, 9, 4])
    right = _node("Resize", x, None, None, sizes, **attributes)[0]
    # The reference computes scales in float32.
    np.testing.assert_allclose(pools.interpolated(x, (9, 4), align, cubic), right, rtol=1e-5, atol=1e-5)


def test_types_of_results(calls: Calls) -> None:
    """Integers wrap in their own type, a real scalar makes real numbers, and bool adds as or."""
    small = np.array([100, -100], np.int8)
    assert calls.compute("Mul", (2,), small, small, dtype=np.float32).tolist() == [16, 16]
    assert calls.compute("AddScalar", (2,), small, scalar(0.5), scalar(1), dtype=np.float32)[0] == 100.5
    flags = np.array([True, False])
    assert calls.compute("Add", (2,), flags, flags, scalar(1), dtype=np.bool_).tolist() == [True, False]
    assert calls.compute("Sub", (2,), small, small, scalar(2), dtype=np.int8).tolist() == [-100, 100]
    whole = np.array([[1, 2], [3, 4]], np.int64)
    assert calls.compute("Sum", (2,), whole, size(1), dtype=np.int64).tolist() == [3, 7]
    x = np.array([np.nan, -1.0], np.float32)
    assert np.isnan(calls.compute("Relu", (2,), x, dtype=np.float32)[0])


def test_streams_drop_work_after_an_error() -> None:
    """The first error of a stream's work is raised, and the rest is not done later."""
    stream, done = Stream(), []

    def fail() -> None:
        raise DiopiError("first")

    stream.add(fail)
    stream.add(lambda: done.append(1))
    with pytest.raises(DiopiError, match="first"):
        stream.synchronize()
    stream.synchronize()
    assert not done


def test_bounds_of_results() -> None:
    """Four units in the last place of the largest partial sum pass, five do not; infinity equals overflow."""
    x = np.array([1.0, 1.0], np.float16)
    for units, passes in ((4, True), (5, False)):
        found = np.array([1.0, 1.0 + units / 1024], np.float32)
        if passes:
            check_bound(found, [x], lambda a: a, lambda a: a)
            continue
        with pytest.raises(DiopiError, match="1 of 2 elements are not within 4 units"):
            check_bound(found, [x], lambda a: a, lambda a: a)
    check_bound(np.array([np.inf], np.float32), [x[:1]], lambda a: a * 1e6, None)
    with pytest.raises(DiopiError):
        check_bound(np.array([np.nan], np.float32), [x[:1]], lambda a: a, None)


def test_numbers_of_a_tensor_s_type(calls: Calls) -> None:
    """Integers of other types wrap as PyTorch's do: thresholds, bounds and scalars of bytes."""
    x = np.array([1, 200], np.uint8)
    for name, arguments, right in (
        ("ClampScalar", (scalar(-1), None), [255, 255]),
        ("ClampScalar", (scalar(-1), scalar(50)), [50, 50]),
        ("ClampMaxScalar", (scalar(-1),), [1, 200]),
        ("AddScalar", (scalar(-3), scalar(1)), [254, 197]),
        ("MulScalar", (scalar(-1),), [255, 56]),
        ("Threshold", (scalar(-20), scalar(70.5)), [70, 70]),
    ):
        assert calls.compute(name, (2,), x, *arguments, dtype=np.uint8).tolist() == right, name
    assert calls.compute("ClampMinScalar", (2,), x, scalar(1.5), dtype=np.float32).tolist() == [1.5, 200]
    bounds = scalar(-0.25), scalar(-2)  # one real number makes all of them real
    assert calls.compute("ClampScalar", (2,), x, *bounds, dtype=np.float32).tolist() == [-2, -2]


def test_negative_paddings_crop() -> None:
    """Negative paddings crop behind reflections and copies of the edge, but before what comes around."""
    x = np.arange(1, 5)[None]
    for mode, right in (
        ("constant", [7, 7, 1, 2, 3]),
        ("reflect", [3, 2, 1, 2, 3]),
        ("replicate", [1, 1, 1, 2, 3]),
        ("circular", [2, 3, 1, 2, 3]),
    ):
        assert moves.padded(x, [2, -1], mode, 7)[0].tolist() == right, mode
    assert moves.padded(np.array(3.0), [], "constant", 0).shape == ()


def test_gather_of_scalars_and_nothing(calls: Calls) -> None:
    """Scalars are tensors of one element, and an empty index gives an empty result."""
    x = np.arange(8, dtype=np.float32)
    assert calls.compute("Gather", (), x, 0, np.array(3), dtype=np.float32) == 3
    one = np.array(5, np.float32)
    assert calls.compute("Gather", (3,), one, 0, np.zeros(3, np.int64), dtype=np.float32).tolist() == [5] * 3
    empty = np.zeros((16, 0, 14), np.int64)
    assert calls.compute("Gather", empty.shape, np.zeros((5, 0, 9), np.float32), -2, empty).size == 0
    code, text = calls.result(
        "Gather", calls.empty((2,)), calls.tensor(x[None].copy()), 0, calls.tensor(empty)
    )
    assert code is Error.diopi_error_occurred and "an index of shape (16, 0, 14)" in text
