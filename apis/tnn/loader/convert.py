"""Networks of TNN as ONNX models, which the compiler reads as any other.

Int8 layers become layers between DequantizeLinear and QuantizeLinear.  In TNN's int8 layers a convolution
multiplies codes, and its scales (one per kernel) turn the sum into the numbers of its result; blobs have one
scale or one per channel.  Codes of a blob with a scale for each channel are those of a tensor with the first
channel's scale here, and the ratios go into the scales of the kernels, which changes no code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.emit import EMITTERS, convolve, multiply
from rkcosim.apis.tnn.loader.emitter import Emitter, filters
from rkcosim.apis.tnn.loader.network import BlobScale, TnnNetwork
from rkcosim.compiler.graph import ModelError

OPSET, IR = 20, 9

ON_CODES = {"Convolution", "InnerProduct", "Pooling", "ReLU", "Reshape", "Permute", "Flatten"}
"""Int8 layers that compute codes without the scales of their input."""


class Converter:
    """Converts one network.

    Parameters
    ----------
    net
        The network.
    """

    def __init__(self, net: TnnNetwork) -> None:
        self.net = net
        self.bound, self.dims = net.bound()
        self.e = Emitter()
        self._codes: set[str] = set()
        self._real: set[str] = {item.name for item in net.structure.inputs}
        self._floats = self._real | {
            name for layer in net.structure.layers if not layer.quantized for name in layer.outputs
        }
        self._rounded: set[str] = set()

    def model(self) -> onnx.ModelProto:
        """Return the ONNX model; inputs and outputs are float32 with the names of the blobs.

        Raises
        ------
        ModelError
            If a layer is not supported.
        """
        for name, values in self.net.constants.items():
            self.e.begin(name)
            self.e.nodes.append(
                helper.make_node("Identity", [self.e.constant("value", values)], [name], f"{name}:constant")
            )
            self._real.add(name)
        for layer in self.bound:
            self._layer(layer)
        structure = self.net.structure
        for name in structure.outputs:
            self.real(name)
        inputs = [helper.make_tensor_value_info(i.name, TensorProto.FLOAT, i.dims) for i in structure.inputs]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, self.dims[name])
            for name in structure.outputs
        ]
        graph = helper.make_graph(self.e.nodes, "tnn", inputs, outputs, list(self.e.constants.values()))
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        return made

    def scale(self, blob: str) -> BlobScale:
        """Return the quantisation of a blob."""
        dims = self.dims[blob]
        return self.net.scale_of(blob, dims[1] if len(dims) > 1 else 1)

    def coding(self, blob: str) -> list[str]:
        """Return the names of the constants with the scale and zero point of a blob's codes."""
        scale = self.scale(blob)
        return [
            self.e.constant("coding_scale", scale.first, owner=blob),
            self.e.constant("coding_zero", scale.zero, np.int8, owner=blob),
        ]

    def real(self, blob: str) -> str:
        """Return the name of a blob's real numbers; int8 blobs are dequantised once."""
        if blob not in self._real:
            self._real.add(blob)
            self._dequantise(blob, blob)
        return blob

    def codes(self, blob: str) -> str:
        """Return the name of a blob's codes; blobs of floats are quantised once."""
        if blob not in self._codes:
            self._codes.add(blob)
            self.quantise(blob, self.real(blob))
        return f"{blob}::codes"

    def quantise(self, blob: str, source: str) -> None:
        """Add the codes of a blob of the real numbers `source`."""
        ratio = self.scale(blob).ratio(len(self.dims[blob]))
        if ratio is not None:
            self._add("Mul", [source, self.e.constant("inverse", 1 / ratio, owner=blob)], f"{blob}::scaled")
            source = f"{blob}::scaled"
        self._add("QuantizeLinear", [source, *self.coding(blob)], f"{blob}::codes")

    def _add(self, kind: str, inputs: list[str], output: str) -> None:
        self.e.nodes.append(helper.make_node(kind, inputs, [output], output))

    def _layer(self, b: Bound) -> None:
        layer = b.layer
        emit = EMITTERS.get(layer.type)
        if emit is None:
            raise b.wrong("layers of this type are not supported on the NPU")
        if layer.quantized and layer.type in ON_CODES:
            self._on_codes(b)
            return
        x = [self.real(name) for name in layer.inputs]
        self.e.begin(layer.name)
        if not layer.quantized:
            emit(self.e, b, x, list(layer.outputs))
            self._real.update(layer.outputs)
            return
        x = [self._round(name) for name in layer.inputs]
        self.e.begin(layer.name)
        emit(self.e, b, x, [f"{name}::result" for name in layer.outputs])
        for name in layer.outputs:
            self.quantise(name, f"{name}::result")
            self._codes.add(name)

    def _round(self, blob: str) -> str:
        """Return the real numbers that an int8 layer reads: those of the codes."""
        self.codes(blob)
        if blob not in self._floats:
            return self.real(blob)
        name = f"{blob}::rounded"
        if blob not in self._rounded:
            self._rounded.add(blob)
            self._dequantise(blob, name)
        return name

    def _dequantise(self, blob: str, output: str) -> None:
        """Add the real numbers of a blob's codes."""
        ratio = self.scale(blob).ratio(len(self.dims[blob]))
        target = output if ratio is None else f"{output}::unit"
        self._add("DequantizeLinear", [f"{blob}::codes", *self.coding(blob)], target)
        if ratio is not None:
            self._add("Mul", [target, self.e.constant("ratio", ratio, owner=output)], output)

    def _on_codes(self, b: Bound) -> None:
        """Add a layer that computes codes of codes: all tensors have the scale of the first channel."""
        layer, source = b.layer, b.layer.inputs[0]
        if len(layer.inputs) != 1:
            raise b.wrong("fused additions are not supported")
        self.codes(source)
        self.e.begin(layer.name)
        x = f"{layer.name}:input"
        self._add("DequantizeLinear", [f"{source}::codes", *self.coding(source)], x)
        y, target = f"{layer.name}:result", layer.outputs[0]
        unit = target
        if layer.type in ("Convolution", "InnerProduct"):
            self._product(b, x, y)
        else:
            EMITTERS[layer.type](self.e, b, [x], [y])
            unit = source
        self._add("QuantizeLinear", [y, *self.coding(unit)], f"{target}::codes")
        self._codes.add(target)

    def _product(self, b: Bound, x: str, y: str) -> None:
        """Add a convolution or inner product of codes."""
        before, after = self.scale(b.layer.inputs[0]), self.scale(b.layer.outputs[0])
        convolution = b.layer.type == "Convolution"
        codes = b.array("filter" if convolution else "weight")
        count = b.params["output_channel" if convolution else "num_output"]
        if codes.dtype != np.int8:
            raise b.wrong(f"its weights are {codes.dtype}, not int8")
        given = np.asarray(b.array("scale"), np.float64).reshape(-1)
        if given.size not in (1, count) or not (np.isfinite(given).all() and (given > 0).all()):
            raise b.wrong(f"{given.size} scales that are not all positive and finite, for {count} kernels")
        ratio = after.first / after.scale.astype(np.float64)
        unit = np.broadcast_to(given * ratio, (count,)).astype(np.float32)
        share = unit / np.float32(before.first)
        if not all(np.isfinite(scale).all() and (scale > 0).all() for scale in (unit, share)):
            raise b.wrong("its scales, with those of its blobs, exceed the range of float32")
        codes = filters(b, codes) if convolution else codes.reshape(count, -1)
        zeros = np.asarray(b.resource.get("zero_point", np.zeros(1)), np.int8).reshape(-1)
        zeros = np.broadcast_to(zeros if zeros.size in (1, count) else np.zeros(1, np.int8), (count,))
        names: list[Any] = [
            self.e.constant("codes", codes, np.int8),
            self.e.constant("code_scale", share),
            self.e.constant("code_zero", zeros, np.int8),
        ]
        self.e.nodes.append(
            helper.make_node(
                "DequantizeLinear", names, [f"{b.layer.name}:real"], f"{b.layer.name}:real", axis=0
            )
        )
        inputs = [f"{b.layer.name}:real"]
        bias = b.resource.get("bias", np.zeros(0))
        if bias.size:
            if bias.dtype != np.int32 or bias.size != count:
                raise b.wrong(f"its bias has {bias.size} elements of {bias.dtype}, not {count} of int32")
            sums = [self.e.constant("sums", bias.reshape(-1), np.int32), self.e.constant("sum_scale", unit)]
            output = f"{b.layer.name}:offset"
            self.e.nodes.append(helper.make_node("DequantizeLinear", sums, [output], output, axis=0))
            inputs.append(output)
        if convolution:
            six = None if after.scale.size == 1 else (6.0 * ratio).reshape(1, -1, 1, 1)
            convolve(self.e, b, [x, *inputs], y, six)
        else:
            multiply(self.e, b, x, inputs, y)


def to_onnx(net: TnnNetwork) -> onnx.ModelProto:
    """Return a network as an ONNX model; inputs and outputs are float32 with the names of the blobs.

    Raises
    ------
    ModelError
        If a layer is not supported; the message names it.
    """
    if any(item.data_type != 0 for item in net.structure.inputs):
        odd = next(item for item in net.structure.inputs if item.data_type != 0)
        raise ModelError(
            f"input '{odd.name}' has TNN's data type {odd.data_type}; only float (0) is supported"
        )
    with np.errstate(all="ignore"):  # what is not finite is refused by name, here or by the compiler
        return Converter(net).model()
