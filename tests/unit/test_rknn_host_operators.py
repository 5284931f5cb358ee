"""Operators of ONNX on the host between nodes of the NPU, in files that look like the vendor's.

Our writer's file of two convolutions gets nodes of the host between them. What they should compute comes from
numpy, on the dequantised codes that the first convolution left in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.rknn_file import RknnFileError, read_rknn
from rkcosim.rknn_file.container import FileNode, FileTensor, RknnFile
from rkcosim.rknn_file.model import FileModel
from rkcosim.rknn_file.schema import Kind, Layout
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.verify.crosscheck.file_check import FileChecker
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.rknn_containers import as_version_6
from tests.makers.rknn_models import Qdq

SHAPE = (1, 16, 8, 8)
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def data() -> bytes:
    """Two convolutions of 16 channels, as a file of another compiler."""
    net = Qdq()
    x = net.input("x", SHAPE, 0.02, 3)
    y = net.conv(net.conv(x, 16, 16, 1, 0.05, -7), 16, 16, 1, 0.3, 5)
    net.output(y, "y", SHAPE)
    return as_version_6(read_rknn(write_rknn(compile_model(net.bytes(), reuse=True))))


@dataclass
class Made:
    """A node of the host: its inputs are "t" (the first convolution's output), names of results before it, or
    arrays (constants); its results have shapes, types, scales and zero points."""

    type: str
    inputs: Sequence[Any]
    shapes: Sequence[tuple[int, ...]] = (SHAPE,)
    dtype: type = np.int8
    scale: float = 0.03
    zero: int = -20
    native: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


def between(file: RknnFile, nodes: Sequence[Made]) -> RknnFile:
    """The file with nodes of the host between its two convolutions; the second reads the last result."""
    tensors, made = list(file.tensors), list[FileNode]()
    first, second = (node for node in file.nodes if node.on_npu)
    at = max(t.offset + t.size for t in tensors if t.activation)
    known = {"t": first.outputs[0]}
    for number, node in enumerate(nodes):
        inputs, outputs = [], []
        for given in node.inputs:
            if isinstance(given, str):
                inputs.append(known[given])
                continue
            array = np.asarray(given)
            inputs.append(len(tensors))
            stored = array.shape or (1,)
            tensors.append(
                FileTensor(
                    len(tensors),
                    f"{node.type} constant {len(tensors)}",
                    array.dtype,
                    Layout.PLAIN,
                    Kind.HOST_CONSTANT,
                    stored,
                    stored,
                    size=array.nbytes,
                    data=array.tobytes(),
                )
            )
        for port, shape in enumerate(node.shapes):
            item = np.dtype(node.dtype).itemsize
            plain = np.dtype(node.dtype) != np.int8 or len(shape) != 4
            blocks = -(-shape[1] // 16) if len(shape) == 4 else 1
            native = node.native or (shape if plain else (1, blocks, *shape[2:], 16))
            size = max(math.prod(native) * item, 64)
            layout = Layout.ROW_MAJOR if plain else Layout.NATIVE
            known[f"{number}.{port}" if port else str(number)] = len(tensors)
            outputs.append(len(tensors))
            tensors.append(
                FileTensor(
                    len(tensors),
                    f"{node.type} result {len(tensors)}",
                    np.dtype(node.dtype),
                    layout,
                    Kind.INTERNAL,
                    native,
                    shape,
                    node.scale,
                    node.zero,
                    size,
                    at,
                )
            )
            at += -(-size // 64) * 64
        name = f"{node.type} {number}"
        made.append(
            FileNode(0, node.type, name, False, tuple(inputs), tuple(outputs), attributes=node.attributes)
        )
    last = known[str(len(nodes) - 1)]
    place = file.nodes.index(second)
    inputs = tuple(last if n == first.outputs[0] else n for n in second.inputs)
    every = [*file.nodes[:place], *made, replace(second, inputs=inputs), *file.nodes[place + 1 :]]
    words = {
        word
        for record in file.records
        if record.node == second.index
        for word in range(record.first, record.first + record.amount)
    }
    relocations = {
        word: replace(target, tensor=last) if word in words and target.tensor == first.outputs[0] else target
        for word, target in file.relocations.items()
    }
    records = [
        replace(record, node=record.node + len(made) * (record.node >= second.index))
        for record in file.records
    ]
    return replace(
        file,
        tensors=tensors,
        nodes=[replace(node, index=n) for n, node in enumerate(every)],
        relocations=relocations,
        records=records,
        internal_bytes=at,
    )


def values(file: RknnFile, reuse: bool = False) -> tuple[Array, dict[str, Array]]:
    """Real numbers of the first convolution's output, and the codes of all results, after a run.

    The run is checked against the task-level golden model and every node against its meaning.
    """
    model = FileModel(file, np.random.default_rng(1).bytes(8), reuse=reuse)
    driver = GoldenDriver()
    with LoadedModel(model, driver) as loaded:
        picture = np.random.default_rng(7).normal(size=SHAPE).astype(np.float32)
        loaded.set_input(0, picture)
        loaded.run()
        if not reuse:
            checker = FileChecker(loaded)
            assert checker.check([picture]).match
            checker.close()
        host = [step for step in model.plan.steps if isinstance(step, HostStep)]
        results = {tensor.name: loaded.tensor(tensor.name) for step in host for tensor in step.outputs}
        first = host[0].inputs[0]
        codes = loaded.tensor(first.name).astype(np.float64)
        results["output"] = loaded.get_output(0)
        return (codes - first.zero_point).reshape(first.shape) * np.float32(first.scale), results


def quantised(real: Any, made: Made) -> Array:
    codes = np.rint(np.asarray(real, np.float64) / np.float64(np.float32(made.scale))) + made.zero
    return np.clip(codes, -128, 127).astype(np.int8)


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


MATRIX = np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32)
ROW = np.random.default_rng(4).normal(size=(1, 16, 1, 1)).astype(np.float32)
ERF = np.vectorize(math.erf)


def pool_4x5(x: Array) -> Array:
    """An average over windows of 3 x 5 with padding that does not count."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)))
    count = np.pad(np.ones_like(x), ((0, 0), (0, 0), (1, 1), (2, 2)))
    windows, counts = (
        np.lib.stride_tricks.sliding_window_view(array, (3, 5), axis=(2, 3)).sum((-1, -2))
        for array in (padded, count)
    )
    return windows / counts


ONE: dict[str, tuple[Made, Callable[[Array], Array]]] = {
    "Pow, exponent (1,)": (Made("Pow", ["t", np.float32(2)], scale=0.47), lambda x: x**2),
    "Div, scalar (1,)": (Made("Div", ["t", np.float32(3)]), lambda x: x / 3),
    "Div, channels": (Made("Div", ["t", np.abs(ROW) + 1]), lambda x: x / (np.abs(ROW) + 1)),
    "Mul of itself": (Made("Mul", ["t", "t"], scale=0.47), lambda x: x * x),
    "half constant": (Made("Add", ["t", ROW.astype(np.float16)]), lambda x: x + ROW.astype(np.float16)),
    "Clip, (1,) bounds": (
        Made("Clip", ["t", np.float32(-1), np.float32(2)]),
        lambda x: np.clip(x, -1, 2),
    ),
    "Softmax of channels": (
        Made("Softmax", ["t"], scale=1 / 255, zero=-128, attributes={"axis": 1}),
        lambda x: softmax(x, 1),
    ),
    "Transpose": (
        Made("Transpose", ["t"], attributes={"perm": (0, 1, 3, 2)}),
        lambda x: x.transpose(0, 1, 3, 2),
    ),
    "LeakyRelu": (
        Made("LeakyRelu", ["t"], attributes={"alpha": 0.25}),
        lambda x: np.where(x < 0, 0.25 * x, x),
    ),
    "Gather": (
        Made("Gather", ["t", np.arange(15, -1, -1)], attributes={"axis": 1}),
        lambda x: x[:, ::-1],
    ),
    "Slice and step": (
        Made("Slice", ["t", np.array([7]), np.array([-9]), np.array([2]), np.array([-1])]),
        lambda x: x[:, :, ::-1],
    ),
    "MatMul": (Made("MatMul", ["t", MATRIX], scale=0.1), lambda x: x @ MATRIX),
    "Erf": (Made("Erf", ["t"], scale=0.01), lambda x: ERF(x)),
    "AddRelu": (Made("AddRelu", ["t", ROW]), lambda x: np.maximum(x + ROW, 0)),
    "exSwish": (Made("exSwish", ["t"]), lambda x: x / (1 + np.exp(-x))),
    "AveragePool": (
        Made(
            "AveragePool",
            ["t"],
            attributes={"kernel_shape": (3, 5), "pads": (1, 2, 1, 2), "strides": (1, 1)},
        ),
        pool_4x5,
    ),
    "LayerNormalization, of version 17": (
        Made(
            "LayerNormalization",
            ["t", np.ones(8, np.float32), np.zeros(8, np.float32)],
            attributes={"axis": -1, "epsilon": 1e-5},
        ),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "BatchNormalization": (
        Made(
            "BatchNormalization",
            ["t", ROW.ravel(), ROW.ravel(), ROW.ravel() / 2, np.abs(ROW.ravel()) + 1],
            scale=0.1,
            attributes={"epsilon": 1e-3},
        ),
        lambda x: (x - ROW / 2) / np.sqrt(np.abs(ROW) + 1 + 1e-3) * ROW + ROW,
    ),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("reuse", [False, True])
def test_an_operator_between_two_convolutions(data: bytes, name: str, reuse: bool):
    made, function = ONE[name]
    file = between(read_rknn(data), [made])
    x, results = values(file, reuse)
    found = next(value for name, value in results.items() if name.startswith(made.type))
    wanted = quantised(function(x), made)[0]
    assert np.abs(found.astype(int) - wanted).max() <= 1  # a tie of float32 and binary64
    assert np.mean(found == wanted) > 0.99 and len(np.unique(wanted)) > 4


def test_the_second_convolution_reads_the_host_s_result(data: bytes):
    """Transposed pixels go in, so pixels come out transposed."""
    plain, _ = ONE["Transpose"]
    same = replace(plain, scale=0.05, zero=-7)
    copied = replace(same, attributes={"perm": (0, 1, 2, 3)})
    _, turned = values(between(read_rknn(data), [same]))
    _, straight = values(between(read_rknn(data), [copied]))
    assert np.array_equal(turned["output"], straight["output"].transpose(0, 1, 3, 2))
    assert len(np.unique(turned["output"])) > 50


def test_a_chain_as_in_lprnet(data: bytes):
    """x / mean(x ** 2): Pow, ReduceMean over everything, Div by a scalar; between nodes of the host the
    native shape may be the shape."""
    square = Made("Pow", ["t", np.float32(2)], scale=0.4, zero=-128, native=SHAPE)
    mean = Made(
        "ReduceMean", ["0"], [(1,)], scale=0.1, zero=-128, attributes={"axes": (0, 1, 2, 3), "keepdims": 0}
    )
    quotient = Made("Div", ["t", "1"], scale=0.02, zero=3)
    file = between(read_rknn(data), [square, mean, quotient])
    layouts = [replace(t, layout=Layout.NATIVE) if t.native == SHAPE else t for t in file.tensors]
    x, results = values(replace(file, tensors=layouts))
    codes = [
        results[f"{m.type} result {n.outputs[0]}"]
        for m, n in zip(
            (square, mean, quotient), [n for n in file.nodes if not n.on_npu and not n.is_border], strict=True
        )
    ]
    assert np.abs(codes[0].astype(int) - quantised(x**2, square)[0]).max() <= 1
    squares = (codes[0].astype(np.float64) + 128) * 0.4
    assert abs(int(codes[1].ravel()[0]) - int(quantised(squares.mean(), mean))) <= 1
    average = (float(codes[1].ravel()[0]) + 128) * np.float32(0.1)
    assert np.abs(codes[2].astype(int) - quantised(x / average, quotient)[0]).max() <= 1


def test_results_of_other_types_stay_with_the_host(data: bytes):
    """int64 places, a comparison, and a choice: TopK has two results, of which one is int64."""
    highest = Made("ArgMax", ["t"], [(1, 1, 8, 8)], np.int64, 1.0, 0, attributes={"axis": 1, "keepdims": 1})
    turned = Made("Cast", ["0"], [(1, 1, 8, 8)], np.float32, 1.0, 0, attributes={"to": 1})
    bits = Made("Greater", ["t", np.float32(0)], [SHAPE], np.bool_, 1.0, 0)
    chosen = Made("Where", ["2", "t", "1"], scale=0.2, zero=-10)
    x, results = values(between(read_rknn(data), [highest, turned, bits, chosen]))
    found = next(value for name, value in results.items() if name.startswith("Where"))
    wanted = np.where(x > 0, x, x.argmax(1, keepdims=True).astype(np.float64))
    assert np.abs(found.astype(int) - quantised(wanted, chosen)[0]).max() <= 1


def test_a_node_with_two_results(data: bytes):
    halves = Made("Split", ["t", np.array([4, 12])], [(1, 4, 8, 8), (1, 12, 8, 8)], attributes={"axis": 1})
    joined = Made("Concat", ["0.1", "0"], attributes={"axis": 1})
    x, results = values(between(read_rknn(data), [halves, joined]))
    found = next(value for name, value in results.items() if name.startswith("Concat"))
    wanted = quantised(np.concatenate([x[:, 4:], x[:, :4]], 1), joined)[0]
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_memory_is_shared_without_harm(data: bytes):
    made, _ = ONE["Div, channels"]
    file = between(read_rknn(data), [made])
    assert np.array_equal(values(file, True)[1]["output"], values(file, False)[1]["output"])


WRONG: dict[str, tuple[Made, str]] = {
    "no such attribute": (
        Made("LeakyRelu", ["t"], attributes={"beta": 1.0}),
        r"LeakyRelu 'LeakyRelu 0' runs on the host .*LeakyRelu has no attribute 'beta'",
    ),
    "another shape": (
        Made("Transpose", ["t"], attributes={"perm": (0, 2, 1, 3)}),
        r"its result has the shape \[1, 8, 16, 8\], and the file \[1, 16, 8, 8\]",
    ),
    "a shape that depends on data": (Made("NonZero", ["t"]), r"depends on data|result has the shape"),
    "too many inputs": (Made("Relu", ["t", "t"]), "Relu has 2 inputs"),
    "whole numbers from floats": (
        Made("Sqrt", ["t"], [SHAPE], np.int64, 1.0, 0),
        "its result is float32, and the file has int64",
    ),
    "codes without a scale": (
        Made("Add", ["t", np.ones((1, 16, 1, 1), np.int8)]),
        "of int8 has no scale",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_computed_is_refused_by_name(data: bytes, name: str):
    made, message = WRONG[name]
    with pytest.raises(RknnFileError, match=message):
        FileModel(between(read_rknn(data), [made]), b"")


def test_the_npu_reads_no_other_types(data: bytes):
    made = Made("Cast", ["t"], [SHAPE], np.float32, 1.0, 0, attributes={"to": 1})
    with pytest.raises(RknnFileError, match=r"runs on the NPU, and its tensor .* has elements of float32"):
        FileModel(between(read_rknn(data), [made]), b"")


def test_attributes_in_an_unknown_order_are_refused(data: bytes):
    file = between(read_rknn(data), [ONE["LeakyRelu"][0]])
    nodes = [replace(n, unknown_attributes=n.type == "LeakyRelu") for n in file.nodes]
    with pytest.raises(RknnFileError, match="attributes in slot 8 in an order that is not known"):
        FileModel(replace(file, nodes=nodes), b"")


def test_a_report_names_the_operator(data: bytes):
    model = FileModel(between(read_rknn(data), [ONE["Erf"][0]]), b"")
    (step,) = [step for step in model.plan.steps if isinstance(step, CallStep)]
    assert [(one.kind, one.reason) for one in step.program.operators] == [
        ("Erf", "the file leaves it to the host")
    ]
