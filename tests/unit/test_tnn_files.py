"""Files of TNN: the text and the arrays, both versions, and damaged ones."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.apis.tnn import DeviceType, NetworkConfig
from rkcosim.apis.tnn.loader import TnnNetwork, join, layer_types, read_network, to_onnx, write_network
from rkcosim.apis.tnn.loader.proto import (
    VERSION_1,
    VERSION_2,
    LayerInfo,
    NetInput,
    NetStructure,
    read_proto,
)
from rkcosim.apis.tnn.loader.resources import read_resources, write_resources
from rkcosim.base.files import GivenFileError, identify, read_model
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.interpreters import ModelInterpreter, find, interpreter_of, kinds, register
from rkcosim.compiler.loaders import open_source
from tests.makers.tnn_layers import CASES, INT8, coded_network, network_of, run
from tools.file_fuzz import mutated

TEXT = b""""1 3 1 4206624770 ,"
"input 1 3 8 8 ,"
" input conv relu ,"
"relu ,"
" 2 ,"
"Convolution conv 1 1 input conv 1 3 4 3 3 1 1 1 1 1 -1 1 1 ,"
"ReLU relu 1 1 conv relu ,"
"""


def _arrays(version: int = VERSION_1) -> bytes:
    """Write the arrays of `TEXT` by hand, from the layout on the page of the format."""

    def text(name: str) -> bytes:
        return struct.pack("<i", len(name)) + name.encode()

    def raw(values: np.ndarray) -> bytes:
        dims = (
            struct.pack(f"<{values.ndim + 1}i", values.ndim, *values.shape) if version == VERSION_2 else b""
        )
        return struct.pack("<Iii", version, 0, values.nbytes) + dims + values.tobytes()

    weights, bias = np.arange(108, dtype=np.float32), np.ones(4, np.float32)
    head = struct.pack("<Ii", version, 1) + struct.pack("<i", 0) + text("Convolution") + text("conv")
    return head + text("conv") + struct.pack("<i", 1) + raw(weights.reshape(4, 3, 3, 3)) + raw(bias)


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_a_file_written_by_hand_is_read(version: int):
    net = read_network(join(TEXT, _arrays(version)))
    assert net.structure.inputs == (NetInput("input", (1, 3, 8, 8)),)
    assert net.structure.outputs == ("relu",) and net.structure.blobs == ("input", "conv", "relu")
    assert net.resources["conv"]["filter"].size == 108 and net.resources["conv"]["bias"].tolist() == [1] * 4
    assert net.bound()[1] == {"input": (1, 3, 8, 8), "conv": (1, 4, 8, 8), "relu": (1, 4, 8, 8)}
    assert [node.op_type for node in to_onnx(net).graph.node] == ["Conv", "Relu"]


def test_arrays_without_magic_and_without_type_names_are_read():
    """The oldest files have neither."""
    data = _arrays()[4:]
    net = read_proto(TEXT)
    plain, _ = read_resources(data, net)
    old = data.replace(struct.pack("<i", 11) + b"Convolution", b"", 1)
    named, _ = read_resources(old, net)
    for found in (plain, named):
        assert found["conv"]["filter"].size == 108


def test_an_input_of_the_second_version_has_rank_and_type():
    text = TEXT.replace(b"4206624770", b"4206624772").replace(
        b"input 1 3 8 8 ,", b"input 4 1 3 8 8 0 : other 2 5 6 3 ,"
    )
    assert read_proto(text).inputs == (NetInput("input", (1, 3, 8, 8)), NetInput("other", (5, 6), 3))


@pytest.mark.parametrize("kind", CASES)
def test_networks_are_written_and_read_unchanged(kind: str):
    net = network_of(kind, CASES[kind](np.random.default_rng(3)))
    _same(net, read_network(join(*write_network(net))))


@pytest.mark.parametrize("kind", INT8)
def test_int8_networks_are_written_and_read_unchanged(kind: str):
    net, _ = coded_network(kind, np.random.default_rng(3), True)
    _same(net, read_network(join(*write_network(net))))


def _same(net: TnnNetwork, again: TnnNetwork) -> None:
    assert again.structure == net.structure
    for name, arrays in net.resources.items():
        for key, values in arrays.items():
            np.testing.assert_array_equal(again.resources[name][key].reshape(-1), values.reshape(-1))


def test_half_floats_and_bfp16_are_read():
    net = read_proto(TEXT)
    values = np.array([1.5, -2.0], np.float32)
    halves = write_resources(net, {"conv": {"filter": values.astype(np.float16), "bias": values}})
    assert read_resources(halves, net)[0]["conv"]["filter"].tolist() == [1.5, -2.0]
    shorts = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    data = _arrays()
    at = data.index(struct.pack("<Iii", VERSION_1, 0, 432))
    data = data[:at] + struct.pack("<Iii", VERSION_1, 4, 4) + shorts + data[at + 12 + 432 :]
    assert read_resources(data, net)[0]["conv"]["filter"].tolist() == [1.5, -2.0]


BAD = {
    "4206624770": ("1", "no known version"),
    "input 1 3 8 8": ("input 1 3 8 x", "'x', not an integer"),
    "input 1 3 8 8 ": ("input 1 3 8 99999999 ", "has the shape"),
    "1 1 input conv": ("1 1 inputs conv", "no layer before it makes its input 'inputs'"),
    "ReLU relu 1 1 conv relu": ("ReLU relu 1 1 conv conv", "exists already"),
    "ReLU relu 1 1": ("ReLU relu 9 1", "has not the 9 \\+ 1 blobs"),
    "ReLU relu": ("ReLU conv", "two layers are called 'conv'"),
    '"relu ,"': ('"nothing ,"', "no layer makes the output 'nothing'"),
}


@pytest.mark.parametrize("old", BAD)
def test_a_damaged_text_is_refused_by_name(old: str):
    new, message = BAD[old]
    text = TEXT.decode()
    assert old in text
    with pytest.raises(ModelError, match=message):
        read_network(join(text.replace(old, new).encode(), _arrays()))


def test_a_constant_of_the_arrays_is_a_blob():
    text = TEXT.replace(b"ReLU relu 1 1 conv relu", b"Add relu 2 1 conv offset relu")
    with pytest.raises(ModelError, match="no layer before it makes its input 'offset'"):
        read_network(join(text, _arrays()))
    values = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
    more = struct.pack("<Ii", VERSION_2, 1) + struct.pack("<i", 6) + b"offset"
    more += struct.pack("<Iii", VERSION_2, 0, 16) + struct.pack("<5i", 4, *values.shape) + values.tobytes()
    net = read_network(join(text, _arrays() + more))
    np.testing.assert_array_equal(net.constants["offset"], values)
    inputs = {"input": np.zeros((1, 3, 8, 8), np.float32)}
    for config in (NetworkConfig(), NetworkConfig(device_type=DeviceType.DEVICE_RK3588, engine="golden")):
        made = run(net, config, inputs)["relu"]
        np.testing.assert_array_equal(made, np.broadcast_to(values + 1, made.shape))


def test_layers_that_do_not_exist_are_refused_by_name():
    text = TEXT.replace(b"ReLU relu", b"GridSample relu")
    with pytest.raises(ModelError, match=r"GridSample 'relu': layers of this type are not supported"):
        to_onnx(read_network(join(text, _arrays())))


def test_parameters_that_do_not_fit_are_refused_by_name():
    text = TEXT.replace(b"1 3 4 3 3", b"2 3 4 3 3")
    with pytest.raises(ModelError, match="Convolution 'conv'"):
        to_onnx(read_network(join(text, _arrays())))
    short = replace(
        read_network(join(TEXT, _arrays())), resources={"conv": {"filter": np.zeros(7, np.float32)}}
    )
    with pytest.raises(ModelError, match="its filter has 7 elements, not 108"):
        to_onnx(short)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), 1e-38, 1e38])
def test_scales_out_of_range_are_refused_by_name(value: float):
    """Scales of a blob, and of kernels."""
    net, _ = coded_network("Convolution", np.random.default_rng(1), True)
    for name, message in (("y0_scale_data_", "blob 'y0' has"), ("layer", "QuantizedConvolution 'layer'")):
        arrays = dict(net.resources[name])
        arrays["scale"] = np.full_like(arrays["scale"], value)
        if name == "layer" and value == 1e38:
            arrays["scale"] = np.full_like(arrays["scale"], 3e38)
        elif name == "layer" and value == 1e-38:
            arrays["scale"] = np.full_like(arrays["scale"], 1e-45)
        with pytest.raises(ModelError, match=message):
            to_onnx(replace(net, resources={**net.resources, name: arrays}))


def test_many_channels_are_shuffled_without_a_matrix():
    layer = LayerInfo("ShuffleChannel", "mix", ("x",), ("y",), ("3",))
    net = TnnNetwork(NetStructure((NetInput("x", (1, 3000, 1, 2)),), ("y",), (layer,), VERSION_2))
    values = np.random.default_rng(1).normal(0, 1, (1, 3000, 1, 2)).astype(np.float16).astype(np.float32)
    assert [node.op_type for node in to_onnx(net).graph.node] == ["Reshape", "Transpose", "Reshape"]
    for config in (NetworkConfig(), NetworkConfig(device_type=DeviceType.DEVICE_RK3588, engine="golden")):
        made = run(net, config, {"x": values})["y"]
        np.testing.assert_array_equal(made[0, :6], values[0, [0, 1000, 2000, 1, 1001, 2001]])


def test_every_cut_of_the_arrays_is_refused():
    data, net = _arrays(VERSION_2), read_proto(TEXT)
    for size in range(len(data)):
        with pytest.raises(ModelError, match="damaged"):
            read_resources(data[:size], net)


@pytest.mark.parametrize("value", [-1, 1 << 30, (1 << 31) - 1])
def test_no_length_is_believed(value: int):
    """Every word of the file as a length that is not there: the reader says so, or reads other values."""
    data, net = _arrays(VERSION_2), read_proto(TEXT)
    for at in range(4, 160, 4):
        changed = data[:at] + struct.pack("<i", value) + data[at + 4 :]
        try:
            read_resources(changed, net)
        except ModelError as error:
            assert "damaged .tnnmodel" in str(error)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.integers(0, 1 << 32), st.booleans())
def test_changed_files_are_read_or_refused(seed: int, text: bool):
    rng = random.Random(seed)
    proto, model = write_network(coded_network("Convolution", np.random.default_rng(1), False)[0])
    data = join(mutated(proto, rng, False), model) if text else join(proto, mutated(model, rng, False))
    try:
        to_onnx(read_network(data))
    except ModelError:
        pass


def test_both_files_are_read_as_one(tmp_path: Path):
    path = tmp_path / "net.tnnproto"
    path.write_bytes(TEXT)
    assert identify(TEXT) == "TNN network"
    with pytest.raises(GivenFileError, match=r"arrays are expected in .*net\.tnnmodel: No such file"):
        read_model(path)
    path.with_suffix(".tnnmodel").write_bytes(_arrays())
    data = read_model(path)
    assert data == join(TEXT, _arrays()) and identify(data) == "TNN network"
    assert layer_types(data) == {"Convolution": 1, "ReLU": 1}
    assert [op.kind for op in open_source(data)({}).ops] == ["Conv"]
    with pytest.raises(ModelError, match=r"the .tnnmodel with the arrays of this .tnnproto is missing"):
        open_source(TEXT)


def test_interpreters_are_registered_by_kind():
    import rkcosim.rknn_file  # noqa: F401 - names the home of its interpreter

    assert set(kinds()) >= {"ONNX model", "TFLite model", "TNN network", ".rknn file"}
    found = find(TEXT)
    assert found is not None and found.kind == "TNN network" and interpreter_of(b"?").kind == "ONNX model"
    assert find(b"RKNN" + bytes(60)).plan is not None
    register(ModelInterpreter("TNN network", lambda data: lambda refused: "graph"))
    try:
        assert open_source(TEXT)({}) == "graph"
    finally:
        register(found)


def test_names_that_the_text_cannot_hold_are_refused():
    structure = read_proto(TEXT)
    odd = replace(structure, inputs=(NetInput("in put", (1, 3, 8, 8)),))
    with pytest.raises(ModelError, match="'in put' cannot be written"):
        write_network(TnnNetwork(odd))
    flat = NetStructure((NetInput("input", (3, 8)),), structure.outputs, structure.layers, VERSION_1)
    with pytest.raises(ModelError, match="first version have inputs of four dimensions"):
        write_network(TnnNetwork(flat))
