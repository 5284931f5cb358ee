"""Networks as int8 ONNX in QDQ form, quantised by onnxruntime, and one of floats.

    python examples/networks/make.py build/networks                          # three small ones
    python examples/networks/make.py build/networks mobilenet_v1 resnet50    # published layer shapes

Weights and calibration data are random with a fixed seed: the networks show operators and sizes, they
classify nothing.  Needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A float network under construction; methods add nodes and give their output's name."""

    def __init__(self, name: str, shape: tuple[int, ...], seed: int) -> None:
        self.name, self.shape = name, shape
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Add an initializer."""
        name = f"constant{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(self, x: str, cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
        """Add a convolution that keeps the size but for its stride."""
        depth = cin // groups
        weights = self.rng.normal(size=(cout, depth, kernel, kernel)) * np.sqrt(2 / (depth * kernel**2))
        bias = self.rng.normal(size=cout) * 0.1
        return self.add(
            "Conv",
            x,
            self.constant(weights),
            self.constant(bias),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def relu(self, x: str) -> str:
        """Add a Relu."""
        return self.add("Relu", x)

    def clip(self, x: str) -> str:
        """Add a Clip to 0..6."""
        return self.add("Clip", x, self.constant(np.array(0.0)), self.constant(np.array(6.0)))

    def classify(self, x: str, channels: int, classes: int) -> str:
        """Add a global average, a dense layer and a softmax."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        weights = self.constant(self.rng.normal(size=(classes, channels)) / np.sqrt(channels))
        return self.add(
            "Softmax", self.add("Gemm", flat, weights, self.constant(np.zeros(classes)), transB=1), axis=1
        )

    def model(self, output: str) -> onnx.ModelProto:
        """The model with this output."""
        ends = [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, self.shape),
            helper.make_tensor_value_info(output, TensorProto.FLOAT, None),
        ]
        graph = helper.make_graph(self.nodes, self.name, ends[:1], ends[1:], self.tensors)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
        made.ir_version = 8
        return onnx.shape_inference.infer_shapes(made)


def residual() -> tuple[Network, str]:
    """Convolutions with two residual sums."""
    n = Network("residual", (1, 3, 32, 32), 1)
    x = n.relu(n.conv("image", 3, 16))
    x = n.relu(n.add("Add", x, n.conv(n.relu(n.conv(x, 16, 16)), 16, 16)))
    short = n.conv(x, 16, 32, 1, 2)
    x = n.relu(n.add("Add", short, n.conv(n.relu(n.conv(x, 16, 32, 3, 2)), 32, 32)))
    return n, n.classify(x, 32, 10)


def separable() -> tuple[Network, str]:
    """Depthwise and pointwise convolutions, with Clip as in MobileNet."""
    n = Network("separable", (1, 3, 48, 48), 2)
    x = n.clip(n.conv("image", 3, 16, 3, 2))
    for cin, cout, stride in ((16, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)):
        x = n.clip(n.conv(x, cin, cin, 3, stride, groups=cin))
        x = n.clip(n.conv(x, cin, cout, 1))
    return n, n.classify(x, 128, 10)


def upscaling() -> tuple[Network, str]:
    """SiLU, a transposed convolution, a nearest Resize, Concat and Sigmoid."""
    n = Network("upscaling", (1, 3, 24, 24), 3)

    def silu(x: str) -> str:
        return n.add("Mul", x, n.add("Sigmoid", x))

    first = silu(n.conv("image", 3, 16))
    low = silu(n.conv(first, 16, 32, 3, 2))
    weights = n.constant(n.rng.normal(size=(32, 16, 2, 2)) / 8)
    wide = n.add("ConvTranspose", low, weights, n.constant(np.zeros(16)), kernel_shape=[2, 2], strides=[2, 2])
    scales = n.constant([1.0, 1.0, 2.0, 2.0])
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    large = n.add("Resize", n.conv(low, 32, 16, 1), "", scales, **modes)
    joined = n.add("Concat", first, wide, large, axis=1)
    return n, n.add("Sigmoid", n.conv(silu(n.conv(joined, 48, 16)), 16, 1, 1))


def mobilenet_v1() -> tuple[Network, str]:
    """MobileNetV1 1.0 at 224 x 224 (Howard et al. 2017, table 1): 569 million MACs."""
    n = Network("mobilenet_v1", (1, 3, 224, 224), 4)
    x = n.clip(n.conv("image", 3, 32, 3, 2))
    shapes = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    shapes += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]
    for cin, cout, stride in shapes:
        x = n.clip(n.conv(x, cin, cin, 3, stride, groups=cin))
        x = n.clip(n.conv(x, cin, cout, 1))
    return n, n.classify(x, 1024, 1000)


def resnet50() -> tuple[Network, str]:
    """ResNet-50 at 224 x 224 with the stride in the 3x3 convolutions (v1.5): 4.09 G MACs."""
    n = Network("resnet50", (1, 3, 224, 224), 5)
    x = n.relu(n.conv("image", 3, 64, 7, 2))
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            short = n.conv(x, cin, 4 * width, 1, stride) if block == 0 else x
            y = n.relu(n.conv(x, cin, width, 1))
            y = n.relu(n.conv(y, width, width, 3, stride))
            x = n.relu(n.add("Add", n.conv(y, width, 4 * width, 1), short))
            cin = 4 * width
    return n, n.classify(x, 2048, 1000)


NETWORKS = {"residual": residual, "separable": separable, "upscaling": upscaling}
PUBLISHED = {"mobilenet_v1": mobilenet_v1, "resnet50": resnet50}


def quantise(model: onnx.ModelProto, data: list[np.ndarray]) -> bytes:
    """Int8 in QDQ form by onnxruntime's static quantiser, weights per channel."""
    import onnxruntime.quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.items = iter([{"image": item} for item in data])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.items, None)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        kinds = {"activation_type": q.QuantType.QInt8, "weight_type": q.QuantType.QInt8}
        q.quantize_static(
            str(source), str(target), Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True, **kinds
        )
        return target.read_bytes()


def make(name: str) -> tuple[bytes, bytes, np.ndarray]:
    """One network: as floats, as int8, and an input for it."""
    network, output = (NETWORKS | PUBLISHED)[name]()
    model = network.model(output)
    images = 4 if name in NETWORKS else 1
    data = [network.rng.normal(size=network.shape).astype(np.float32) for _ in range(images)]
    return model.SerializeToString(), quantise(model, data), data[0]


def main() -> None:
    """Write the networks named on the command line (default: the small ones) into its folder."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/networks")
    names = sys.argv[2:] or list(NETWORKS)
    unknown = set(names) - set(NETWORKS | PUBLISHED)
    if unknown:
        raise SystemExit(
            f"no network {', '.join(sorted(unknown))}; there are {', '.join(NETWORKS | PUBLISHED)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        floats, codes, image = make(name)
        (folder / f"{name}_int8.onnx").write_bytes(codes)
        np.save(folder / f"{name}_input.npy", image)
        if name == "residual":
            (folder / f"{name}_float.onnx").write_bytes(floats)
    print(f"written: {', '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
