"""Slices and parts of every front end, for each rank and axis, against definitions or the format's runtime.

`--check` compares two computations of the same emitted graph, so it cannot see an emission that takes the
wrong elements: these tests take their values from Python's slices, onnxruntime or LiteRT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

import onnxruntime
from onnx import TensorProto, helper

from rkcosim.apis.diopi import runtime
from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.prepared import prepare
from rkcosim.apis.tnn import DeviceType, NetworkConfig, NetworkType
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.diopi_tensors import Calls
from tests.makers.hexagon_graphs import run_node, whole
from tests.makers.nnapi_models import F16, F32, I32, S8, U8, Builder, T
from tests.makers.tflite_models import Tf
from tests.makers.tnn_layers import network_of, run
from tests.seeds import seed
from tests.unit.test_tflite_host import by_litert, by_npu

Array = npt.NDArray[Any]

RNG = np.random.default_rng(seed(__name__))
CASES = 12
"""Random slices of each rank."""


@pytest.fixture(scope="module")
def golden() -> Iterator[Machine]:
    """A device of the golden model."""
    machine = open_machine(Settings(engine="golden"))
    yield machine
    machine.close()


def drawn(rank: int, stepped: bool, batch: bool = False) -> tuple[tuple[int, ...], list[slice]]:
    """Return a shape, and slices of it; axes of size 1 and steps beyond an axis are frequent."""
    shape = tuple(int(RNG.choice((1, 1, 2, 3, 5))) for _ in range(rank))
    shape = (1, *shape[1:]) if batch else shape
    parts = []
    for size in shape:
        first = int(RNG.integers(0, size)) if RNG.random() < 0.6 else 0
        last = int(RNG.integers(first + 1, size + 1)) if RNG.random() < 0.6 else size
        parts.append(slice(first, last, int(RNG.integers(1, 4)) if stepped else 1))
    return shape, parts


def lists(parts: list[slice]) -> list[list[int]]:
    """Return begins, ends and steps."""
    return [[part.start for part in parts], [part.stop for part in parts], [part.step for part in parts]]


def elements(shape: tuple[int, ...], kind: T) -> Array:
    """Return elements that differ, and that fp16 and bytes represent."""
    return (np.arange(np.prod(shape)) % 251 - 125 * (kind is S8)).reshape(shape).astype(kind.dtype)


def nnapi(machine: Machine, b: Builder, x: Array, kind: T) -> tuple[list[Array], str]:
    """Execute a model; return its outputs, and where its operation ran."""
    with prepare(b.model(relaxed=kind is F32), machine=machine) as prepared:
        return prepared.execute([x]), prepared.account.operations[0].place


def test_nnapi_slice_of_the_first_axis(golden: Machine) -> None:
    """The elements 6 to 11 of [2, 3, 2] from (1, 0, 0), as NNAPI defines SLICE."""
    b = Builder()
    ends = [b.input(U8, (2, 3, 2), 0.5), b.constant(I32, (1, 0, 0)), b.constant(I32, (1, 3, 2))]
    b.add("SLICE", ends, b.output(U8, (1, 3, 2), 0.5))
    (found,), place = nnapi(golden, b, np.arange(12, dtype=np.uint8).reshape(2, 3, 2), U8)
    assert place == "npu"
    assert found.reshape(-1).tolist() == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("kind", [U8, S8, F16, F32])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_nnapi_slices(golden: Machine, kind: T, rank: int) -> None:
    scale = 0.5 if kind in (U8, S8) else 0.0
    places = []
    for number in range(CASES):
        shape, parts = drawn(rank, stepped=number % 2 == 0)
        x, b = elements(shape, kind), Builder()
        begins, lasts, steps = lists(parts)
        ends = [b.input(kind, shape, scale), b.constant(I32, begins)]
        if number % 2:
            sizes = [last - first for first, last in zip(begins, lasts, strict=True)]
            b.add("SLICE", [*ends, b.constant(I32, sizes)], b.output(kind, (), scale))
        else:
            ends += [b.constant(I32, lasts), b.constant(I32, steps), *(b.scalar(0) for _ in range(3))]
            b.add("STRIDED_SLICE", ends, b.output(kind, (), scale))
        (found,), place = nnapi(golden, b, x, kind)
        places.append(place)
        np.testing.assert_array_equal(found, x[tuple(parts)], err_msg=f"{shape} {parts} on {place}")
    assert "npu" in places


@pytest.mark.parametrize("kind", [U8, F16])
@pytest.mark.parametrize("shape", [(4,), (4, 6), (2, 3, 2), (1, 4, 6), (4, 3, 6), (1, 1, 6), (2, 4, 6, 3)])
def test_nnapi_split(golden: Machine, kind: T, shape: tuple[int, ...]) -> None:
    scale, places = (0.5 if kind is U8 else 0.0), []
    for axis, size in enumerate(shape):
        count = next((n for n in (3, 2) if size % n == 0), 1)
        b, x = Builder(), elements(shape, kind)
        ends = [b.input(kind, shape, scale), b.scalar(axis), b.scalar(count)]
        b.add("SPLIT", ends, *(b.output(kind, (), scale) for _ in range(count)))
        found, place = nnapi(golden, b, x, kind)
        places.append(place)
        for part, expected in zip(found, np.split(x, count, axis), strict=True):
            np.testing.assert_array_equal(part, expected, err_msg=f"axis {axis} on {place}")
    assert "npu" in places


def onnx_slice(shape: tuple[int, ...], parts: list[slice]) -> bytes:
    """Return the model of a slice and a ReLU."""
    names = ("starts", "ends", "axes", "steps")
    values = [*lists(parts), list(range(len(shape)))]
    held = [
        helper.make_tensor(name, TensorProto.INT64, (len(shape),), one)
        for name, one in zip(names, (*values[:2], values[3], values[2]), strict=True)
    ]
    nodes = [helper.make_node("Slice", ["x", *names], ["part"]), helper.make_node("Relu", ["part"], ["y"])]
    made = [len(range(*part.indices(n))) for part, n in zip(parts, shape, strict=True)]
    ends = [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    model = helper.make_model(
        helper.make_graph(nodes, "slice", [x], ends, held), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    return model.SerializeToString()


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_onnx_slices(rank: int) -> None:
    right = 0
    for _ in range(CASES):
        shape, parts = drawn(rank, stepped=True, batch=rank > 2)
        data, x = onnx_slice(shape, parts), elements(shape, F32)
        want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        try:
            model = compile_model(data, reuse=False)
        except ModelError:  # it names what is not supported
            continue
        with LoadedModel(model, GoldenDriver()) as loaded:
            loaded.set_input(0, x)
            loaded.run()
            np.testing.assert_array_equal(loaded.get_output(0), want, err_msg=f"{shape} {parts}")
        right += 1
    assert right > CASES // 2


@pytest.mark.parametrize("rank", [2, 4])
def test_tflite_slices(rank: int) -> None:
    right = 0
    for _ in range(CASES // 2):
        shape, parts = drawn(rank, stepped=True, batch=True)
        t = Tf()
        x = t.input(shape)
        made = tuple(len(range(*part.indices(n))) for part, n in zip(parts, shape, strict=True))
        y = t.add("STRIDED_SLICE", [x, *(t.ints(one) for one in lists(parts))], made)
        data = t.bytes(t.add("RELU", [y], made))
        values = elements(shape, S8)
        ((want,),) = by_litert(data, values)
        try:
            model = compile_model(data)
        except ModelError:
            continue
        ((found,),) = by_npu(model, values)
        np.testing.assert_array_equal(found, want, err_msg=f"{shape} {parts}")
        right += 1
    assert right


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_tnn_slices(rank: int) -> None:
    device = NetworkConfig(
        device_type=DeviceType.DEVICE_RK3588,
        network_type=NetworkType.NETWORK_TYPE_DEFAULT,
        engine="golden",
    )
    for _ in range(CASES // 2):
        shape, parts = drawn(rank, stepped=True, batch=True)
        begins, ends, steps = lists(parts)
        words = [word for one in (begins, ends, range(rank), steps) for word in (rank, *one)]
        net = network_of("StridedSliceV2", ([shape], words, {}, 1))
        x = elements(shape, F32)
        for config in (NetworkConfig(), device):
            found = run(net, config, {"x0": x})["y0"]
            np.testing.assert_array_equal(found, x[tuple(parts)], err_msg=f"{shape} {parts}")


def test_hexagon_slices() -> None:
    for _ in range(2 * CASES):
        shape, parts = drawn(4, stepped=True)
        x = elements(shape, F32)
        begins, ends, steps = lists(parts)
        found = run_node("StridedSlice_f", [x, whole(*begins), whole(*ends), whole(*steps)])[0]
        want = x[tuple(parts)]
        np.testing.assert_array_equal(found.reals.reshape(want.shape), want, err_msg=f"{shape} {parts}")
        sizes = [last - first for first, last in zip(begins, ends, strict=True)]
        found = run_node("Slice_f", [x, whole(*begins), whole(*sizes)])[0]
        want = x[tuple(slice(*pair) for pair in zip(begins, ends, strict=True))]
        np.testing.assert_array_equal(found.reals.reshape(want.shape), want, err_msg=f"{shape} {parts}")


def test_diopi_slices() -> None:
    runtime.init_library()
    calls = Calls()
    for _ in range(2 * CASES):
        rank = int(RNG.integers(1, 5))
        shape, parts = drawn(rank, stepped=True)
        axis = int(RNG.integers(0, rank))
        part = parts[axis]
        x = elements(shape, F16)
        want = x[(slice(None),) * axis + (part,)]
        found = calls.compute("Slice", want.shape, x, axis, part.start, part.stop, part.step)
        np.testing.assert_array_equal(found, want, err_msg=f"{shape} axis {axis} {part}")
    runtime.finalize_library()
