"""What our writer says in a `.rknn` file, held against public files by fields and by a reader of others."""

from __future__ import annotations

import ast
import ctypes as ct
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import rkcosim.rknn_api as rk
from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_file import RknnFileError, read_rknn, schema
from rkcosim.rknn_file.opening import open_model
from rkcosim.rknn_file.schema import GraphSlot, Kind, Root, TensorSlot
from rkcosim.rknn_file.tables import Table, root_table
from rkcosim.rknn_file.writer import write_rknn

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
HEIGHT, WIDTH = 8, 16

TRAILER = {
    "connection", "const_tensor", "graph", "input_num", "name", "network_platform", "node_num", "nodes",
    "norm_tensor", "norm_tensor_num", "ori_network_platform", "output_num", "target_platform", "version",
    "virtual_tensor",
}  # fmt: skip
"""Members of the JSON at the end of every public file (swdee/go-rknnlite-data c58e7b3b and five others)."""

INPUT = {
    "idx", "shape", "layout", "layout_ori", "is_output", "range", "origin_dynamic", "dtype", "mean", "std",
    "rgb2bgr",
}  # fmt: skip
"""Attributes of an input in swdee/go-rknnlite-data c58e7b3b, models/rk3588/mobilenetv2-batch8-rk3588.rknn."""


@pytest.fixture(scope="module")
def layer() -> bytes:
    return layer_models.conv(3, 16, (HEIGHT, WIDTH), int8=True, kernel=3, pad=1)


@pytest.fixture(scope="module")
def data(layer: bytes) -> bytes:
    return write_rknn(compile_model(layer, reuse=True), [Preprocessing(MEAN, STD, True)], batch=8)


@pytest.fixture
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3), quiet=True)
    yield
    rk.use_device(None)


def root_of(data: bytes) -> tuple[Table, dict[str, Any]]:
    _, _, length = schema.HEADER.unpack_from(data)
    end = schema.FLATBUFFER_AT + length
    return root_table(data[schema.FLATBUFFER_AT : end], "root"), json.loads(data[end + 8 :])


def test_the_root_has_the_fields_of_public_files(data: bytes):
    """The forms are those of the MobileNetV2 with a batch of 8: `RKNPU v2`, a Python literal, JSON, "8"."""
    root, trailer = root_of(data)
    assert root.text(Root.GENERATOR) == "RKNPU v2" and root.text(Root.TARGET) == "rk3588"
    assert root.text(Root.SHAPES) == "static_shape" and root.text(Root.BATCH) == "8"
    said = ast.literal_eval(root.text(Root.ATTRIBUTES))
    assert set(said) == {"attrs", "quant_tab"}
    (given,) = (own for own in said["attrs"].values() if not own["is_output"])
    (taken,) = (own for own in said["attrs"].values() if own["is_output"])
    assert set(given) == INPUT and set(taken) == {"is_output", "idx", "shape", "dtype", "layout"}
    assert (given["mean"], given["std"], given["rgb2bgr"]) == (list(MEAN), list(STD), True)
    assert (given["layout"], given["layout_ori"], given["shape"]) == ("nchw", "nchw", [1, 3, HEIGHT, WIDTH])
    names = list(said["attrs"])
    assert json.loads(root.text(Root.INPUTS_JSON)) == {names[0]: {"dtype": "int8", "layout": "NHWC"}}
    assert json.loads(root.text(Root.OUTPUTS_JSON)) == {names[1]: {"dtype": "int8", "layout": "NCHW"}}
    assert set(trailer) == TRAILER and trailer["target_platform"] == ["rk3588"]
    assert trailer["graph"] == [
        {"left": "input", "left_tensor_id": 0, "right": "norm_tensor", "right_tensor_id": 0},
        {"left": "output", "left_tensor_id": 0, "right": "norm_tensor", "right_tensor_id": 1},
    ]
    assert trailer["norm_tensor"][0] == {
        "dim_num": 4,
        "dtype": {"qnt_method": "layer", "qnt_type": "int8", "vx_type": "int8"},
        "size": [1, 3, HEIGHT, WIDTH],
        "tensor_id": 0,
        "url": names[0],
    }


def test_a_tensor_has_the_fields_of_public_files(data: bytes):
    """Quantised activations have range, name of the type and of the method besides scale and zero point; the
    range is that of the codes: of the public file [-2.1179, 2.64] for the scale 0.0186584 and -14."""
    root, _ = root_of(data)
    (graph,) = root.tables(Root.GRAPHS, "graph")
    found = [
        t for t in graph.tables(GraphSlot.TENSORS, "tensor") if t.number(TensorSlot.KIND, 1) == Kind.INPUT
    ]
    (tensor,) = found
    assert tensor.text(TensorSlot.QUANTISED_BY) == "layer" and tensor.text(TensorSlot.DTYPE_NAME) == "int8"
    own = next(t for t in read_rknn(data).tensors if t.kind == Kind.INPUT)
    low, high = (
        np.int32(tensor.numbers(slot)[0]).view(np.float32) for slot in (TensorSlot.LOW, TensorSlot.HIGH)
    )
    assert low == np.float32((-128 - own.zero_point) * own.scale)
    assert high == np.float32((127 - own.zero_point) * own.scale)


@pytest.mark.parametrize("int8", [True, False], ids=["int8", "fp16"])
def test_a_reader_of_others_shows_our_files(int8: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """rknncli prints of a vendor's file "Model: rknn model", and types and shapes of inputs and outputs."""
    rknncli = pytest.importorskip("rknncli.parser", reason="needs rknncli, which the extra dev has")
    from rknncli.cli import print_io_info, print_merged_model_info

    model = compile_model(layer_models.conv(3, 16, (8, 16), int8=int8, kernel=3, pad=1), reuse=True)
    path = tmp_path / "x.rknn"
    path.write_bytes(write_rknn(model))
    parser = rknncli.RKNNParser(path)
    print_merged_model_info(parser)
    print_io_info(parser)
    shown = capsys.readouterr().out
    assert "Model: rknn model\nTarget Platform: rk3588\nFormat: RKNPU v2\n" in shown
    kind = "INT8" if int8 else "FLOAT"
    given, taken = model.inputs[0].name, model.outputs[0].name
    assert f'ValueInfo "{given}": type {kind}, shape [1, 3, 8, 16],' in shown
    assert f'ValueInfo "{taken}": type {kind}, shape [1, 16, 8, 16],' in shown
    found = parser.get_flatbuffers_info()["graphs"][0]
    assert next(node["name"] for node in found["nodes"]) == f"InputOperator:{given}"
    assert given in [tensor["name"] for tensor in found["tensors"]]


def test_a_program_gets_what_compile_was_told(layer: bytes, tmp_path: Path, device: None):
    """uint8 pixels through a file of the command: channels reversed, (x - mean) / std, eight at once."""
    source, path = tmp_path / "x.onnx", tmp_path / "x.rknn"
    source.write_bytes(layer)
    words = ["compile", source, "-o", path, "--mean", "123.675,116.28,103.53", "--std", "58.395,57.12,57.375"]
    result = CliRunner().invoke(app, [str(word) for word in [*words, "--bgr", "--batch", 8]])
    assert result.exit_code == 0, result.output
    pixels = np.random.default_rng(1).integers(0, 256, (8, HEIGHT, WIDTH, 3), np.uint8)
    real = ((pixels[..., ::-1].astype(np.float32) - np.float32(MEAN)) / np.float32(STD)).transpose(0, 3, 1, 2)
    with Model(layer) as one:
        wanted = np.concatenate([one.run(real[n : n + 1])[0] for n in range(8)])
    with Model(path.read_bytes()) as model:
        attr = rk.rknn_tensor_attr(index=0)
        assert not rk.rknn_query(model.context, rk.RKNN_QUERY_INPUT_ATTR, ct.byref(attr), ct.sizeof(attr))
        assert list(attr.dims[:4]) == [8, HEIGHT, WIDTH, 3]
        item = rk.rknn_input(index=0, buf=pixels.ctypes.data, size=pixels.nbytes, type=rk.RKNN_TENSOR_UINT8)
        item.fmt = rk.RKNN_TENSOR_NHWC
        assert rk.rknn_inputs_set(model.context, 1, (rk.rknn_input * 1)(item)) == rk.RKNN_SUCC
        model.execute()
        assert np.array_equal(model.outputs_get()[0], wanted)
    result = CliRunner().invoke(app, ["info", str(path)])
    assert result.exit_code == 0
    assert "batch: 8 samples at once\n" in result.output
    assert (
        "mean 123.675, 116.28, 103.53, std 58.395, 57.12, 57.375, rgb2bgr true, layout NHWC" in result.output
    )
    assert "toolkit: rkcosim" in result.output and "for rk3588" in result.output
    assert "host operators: none\n" in result.output


def test_what_does_not_fit_is_refused(layer: bytes, tmp_path: Path):
    model = compile_model(layer, reuse=True)
    for given, batch, problem in (
        ([Preprocessing((1.0, 2.0), (1.0,))], 1, "2 values of mean for 3 channels"),
        ([Preprocessing((1.0,), (0.0,))], 1, "a std is 0"),
        ([Preprocessing()] * 2, 1, "mean and std of 2 inputs; the model has 1"),
        ([], 1 << 20, "a batch of 1048576"),
    ):
        with pytest.raises(RknnFileError, match=problem):
            write_rknn(model, given, batch)
    source = tmp_path / "x.onnx"
    source.write_bytes(layer)
    for words in (["--mean", "1"], ["-o", str(tmp_path / "x.rkc"), "--batch", "2"]):
        result = CliRunner().invoke(app, ["compile", str(source), *words])
        assert result.exit_code == 2 and "need -o with a name that ends with .rknn" in result.output


def test_a_file_has_plans_for_one_two_and_three_cores(device: None):
    """As public files: task counts in six columns, and where the later plans begin; each gives the same."""
    both = layer_models.conv(16, 64, (24, 24), int8=True, kernel=3, pad=1)
    compiled = compile_model(both, reuse=True)
    data = write_rknn(compiled, cores=(1, 2, 3))
    file = read_rknn(data)
    assert sorted(file.plans) == [1, 2, 3]
    assert [len(parts) for parts in file.plans.values()] == [1, 2, 3]
    columns = np.sum([node.tasks for node in file.nodes], axis=0)
    assert list(columns) == [len(part) for plan in file.plans.values() for part in plan]
    root, _ = root_of(data)
    starts = next(iter(root.tables(Root.GRAPHS, "graph"))).numbers(GraphSlot.PLANS)
    assert starts == (0, 0, 0, columns[0], columns[:3].sum())
    x = np.random.default_rng(0).normal(size=(1, 16, 24, 24)).astype(np.float32)
    found = []
    for mask in (1, 3, 7):
        with Model(data) as model:
            assert rk.rknn_set_core_mask(model.context, mask) == rk.RKNN_SUCC
            found.append(model.run(x)[0])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2]) and found[0].std() > 0
    with pytest.raises(RknnFileError, match="plan for 3 cores"):
        open_model(write_rknn(compiled.replanned(2)), cores=3)


def test_the_host_counts_axes_in_the_models_shape(device: None):
    """A tensor of three dimensions has four in the file; Transpose and Softmax mean those of the model."""
    rng = np.random.default_rng(5)
    dims = ((12, 8, 3), (6, 12, 1), (16, 10))
    kernels = [rng.normal(size=size).astype(np.float32) / 4 for size in dims]
    nodes = [
        helper.make_node("Conv", ["x", "k0"], ["c"], pads=[1, 1]),
        helper.make_node("Softmax", ["c"], ["s"], axis=2),
        helper.make_node("Conv", ["s", "k1"], ["d"]),
        helper.make_node("MatMul", ["d", "k2"], ["y"]),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
    ]
    sizes = {"x": (1, 8, 16), "y": (1, 6, 10), "t": (1, 16, 12)}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
    constants = [numpy_helper.from_array(kernel, f"k{n}") for n, kernel in enumerate(kernels)]
    graph = helper.make_graph(nodes, "axes", infos[:1], infos[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    x = rng.normal(size=sizes["x"]).astype(np.float16).astype(np.float32)
    source = made.SerializeToString()
    wanted = InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    data = write_rknn(compile_model(source, reuse=True))
    with Model(data) as model:
        for found, expected in zip(model.run(x), wanted, strict=True):
            np.testing.assert_allclose(found, expected, atol=0.004 * float(np.abs(expected).max()))
    index = data.index(b'"shapes":[[1,12,16]]')
    damaged = data[:index] + data[index:].replace(b"[[1,12,16]]", b"[[1,12,17]]", 1)
    with pytest.raises(RknnFileError, match=r"shapes \[\[1, 12, 17\]\]"):
        open_model(damaged)


def test_an_input_that_nothing_reads_is_refused():
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in (("unused", (1, 5)), ("x", (1, 3, 4, 4)), ("y", (1, 6, 4, 4)))
    ]
    kernel = numpy_helper.from_array(np.ones((6, 3, 1, 1), np.float32), "k")
    node = helper.make_node("Conv", ["x", "k"], ["y"])
    made = helper.make_model(
        helper.make_graph([node], "unused", infos[:2], infos[2:], [kernel]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    made.ir_version = 8
    with pytest.raises(RknnFileError, match="no layer reads input 'unused'"):
        write_rknn(compile_model(made.SerializeToString(), reuse=True))


@pytest.mark.parametrize("parts", [(4, 9), (4, 8, 3)])
def test_tensors_have_names_of_their_own(parts: tuple[int, ...], device: None):
    """A Concat whose parts do not fill whole atoms: the steps that place them have one name in the plan.

    Relocations name their tensors, so that with equal names all parts had the weights of the last one:
    the detection heads of YOLOX, found with Frigate's detector.
    """
    rng = np.random.default_rng(6)
    kernels = [rng.normal(size=(n, 32, 1, 1)).astype(np.float32) / 4 for n in parts]
    names = [f"c{n}" for n in range(len(parts))]
    nodes = [helper.make_node("Conv", ["x", f"k{n}"], [name]) for n, name in enumerate(names)]
    nodes.append(helper.make_node("Concat", names, ["y"], axis=1))
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, wide, 4, 4))
        for name, wide in (("x", 32), ("y", sum(parts)))
    ]
    constants = [numpy_helper.from_array(kernel, f"k{n}") for n, kernel in enumerate(kernels)]
    graph = helper.make_graph(nodes, "parts", infos[:1], infos[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    source = made.SerializeToString()
    x = rng.normal(size=(1, 32, 4, 4)).astype(np.float16).astype(np.float32)
    (wanted,) = InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    data = write_rknn(compile_model(source, reuse=True))
    with Model(data) as model:
        np.testing.assert_allclose(model.run(x)[0], wanted, atol=0.004 * float(np.abs(wanted).max()))
    tensors = [tensor.name for tensor in read_rknn(data).tensors]
    assert len(set(tensors)) == len(tensors) and {"x", "y"} <= set(tensors)
    first, second = [name.encode() for name in tensors if name.endswith(".weight.0")][:2]
    with pytest.raises(RknnFileError, match=f"'{second.decode()}'; 2 tensors have this name"):
        read_rknn(data.replace(first, second))
