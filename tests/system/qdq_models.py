"""Small float networks made with onnx.helper and quantised by onnxruntime, for tests."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass
class Net:
    """A float network under construction; methods add a node and return its output's name."""

    shape: tuple[int, ...]
    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def constant(self, values: np.ndarray, dtype: type = np.float32) -> str:
        """Add an initializer."""
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node of any kind."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        kernel: int = 3,
        groups: int = 1,
        bias: bool = True,
        **extra: object,
    ) -> str:
        """Add a convolution with random weights of uneven channel scales."""
        shape = (cout, cin // groups, kernel, kernel)
        gain = self.rng.uniform(0.2, 1.0, (cout, 1, 1, 1)) / np.sqrt(np.prod(shape[1:]))
        inputs = [x, self.constant(self.rng.normal(size=shape) * gain * 1.5)]
        if bias:
            inputs.append(self.constant(self.rng.normal(size=cout) * 0.3))
        return self.add("Conv", *inputs, kernel_shape=[kernel, kernel], group=groups, **extra)

    def conv_transpose(
        self, x: str, cin: int, cout: int, kernel: int = 3, groups: int = 1, **extra: object
    ) -> str:
        """Add a transposed convolution with random weights."""
        shape = (cin, cout // groups, kernel, kernel)
        weights = self.rng.normal(size=shape) / np.sqrt(cin / groups * kernel)
        inputs = [x, self.constant(weights), self.constant(self.rng.normal(size=cout) * 0.3)]
        return self.add("ConvTranspose", *inputs, kernel_shape=[kernel, kernel], group=groups, **extra)

    def gemm(self, x: str, depth: int, count: int, **attributes: object) -> str:
        """Add a fully connected layer, B transposed."""
        weights = self.rng.normal(size=(count, depth)) / np.sqrt(depth)
        bias = self.rng.normal(size=count) * 0.2
        return self.add("Gemm", x, self.constant(weights), self.constant(bias), transB=1, **attributes)

    def model(self, output: str, opset: int = 14) -> onnx.ModelProto:
        """The finished float model."""
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)],
            self.tensors,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def quantise(
    model: onnx.ModelProto,
    data: list[np.ndarray],
    *,
    unsigned: bool = False,
    per_channel: bool = True,
    weights_unsigned: bool = False,
    symmetric: bool = False,
    exclude: Collection[str] = (),
) -> bytes:
    """Quantise with onnxruntime's static quantiser (QDQ) all nodes but those of `exclude`.

    `data` are calibration inputs.
    """
    import onnxruntime.quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.items = iter([{"x": item} for item in data])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.items, None)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        q.quantize_static(
            str(source),
            str(target),
            Reader(),
            quant_format=q.QuantFormat.QDQ,
            activation_type=q.QuantType.QUInt8 if unsigned else q.QuantType.QInt8,
            weight_type=q.QuantType.QUInt8 if weights_unsigned else q.QuantType.QInt8,
            per_channel=per_channel,
            nodes_to_exclude=list(exclude),
            extra_options={"ActivationSymmetric": symmetric},
        )
        return target.read_bytes()


def reference(data: bytes, x: np.ndarray) -> np.ndarray:
    """Return onnxruntime's result with graph optimisation off: float arithmetic between Q and DQ nodes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


Build = Callable[[Net], str]


def make(shape: tuple[int, ...], build: Build, seed: int = 0, **options: bool) -> tuple[bytes, np.ndarray]:
    """Build and quantise a network; return the model and an input for it."""
    net = Net(shape, seed)
    model = net.model(build(net))
    data = [net.rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    return quantise(model, data, **options), data[0]
