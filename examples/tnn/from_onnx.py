"""Write an ONNX model as a network of TNN: NAME.tnnproto and NAME.tnnmodel.

    python examples/tnn/from_onnx.py examples/digits/digits_int8.onnx build/digits
    rkcosim run build/digits.tnnproto --input examples/digits/held_back.npz --limit 3 --check

It takes the operators of the small networks in examples: Conv, Relu, MaxPool, GlobalAveragePool, Add,
Flatten, Gemm and Softmax, in floating point or quantised (QDQ).  An average of codes becomes a convolution
whose weights are 1, because TNN's int8 average has no scales of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.apis.tnn.loader import TnnNetwork, write_network
from rkcosim.apis.tnn.loader.proto import VERSION_2, LayerInfo, NetInput, NetStructure
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX


class Writer:
    """Converts one model; members of the result are filled node by node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = onnx.shape_inference.infer_shapes(model).graph
        self.graph = graph
        self.arrays = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        self.shapes = {
            item.name: tuple(d.dim_value for d in item.type.tensor_type.shape.dim)
            for item in (*graph.input, *graph.value_info, *graph.output)
        }
        self.coded: dict[str, str] = {}  # name of codes -> the blob that they are of
        self.reals: dict[str, str] = {}  # name of real numbers -> name of codes
        self.layers: list[LayerInfo] = []
        self.resources: dict[str, dict[str, np.ndarray]] = {}

    def network(self) -> TnnNetwork:
        """Return the network."""
        for node in self.graph.node:  # onnxruntime writes the quantised constants first
            if node.op_type == "DequantizeLinear":
                self.reals[node.output[0]] = node.input[0]
        for node in self.graph.node:
            if node.op_type == "QuantizeLinear":
                self.quantise(node)
            elif node.op_type != "DequantizeLinear":
                self.layer(node)
        inputs = tuple(NetInput(item.name, self.shapes[item.name]) for item in self.graph.input)
        outputs = tuple(self.blob(item.name) for item in self.graph.output)
        structure = NetStructure(inputs, outputs, tuple(self.layers), VERSION_2)
        return TnnNetwork(structure, self.resources)

    def quantise(self, node: onnx.NodeProto) -> None:
        """Keep the scale of a blob; the last Softmax stays a blob of real numbers."""
        blob, made = node.input[0], node.output[0]
        self.coded[made] = blob
        if self.layers and self.layers[-1].type == "Softmax":
            return
        scale, zero = (self.arrays[name].reshape(-1) for name in node.input[1:])
        self.resources[blob + SCALE_SUFFIX] = {
            "scale": scale.astype(np.float32),
            "zero_point": zero.astype(np.int8),
            "bias": np.zeros(0, np.float32),
        }

    def blob(self, name: str) -> str:
        """Return the blob behind the name of a value."""
        codes = self.reals.get(name)
        return name if codes is None else self.coded[codes]

    def codes(self, name: str) -> np.ndarray:
        """Return the array of a constant: its codes, or its numbers."""
        return self.arrays[self.reals.get(name, name)]

    def scale(self, blob: str) -> np.ndarray:
        """Return the scale of an int8 blob."""
        return self.resources[blob + SCALE_SUFFIX]["scale"]

    def scale_of_weights(self, name: str) -> np.ndarray:
        """Return the scales of quantised weights."""
        node = next(n for n in self.graph.node if name in n.output)
        return self.arrays[node.input[1]].astype(np.float32).reshape(-1)

    def layer(self, node: onnx.NodeProto) -> None:
        """Add the layer of a node."""
        kinds = {"Conv": "Convolution", "Gemm": "InnerProduct", "Relu": "ReLU"}
        kind = kinds.get(node.op_type, node.op_type)
        name, target = node.name or node.output[0], node.output[0]
        readers = [n.op_type for n in self.graph.node if target in n.input]
        quantised = bool(self.reals) and readers == ["QuantizeLinear"] and kind != "Softmax"
        values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        inputs = [self.blob(node.input[0])]
        if kind == "Convolution":
            params = self.convolution(node, name, values, quantised)
        elif kind == "InnerProduct":
            params = [self.codes(node.input[1]).shape[0], 1, 0, 1]
            self.weights("weight", node, name, quantised)
        elif kind == "MaxPool":
            kind, strides = "Pooling", values.get("strides", [1, 1])
            pads = values.get("pads", [0, 0, 0, 0])
            params = [0, *values["kernel_shape"], *strides, *pads[:2], -1, -1, -1, 0]
        elif kind == "GlobalAveragePool":
            kind, params = self.average(node, name, quantised)
        elif kind == "Add":
            params, inputs = [], [self.blob(one) for one in node.input]
        elif kind in ("Flatten", "Softmax"):
            params = [values.get("axis", 1)]
        elif kind == "ReLU":
            params = []
        else:
            raise SystemExit(f"{name}: this example does not convert {node.op_type}")
        words = tuple(str(word) for word in params)
        self.layers.append(LayerInfo(kind, name, tuple(inputs), (target,), words, quantised))

    def convolution(
        self, node: onnx.NodeProto, name: str, values: dict[str, Any], quantised: bool
    ) -> list[int]:
        """Keep the weights of a convolution and return its parameters."""
        weights, group = self.codes(node.input[1]), values.get("group", 1)
        self.weights("filter", node, name, quantised)
        pads = values.get("pads", [0, 0, 0, 0])
        strides, dilations = values.get("strides", [1, 1]), values.get("dilations", [1, 1])
        bias = int(len(node.input) > 2)
        size = [group, weights.shape[1], weights.shape[0], *weights.shape[2:]]
        return [*size, *strides, *pads[:2], bias, -1, *dilations, 0]

    def weights(self, key: str, node: onnx.NodeProto, name: str, quantised: bool) -> None:
        """Keep weights and bias; TNN's scales of kernels include that of the input."""
        weights = self.codes(node.input[1])
        made = {key: weights}
        if len(node.input) > 2:
            made["bias"] = self.codes(node.input[2])
        if quantised:
            given = self.scale_of_weights(node.input[1])
            made["scale"] = (given * self.scale(self.blob(node.input[0]))).astype(np.float32)
            made["zero_point"] = np.zeros(given.size, np.int8)
        self.resources[name] = made

    def average(self, node: onnx.NodeProto, name: str, quantised: bool) -> tuple[str, list[int]]:
        """Return type and parameters of an average over the whole map."""
        if not quantised:
            return "Pooling", [1, 0, 0, 1, 1, 0, 0, -1, -1, -1, 0]
        blob = self.blob(node.input[0])
        _, channels, height, width = self.shapes[blob]
        self.resources[name] = {
            "filter": np.ones((channels, 1, height, width), np.int8),
            "bias": np.zeros(channels, np.int32),
            "zero_point": np.zeros(1, np.int8),
            "scale": (self.scale(blob) / (height * width)).astype(np.float32),
        }
        return "Convolution", [channels, 1, channels, height, width, 1, 1, 0, 0, 1, -1, 1, 1, 0]


def convert(model: onnx.ModelProto) -> TnnNetwork:
    """Return an ONNX model as a network of TNN."""
    return Writer(model).network()


def main() -> None:
    """Convert a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="ONNX file")
    parser.add_argument("stem", type=Path, help="path of the files to write, without their ending")
    given = parser.parse_args()
    proto, arrays = write_network(convert(onnx.load(given.model)))
    given.stem.parent.mkdir(parents=True, exist_ok=True)
    for ending, data in ((".tnnproto", proto), (".tnnmodel", arrays)):
        given.stem.with_name(given.stem.name + ending).write_bytes(data)
    print(f"{given.stem}.tnnproto: {len(proto):,} bytes, {given.stem}.tnnmodel: {len(arrays):,} bytes")


if __name__ == "__main__":
    main()
